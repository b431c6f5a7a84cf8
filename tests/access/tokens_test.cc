#include "gpulet/access/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::access {
namespace {

using support::holds;
using support::names;

const std::string kAdmin = "admin-0123456789abcdef";
const std::string kUser = "user-0123456789abcdef";

class TokensTest : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& text,
                             mode_t mode = S_IRUSR | S_IWUSR) {
    std::filesystem::path path = folder_.write(name, text);
    ::chmod(path.c_str(), mode);
    return path;
  }
  [[nodiscard]] static Tokens read(const config::TokenFiles& files) {
    return Tokens::read(files).value();
  }
  static std::string bearer(const std::string& token) { return "Bearer " + token; }
  // Checks a call with that Authorization header.
  static Status check_header(const Tokens& tokens, Right needed, std::string_view authorization,
                             std::string_view model = {}) {
    PeerIdentity peer;
    tokens.identify(authorization, peer);
    return tokens.check(needed, peer, model);
  }

  support::TemporaryFolder folder_;
};

TEST_F(TokensTest, EverythingIsAllowedWithoutFiles) {
  const Tokens tokens;
  EXPECT_FALSE(tokens.guard_any());
  EXPECT_TRUE(check_header(tokens, Right::admin, "").ok());
}

TEST_F(TokensTest, AnAdminTokenIncludesInferenceButNotViceVersa) {
  const Tokens tokens =
      read({file("admin", kAdmin + "\n"), file("user", "# ours\n\n" + kUser + "  # of the lab\n")});
  EXPECT_TRUE(check_header(tokens, Right::admin, bearer(kAdmin)).ok());
  EXPECT_TRUE(check_header(tokens, Right::inference, bearer(kAdmin)).ok());
  EXPECT_TRUE(check_header(tokens, Right::inference, "bearer   " + kUser).ok());
  const Status refused = check_header(tokens, Right::admin, bearer(kUser));
  EXPECT_EQ(refused.code(), StatusCode::unauthenticated);
  EXPECT_TRUE(names(refused, "admin"));
  EXPECT_TRUE(check_header(tokens, Right::nothing, "").ok());
}

TEST_F(TokensTest, RejectsUnknownTokens) {
  const Tokens tokens = read({{}, file("user", kUser)});
  for (const std::string& shown :
       {std::string(), std::string("Bearer"), std::string("Bearer "), "Basic " + kUser, kUser,
        bearer(kUser + "x"), bearer(kUser.substr(1)), bearer(kAdmin)}) {
    EXPECT_EQ(check_header(tokens, Right::inference, shown).code(), StatusCode::unauthenticated)
        << shown;
  }
}

TEST_F(TokensTest, AdminCallsNeedATokenIfThereAreAny) {
  EXPECT_FALSE(check_header(read({{}, file("user", kUser)}), Right::admin, "").ok());
  EXPECT_TRUE(check_header(read({{}, file("user", kUser)}), Right::admin, bearer(kUser)).ok());
  EXPECT_TRUE(check_header(read({file("admin", kAdmin), {}}), Right::inference, "").ok());
}

TEST_F(TokensTest, InvalidFilesAreNamedWithTheFix) {
  const auto refusal = [](const config::TokenFiles& files) { return Tokens::read(files).status(); };
  EXPECT_TRUE(
      names(refusal({folder_.path() / "nowhere", {}}), (folder_.path() / "nowhere").string()));
  EXPECT_TRUE(names(refusal({file("open", kAdmin, 0644), {}}), "chmod 600"));
  EXPECT_TRUE(names(refusal({file("empty", "# none\n"), {}}), (folder_.path() / "empty").string()));
  EXPECT_TRUE(names(refusal({{}, file("short", kUser + "\nsecret\n")}), "short:2", "6"));
  EXPECT_TRUE(names(refusal({{}, file("blank", "a token with blanks in it\n")}), "blank:1"));
}

TEST_F(TokensTest, ParsesTheAttributesOfAToken) {
  const Result<std::vector<Token>> read =
      parse_tokens("# of the lab\n" + kUser +
                       "\n\tname=lab  models=resnet*,bert requests_per_s=2.5 device_ms_per_s=500 "
                       "max_requests=8 " +
                       kAdmin + "  # until May\r\n",
                   "f", Right::inference);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  ASSERT_EQ(read.value().size(), 2U);
  const Token& plain = read.value()[0];
  EXPECT_EQ(plain.name, "inference:2");
  EXPECT_FALSE(plain.limits.any());
  EXPECT_TRUE(plain.may_use("anything"));
  const Token& known = read.value()[1];
  EXPECT_EQ(known.name, "lab");
  EXPECT_EQ(known.right, Right::inference);
  EXPECT_EQ(known.limits, (config::ClientLimits{2.5, 500, 8}));
  EXPECT_TRUE(known.may_use("resnet50"));
  EXPECT_TRUE(known.may_use("resnet"));
  EXPECT_TRUE(known.may_use("bert"));
  EXPECT_FALSE(known.may_use("bert2"));
  EXPECT_FALSE(known.may_use("gpt"));
}

TEST_F(TokensTest, NamesMalformedLines) {
  for (const std::string& line : std::vector<std::string>{
           "name=lab", "name= " + kUser, "name=a,b " + kUser, "models= " + kUser,
           "models=a,,b " + kUser, "models=a/b " + kUser, "color=red " + kUser,
           "requests_per_s=0 " + kUser, "requests_per_s=nan " + kUser,
           "requests_per_s=1e99 " + kUser, "requests_per_s=-1 " + kUser,
           "device_ms_per_s=x " + kUser, "max_requests=0 " + kUser, "max_requests=1.5 " + kUser,
           "name=a name=b " + kUser, kUser + " name=a",
           "name=" + std::string(65, 'a') + " " + kUser}) {
    const Status wrong = parse_tokens("#\n" + line + "\n", "f", Right::inference).status();
    EXPECT_EQ(wrong.code(), StatusCode::invalid) << line;
    EXPECT_THAT(wrong.message(), ::testing::StartsWith("f:2: ")) << line;
    EXPECT_FALSE(holds(wrong, kUser)) << "the token is revealed";
  }
  EXPECT_EQ(parse_tokens("models=a " + kUser, "f", Right::observe).status().code(),
            StatusCode::invalid);
}

TEST_F(TokensTest, PatternsMatchInBoundedTime) {
  Token token;
  token.models = {std::string(200, '*') + "*a*a*a*a*a*a*a*a*a*b"};
  EXPECT_FALSE(token.may_use(std::string(250, 'a')));
  EXPECT_TRUE(token.may_use(std::string(250, 'a') + "b"));
  token.models = {"a?c*"};
  EXPECT_TRUE(token.may_use("abc"));
  EXPECT_FALSE(token.may_use("ac"));
}

TEST_F(TokensTest, ARestrictedTokenIsForbiddenOtherModels) {
  const Tokens tokens =
      read({file("admin", "models=a " + kAdmin), file("user", "name=lab models=a,b* " + kUser)});
  EXPECT_TRUE(check_header(tokens, Right::inference, bearer(kUser), "a").ok());
  EXPECT_TRUE(check_header(tokens, Right::inference, bearer(kUser), "b2").ok());
  EXPECT_EQ(check_header(tokens, Right::inference, bearer(kUser), "c").code(),
            StatusCode::forbidden);
  EXPECT_TRUE(check_header(tokens, Right::admin, bearer(kAdmin), "a").ok());
  EXPECT_EQ(check_header(tokens, Right::admin, bearer(kAdmin), "b").code(), StatusCode::forbidden);
  EXPECT_EQ(check_header(tokens, Right::inference, bearer(kAdmin), "b").code(),
            StatusCode::forbidden);
  // Calls without a single model: shared memory, traces, a load of several models.
  EXPECT_EQ(check_header(tokens, Right::admin, bearer(kAdmin)).code(), StatusCode::forbidden);
}

TEST_F(TokensTest, ObserveIsASeparateRight) {
  const Tokens without = read({file("admin", kAdmin), file("user", kUser)});
  EXPECT_TRUE(check_header(without, Right::observe, "").ok());
  const std::string eye = "eye-0123456789abcdef";
  const Tokens tokens = read({file("admin", kAdmin), file("user", kUser), file("eye", eye)});
  EXPECT_FALSE(check_header(tokens, Right::observe, "").ok());
  EXPECT_FALSE(check_header(tokens, Right::observe, bearer(kUser)).ok());
  EXPECT_TRUE(check_header(tokens, Right::observe, bearer(eye)).ok());
  EXPECT_TRUE(check_header(tokens, Right::observe, bearer(kAdmin)).ok());
  EXPECT_FALSE(check_header(tokens, Right::inference, bearer(eye)).ok());
  EXPECT_FALSE(check_header(tokens, Right::admin, bearer(eye)).ok());
  // As sent by a browser: base64 of "prometheus:" and the token.
  EXPECT_TRUE(
      check_header(tokens, Right::observe, "Basic cHJvbWV0aGV1czpleWUtMDEyMzQ1Njc4OWFiY2RlZg==")
          .ok());
  EXPECT_EQ(token_of("Basic bm9jb2xvbg=="), "");
  EXPECT_EQ(token_of("Basic !!!!"), "");
}

TEST_F(TokensTest, ATokenMayOccurInSeveralFiles) {
  const Tokens tokens = read({{}, file("user", kUser), file("eye", kUser)});
  EXPECT_TRUE(check_header(tokens, Right::observe, bearer(kUser)).ok());
  EXPECT_TRUE(check_header(tokens, Right::inference, bearer(kUser)).ok());
}

TEST_F(TokensTest, RenewsTokensOfAnEarlierReading) {
  const Tokens before = read({{}, file("user", kUser + "\n" + kAdmin)});
  const Tokens after = read({{}, file("user", "name=new " + kUser)});
  ASSERT_NE(after.renewed(before.find(kUser)), nullptr);
  EXPECT_EQ(after.renewed(before.find(kUser))->name, "new");
  EXPECT_EQ(after.renewed(before.find(kAdmin)), nullptr);
}

TEST(SameSecret, ComparesLengthAndEveryByte) {
  EXPECT_TRUE(same_secret("", ""));
  EXPECT_TRUE(same_secret(std::string("a\0b", 3), std::string("a\0b", 3)));
  EXPECT_FALSE(same_secret(std::string("a\0b", 3), std::string("a\0c", 3)));
  EXPECT_FALSE(same_secret("xb", "ab"));
  EXPECT_FALSE(same_secret("ab", "abc"));
}

}  // namespace
}  // namespace gpulet::access

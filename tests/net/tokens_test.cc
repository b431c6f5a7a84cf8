#include "gpulet/net/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/support/temporary_folder.h"

namespace gpulet::net {
namespace {

using ::testing::HasSubstr;

const std::string kAdmin = "admin-0123456789abcdef";
const std::string kUser = "user-0123456789abcdef";

class TokensTest : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& text,
                             mode_t mode = S_IRUSR | S_IWUSR) {
    const std::filesystem::path path = folder_.write(name, text);
    ::chmod(path.c_str(), mode);
    return path;
  }
  [[nodiscard]] static Tokens read(const config::TokenFiles& files) {
    return Tokens::read(files).value();
  }
  static std::string bearer(const std::string& token) { return "Bearer " + token; }

  support::TemporaryFolder folder_;
};

TEST_F(TokensTest, without_files_everybody_may_everything) {
  const Tokens tokens;
  EXPECT_FALSE(tokens.guard_any());
  EXPECT_TRUE(tokens.check_header(Right::admin, "").ok());
}

TEST_F(TokensTest, an_admin_token_is_good_for_inference_and_not_the_other_way_round) {
  const Tokens tokens =
      read({file("admin", kAdmin + "\n"), file("user", "# ours\n\n" + kUser + "  # of the lab\n")});
  EXPECT_TRUE(tokens.check_header(Right::admin, bearer(kAdmin)).ok());
  EXPECT_TRUE(tokens.check_header(Right::inference, bearer(kAdmin)).ok());
  EXPECT_TRUE(tokens.check_header(Right::inference, "bearer   " + kUser).ok());
  const Status refused = tokens.check_header(Right::admin, bearer(kUser));
  EXPECT_EQ(refused.code(), StatusCode::unauthenticated);
  EXPECT_THAT(refused.message(), HasSubstr("needs an admin token"));
  EXPECT_TRUE(tokens.check_header(Right::nothing, "").ok());
}

TEST_F(TokensTest, what_is_no_known_token_is_refused) {
  const Tokens tokens = read({{}, file("user", kUser)});
  for (const std::string& shown :
       {std::string(), std::string("Bearer"), std::string("Bearer "), "Basic " + kUser, kUser,
        bearer(kUser + "x"), bearer(kUser.substr(1)), bearer(kAdmin)}) {
    EXPECT_EQ(tokens.check_header(Right::inference, shown).code(), StatusCode::unauthenticated)
        << shown;
  }
}

TEST_F(TokensTest, admin_calls_are_guarded_wherever_one_kind_is) {
  EXPECT_FALSE(read({{}, file("user", kUser)}).check_header(Right::admin, "").ok());
  EXPECT_TRUE(read({{}, file("user", kUser)}).check_header(Right::admin, bearer(kUser)).ok());
  EXPECT_TRUE(read({file("admin", kAdmin), {}}).check_header(Right::inference, "").ok());
}

TEST_F(TokensTest, files_that_do_not_serve_are_named_with_the_mend) {
  const auto words = [](const config::TokenFiles& files) {
    return Tokens::read(files).status().message();
  };
  EXPECT_THAT(words({folder_.path() / "nowhere", {}}), HasSubstr("nowhere: cannot be read"));
  EXPECT_THAT(words({file("open", kAdmin, 0644), {}}), HasSubstr("chmod 600"));
  EXPECT_THAT(words({file("empty", "# none\n"), {}}), HasSubstr("holds no token"));
  EXPECT_THAT(words({{}, file("short", kUser + "\nsecret\n")}), HasSubstr("short:2: a token of 6"));
  EXPECT_THAT(words({{}, file("blank", "a token with blanks in it\n")}), HasSubstr("no blanks"));
}

}  // namespace
}  // namespace gpulet::net

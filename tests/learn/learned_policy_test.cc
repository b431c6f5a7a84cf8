// The file of a learned policy: what was written is read again, and nothing else is.
#include "gpulet/learn/learned_policy.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>

#include "tests/learn/worked_placement.h"

namespace gpulet::learn {
namespace {

LearnedPolicy some_policy() { return testing::drawn_policy(testing::worked_placement().input, 1); }

void expect_refused(const std::string& bytes, const std::string& why) {
  const auto parsed = parse_policy(bytes, "some.policy");
  ASSERT_FALSE(parsed.ok()) << why;
  EXPECT_EQ(parsed.status().code(), StatusCode::invalid);
  EXPECT_NE(parsed.status().message().find("some.policy"), std::string::npos);
  EXPECT_NE(parsed.status().message().find(why), std::string::npos) << parsed.status().message();
}

TEST(PolicyFile, SurvivesTheWayThroughAFile) {
  const LearnedPolicy policy = some_policy();
  const std::filesystem::path file =
      std::filesystem::path(::testing::TempDir()) / "learned_policy_test.policy";
  ASSERT_TRUE(write_policy(policy, file).ok());
  const auto read = read_policy(file);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().task, policy.task);
  EXPECT_EQ(read.value().network, policy.network);
  EXPECT_EQ(read.value().training, policy.training);
  EXPECT_EQ(to_bytes(read.value()), to_bytes(policy));
  std::filesystem::remove(file);
}

TEST(PolicyFile, ThatIsNotThereOrCannotBeWrittenIsNamed) {
  const auto read = read_policy("/nowhere/some.policy");
  EXPECT_EQ(read.status().code(), StatusCode::not_found);
  EXPECT_NE(read.status().message().find("/nowhere/some.policy"), std::string::npos);
  const Status written = write_policy(some_policy(), "/nowhere/some.policy");
  EXPECT_NE(written.message().find("/nowhere/some.policy"), std::string::npos);
}

TEST(PolicyFile, OfAnotherKindIsRefused) {
  expect_refused("", "it begins otherwise");
  expect_refused("{\"models\":[]}", "it begins otherwise");
  expect_refused("gpulet-policy 1\n{}", "it ends within its header");
  expect_refused("gpulet-policy 1\n{}\n", "/devices");
}

TEST(PolicyFile, WithOtherWeightsIsRefused) {
  std::string bytes = to_bytes(some_policy());
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  expect_refused(bytes, "its weights are not those");
}

TEST(PolicyFile, WhoseNetworkIsNotOfItsTaskIsRefused) {
  LearnedPolicy policy = some_policy();
  policy.task.models.pop_back();
  expect_refused(to_bytes(policy), "where its task has");
}

RC_GTEST_PROP(PolicyFile, CutShortIsRefused, ()) {
  const std::string bytes = to_bytes(some_policy());
  const auto length = *rc::gen::inRange<std::size_t>(0, bytes.size());
  RC_ASSERT(!parse_policy(bytes.substr(0, length), "some.policy").ok());
}

RC_GTEST_PROP(PolicyFile, WithAnotherByteIsReadOrRefused, ()) {
  std::string bytes = to_bytes(some_policy());
  const auto at = *rc::gen::inRange<std::size_t>(0, bytes.find('\n', 20));
  bytes[at] = *rc::gen::arbitrary<char>();
  const auto parsed = parse_policy(bytes, "some.policy");
  RC_ASSERT(parsed.ok() || parsed.status().code() == StatusCode::invalid);
}

}  // namespace
}  // namespace gpulet::learn

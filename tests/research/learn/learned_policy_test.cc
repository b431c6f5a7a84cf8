#include "research/learn/learned_policy.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>

#include "tests/research/learn/worked_placement.h"
#include "tests/support/names.h"

namespace gpulet::learn {
namespace {

using support::names;

LearnedPolicy some_policy() { return testing::drawn_policy(testing::worked_placement().input, 1); }

void expect_rejected(const std::string& bytes) {
  const auto parsed = parse_policy(bytes, "some.policy");
  EXPECT_EQ(parsed.status().code(), StatusCode::invalid);
  EXPECT_TRUE(names(parsed.status(), "some.policy"));
}

TEST(PolicyFile, RoundTripsThroughAFile) {
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

TEST(PolicyFile, NamesAFileThatCannotBeReadOrWritten) {
  const auto read = read_policy("/nowhere/some.policy");
  EXPECT_EQ(read.status().code(), StatusCode::not_found);
  EXPECT_TRUE(names(read.status(), "/nowhere/some.policy"));
  const Status written = write_policy(some_policy(), "/nowhere/some.policy");
  EXPECT_TRUE(names(written, "/nowhere/some.policy"));
}

TEST(PolicyFile, RejectsOtherFormats) {
  expect_rejected("");
  expect_rejected("{\"models\":[]}");
  expect_rejected("gpulet-policy 1\n{}");
  expect_rejected("gpulet-policy 1\n{}\n");
}

TEST(PolicyFile, RejectsDamagedWeights) {
  std::string bytes = to_bytes(some_policy());
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  expect_rejected(bytes);
}

TEST(PolicyFile, RejectsANetworkThatDoesNotFitItsTask) {
  LearnedPolicy policy = some_policy();
  policy.task.models.pop_back();
  expect_rejected(to_bytes(policy));
}

RC_GTEST_PROP(PolicyFile, RejectsTruncatedFiles, ()) {
  const std::string bytes = to_bytes(some_policy());
  const auto length = *rc::gen::inRange<std::size_t>(0, bytes.size());
  RC_ASSERT(!parse_policy(bytes.substr(0, length), "some.policy").ok());
}

RC_GTEST_PROP(PolicyFile, ReadsOrRejectsAChangedByte, ()) {
  std::string bytes = to_bytes(some_policy());
  const auto at = *rc::gen::inRange<std::size_t>(0, bytes.find('\n', 20));
  bytes[at] = *rc::gen::arbitrary<char>();
  const auto parsed = parse_policy(bytes, "some.policy");
  RC_ASSERT(parsed.ok() || parsed.status().code() == StatusCode::invalid);
}

}  // namespace
}  // namespace gpulet::learn

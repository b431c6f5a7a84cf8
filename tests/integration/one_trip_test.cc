// Payloads of forwarded requests, which go from their entry to the node: what passes the owner, and
// what the death of one of them costs. With processes; docs/cluster.md ("One trip").
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>

#include "tests/integration/cluster_of_processes.h"
#include "tests/support/cluster/stream_client.h"

namespace gpulet::testing::one_trip_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kFrontends = ClusterOfProcesses::kFrontends;
constexpr std::size_t kInputBytes = 600'000;

ClusterOfProcesses::Options options() {
  ClusterOfProcesses::Options options;
  options.cuttable = true;
  options.input_bytes = kInputBytes;
  return options;
}

class OneTrip : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(cluster_.all_serve());
    ASSERT_TRUE(cluster_.all_own());
    leader_ = cluster_.leader();
    owner_ = (leader_ + 1) % kFrontends;
    entry_ = (leader_ + 2) % kFrontends;
    for (const auto& [model, owner] : cluster_.owners()) {
      if (owner == "f" + std::to_string(owner_)) model_ = model;
    }
    ASSERT_FALSE(model_.empty());
  }
  // Each answer has the first byte of its own request.
  void ask(std::size_t count, std::map<StatusCode, std::size_t>& codes) {
    StreamClient client(cluster_.ports(entry_).clients);
    for (std::size_t i = 0; i < count; ++i) {
      const InferRequest request = byte_request(model_, ++tag_, kInputBytes);
      const auto reply = client.ask(request, seconds(15));
      ASSERT_TRUE(reply.has_value());
      ++codes[reply->status.code()];
      if (!reply->status.ok()) continue;
      ASSERT_EQ(reply->payload.size(), 1U);
      EXPECT_EQ(reply->payload[0].view()[0], request.payload.view()[0]);
    }
  }

  ClusterOfProcesses cluster_{options()};
  std::size_t leader_ = 0;
  std::size_t owner_ = 0;  // does not lead
  std::size_t entry_ = 0;  // neither
  std::string model_;      // of the owner
  std::uint64_t tag_ = 0;
};

TEST_F(OneTrip, AtMostTwoKilobytesOfARequestPassItsOwner) {
  constexpr std::uint64_t kMost = 2048;
  constexpr std::size_t kRequests = 200;
  std::map<StatusCode, std::size_t> codes;
  ask(10, codes);
  const std::uint64_t before = cluster_.bytes_at(owner_);
  ask(kRequests, codes);
  EXPECT_EQ(codes[StatusCode::ok], 10 + kRequests);
  const std::uint64_t each = (cluster_.bytes_at(owner_) - before) / kRequests;
  EXPECT_LT(each, kMost);  // with the heartbeats and reports of that time
  RecordProperty("bytes_of_a_request_at_its_owner", std::to_string(each));
}

TEST_F(OneTrip, AnEntryThatTheNodesDoNotHearSendsPayloadsThroughTheOwner) {
  std::map<StatusCode, std::size_t> codes;
  ask(5, codes);
  cluster_.cut_from_nodes(entry_);
  const std::uint64_t before = cluster_.bytes_at(owner_);
  ask(20, codes);
  EXPECT_EQ(codes[StatusCode::ok], 25U);
  EXPECT_GT(cluster_.bytes_at(owner_) - before, 10 * kInputBytes);
}

TEST_F(OneTrip, ARequestOutlivesItsOwner) {
  std::map<StatusCode, std::size_t> codes;
  ask(5, codes);
  cluster_.end(owner_, SIGKILL);
  ask(20, codes);
  EXPECT_EQ(codes[StatusCode::ok], 25U);
}

// Batches with requests of both entries.
TEST_F(OneTrip, TheDeathOfAnEntryFailsNoRequestOfAnother) {
  const InferRequest request = byte_request(model_, 1, kInputBytes);
  StreamClient dying(cluster_.ports(leader_).clients);
  constexpr std::uint64_t kEach = 20;
  for (std::uint64_t tag = 1; tag <= kEach; ++tag) {
    InferRequest one = request;
    one.tag = tag;
    dying.send(one);
  }
  ASSERT_TRUE(dying.run_until([&] { return !dying.replies().empty(); }, seconds(10)));
  StreamClient living(cluster_.ports(entry_).clients);
  for (std::uint64_t tag = 1; tag <= kEach; ++tag) {
    InferRequest one = request;
    one.tag = tag;
    living.send(one);
  }
  cluster_.end(leader_, SIGKILL);
  EXPECT_TRUE(living.run_until([&] { return living.replies().size() == kEach; }, seconds(15)));
  for (const auto& [tag, replies] : living.replies()) {
    EXPECT_EQ(replies.size(), 1U) << tag;
    EXPECT_TRUE(replies.front().status.ok()) << replies.front().status.to_string();
  }
}

}  // namespace
}  // namespace gpulet::testing::one_trip_test

// Models that crash or hang on some input, with real daemons and processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/names.h"

namespace gpulet::testing {
namespace {

using std::chrono::seconds;

constexpr std::uint64_t kCrashes = 255;  // the low byte of the tag is the input
constexpr std::uint64_t kHangs = 254;
constexpr std::uint64_t kCannotBeComputed = 253;

StatusCode code(const StreamClient& client, std::uint64_t tag) {
  const auto found = client.replies().find(tag);
  if (found == client.replies().end() || found->second.size() != 1) return StatusCode::cancelled;
  return found->second[0].status.code();
}

TEST(CrashesTest, OnlyTheCrashingRequestFailsWithTheReason) {
  Cluster cluster({{"a", 20, 20'000, 40}});
  cluster.add_crashing_backend("n0");
  cluster.wait_until_serving();
  StreamClient client(cluster.client_port());
  for (std::uint64_t tag = 1; tag <= 10; ++tag) client.send(byte_request("a", tag));
  client.send(byte_request("a", kCrashes));
  for (std::uint64_t tag = 11; tag <= 20; ++tag) client.send(byte_request("a", tag));
  ASSERT_TRUE(client.run_until([&] { return client.replies().size() == 21; }, seconds(25)));
  for (std::uint64_t tag = 1; tag <= 20; ++tag) EXPECT_EQ(code(client, tag), StatusCode::ok) << tag;
  EXPECT_EQ(code(client, kCrashes), StatusCode::internal);
  EXPECT_TRUE(support::names(client.replies().at(kCrashes)[0].status, "signal 11"));
  EXPECT_EQ(cluster.status().models.at(0).crashes, 2U);
}

TEST(CrashesTest, AnInvalidInputFailsOnlyForItsSender) {
  Cluster cluster({{"a", 20, 20'000, 40}});
  cluster.add_crashing_backend("n0");
  cluster.wait_until_serving();
  StreamClient client(cluster.client_port());
  for (std::uint64_t tag = 1; tag <= 10; ++tag) client.send(byte_request("a", tag));
  client.send(byte_request("a", kCannotBeComputed));
  for (std::uint64_t tag = 11; tag <= 20; ++tag) client.send(byte_request("a", tag));
  ASSERT_TRUE(client.run_until([&] { return client.replies().size() == 21; }, seconds(25)));
  for (std::uint64_t tag = 1; tag <= 20; ++tag) EXPECT_EQ(code(client, tag), StatusCode::ok) << tag;
  EXPECT_EQ(code(client, kCannotBeComputed), StatusCode::invalid);
  const std::string& why = client.replies().at(kCannotBeComputed)[0].status.message();
  EXPECT_EQ(why.find_first_of("0123456789"), std::string::npos) << why;
  const serve::FrontendStatus status = cluster.status();
  EXPECT_EQ(status.models.at(0).state, ModelState::ready);
  EXPECT_EQ(status.models.at(0).crashes, 0U);
  EXPECT_TRUE(status.exclusions.empty());
  EXPECT_TRUE(status.failures.empty());
}

TEST(CrashesTest, ARequestThatHangsTwoProcessesIsNotRetried) {
  ClusterChanges soon;
  soon.backend = [](config::BackendConfig& config) { config.hang_timeout = seconds(1); };
  Cluster cluster({{"a", 4, 20'000, 20}}, {}, soon);
  cluster.add_crashing_backend("n0");
  cluster.wait_until_serving();
  StreamClient client(cluster.client_port());
  client.send(byte_request("a", kHangs));
  client.send(byte_request("a", 1));
  ASSERT_TRUE(client.run_until([&] { return client.replies().size() == 2; }, seconds(18)));
  EXPECT_EQ(code(client, kHangs), StatusCode::internal);
  EXPECT_EQ(code(client, 1), StatusCode::ok);
}

TEST(CrashesTest, AModelThatKeepsCrashingIsQuarantinedAndOthersServe) {
  Cluster cluster({{"a", 20, 10'000, 5}, {"b", 20, 10'000, 5}});
  cluster.add_crashing_backend("n0");
  cluster.wait_until_serving();
  StreamClient client(cluster.client_port());
  const auto of_a = [&cluster] {
    const auto models = cluster.status().models;
    return *std::find_if(models.begin(), models.end(),
                         [](const auto& one) { return one.name == "a"; });
  };
  for (std::uint64_t tag = kCrashes;
       of_a().quarantined_for == Duration::zero() && tag < std::uint64_t{12} * 256; tag += 256) {
    client.send(byte_request("a", tag));
    ASSERT_TRUE(client.run_until([&] { return client.replies().contains(tag); }, seconds(15)));
    EXPECT_NE(code(client, tag), StatusCode::too_late);
  }
  EXPECT_EQ(of_a().state, ModelState::unavailable);
  EXPECT_FALSE(of_a().reason.empty());
  const auto refused = client.ask(byte_request("a", 1), seconds(5));
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status.code(), StatusCode::unavailable);
  const auto neighbour = client.ask(byte_request("b", 2), seconds(12));
  ASSERT_TRUE(neighbour.has_value());
  EXPECT_TRUE(neighbour->status.ok()) << neighbour->status.to_string();
}

}  // namespace
}  // namespace gpulet::testing

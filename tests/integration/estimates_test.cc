// A model without a profile, with real daemons and processes: it is probed and serves.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>

#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/serve/world.h"

namespace gpulet::testing::estimates_test {
namespace {

using std::chrono::seconds;

constexpr Duration kPatience = seconds(60);

TEST(EstimatesTest, AModelWithoutAProfileIsProbedAndServes) {
  ClusterFiles files;
  files.models = R"({"models":[{"name":"new","file":"new.pt",
      "inputs":[{"name":"x","type":"UINT8","shape":[1]}],
      "outputs":[{"name":"y","type":"UINT8","shape":[1]}],
      "slo_ms":500,"rate":10,"max_batch":8}]})";
  files.beside["new.pt"] = "stands for a model";
  files.profile = serve::testing::card_profile({{"known", 4}});
  Cluster cluster(files);
  cluster.add_storing_backend("n0");
  StreamClient client(cluster.client_port());
  const auto end = std::chrono::steady_clock::now() + kPatience;
  std::optional<InferReply> reply;
  for (std::uint64_t tag = 1; std::chrono::steady_clock::now() < end; ++tag) {
    reply = client.ask(byte_request("new", tag), seconds(5));
    if (reply && reply->status.ok()) break;
  }
  ASSERT_TRUE(reply && reply->status.ok()) << (reply ? reply->status.to_string() : "no answer");
  const serve::FrontendStatus status = cluster.status();
  ASSERT_EQ(status.estimates.size(), 1U);
  EXPECT_EQ(status.estimates[0].model, "new");
  EXPECT_EQ(status.estimates[0].device_type, "card");
  EXPECT_GE(status.estimates[0].probes, 2U);
}

}  // namespace
}  // namespace gpulet::testing::estimates_test

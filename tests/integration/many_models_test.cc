// More models than fit into one message: plans keep the protocol's limits, and model lists are
// complete.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gpulet/load/call.h"
#include "gpulet/schedule/plan.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"

namespace gpulet::testing {
namespace {

using std::chrono::seconds;

constexpr std::size_t kModels = 1500;

std::string name_of(std::size_t model) { return "model-" + std::to_string(model); }

std::vector<ClusterModel> many_models() {
  std::vector<ClusterModel> models;
  for (std::size_t i = 0; i < kModels; ++i) models.push_back({name_of(i), 0.05, 60'000, 0.001});
  return models;
}

TEST(ManyModels, OfOneNodeAreServedListedAndShown) {
  Cluster cluster(many_models());
  cluster.add_backend("n0", 4);
  cluster.wait_until_serving(seconds(120));
  const serve::FrontendStatus status = cluster.status();
  EXPECT_TRUE(status.exclusions.empty());
  ASSERT_EQ(status.backends.size(), 1U);
  std::size_t held = 0;
  for (const serve::GpuletStatus& gpulet : status.gpulets) {
    EXPECT_EQ(gpulet.gpulet.state, GpuletState::ready);
    EXPECT_LE(gpulet.gpulet.models.size(), schedule::kMostModelsOfGpulet);
    held += gpulet.gpulet.models.size();
  }
  EXPECT_GE(held, kModels);

  StreamClient client(cluster.client_port());
  for (const std::size_t model : {std::size_t{0}, std::size_t{700}, kModels - 1}) {
    const auto reply = client.ask(byte_request(name_of(model), model), seconds(20));
    ASSERT_TRUE(reply.has_value());
    EXPECT_TRUE(reply->status.ok()) << reply->status.to_string();
  }
  const load::Target target{config::Endpoint{"127.0.0.1", cluster.client_port()}};
  const auto listed = load::fetch_models(target, seconds(20));
  ASSERT_TRUE(listed.ok()) << listed.status().to_string();
  EXPECT_EQ(listed.value().size(), kModels);
  const auto shown = load::fetch_status(target, seconds(20));
  ASSERT_TRUE(shown.ok()) << shown.status().to_string();
  EXPECT_EQ(nlohmann::json::parse(shown.value())["models"].size(), kModels);
}

}  // namespace
}  // namespace gpulet::testing

// Spare share with real processes: a gpulet has it while nobody needs it, and gives it back without
// losing a request.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"

namespace gpulet::testing {
namespace {

using std::chrono::seconds;

// The size of each model's gpulet, in percent.
std::map<std::string, int> sizes_in_force(Cluster& cluster) {
  std::map<std::string, int> sizes;
  for (const serve::GpuletStatus& gpulet : cluster.status().gpulets) {
    if (!gpulet.planned) continue;
    for (const schedule::Assignment& one : gpulet.planned->assignments)
      sizes[one.model] = gpulet.planned->size.percent;
  }
  return sizes;
}

InferRequest patient_request(const std::string& model) {
  InferRequest request = byte_request(model, 0);
  request.timeout = seconds(20);
  return request;
}

// The two cannot share a gpulet: a batch of b takes longer than a may wait. The policy gives a a
// fifth of the device; with spare share it has more, until b gets 30 requests/s.
TEST(SpareShareTest, IsGivenBackWhenTheRateOfAnotherModelRises) {
  Cluster cluster({{"a", 1, 25, 5}, {"b", 30, 3000, 1}});
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  const std::map<std::string, int> before = sizes_in_force(cluster);
  ASSERT_EQ(before.at("a") + before.at("b"), 100);

  StreamClient quiet(cluster.client_port());
  StreamClient rising(cluster.client_port());
  std::uint64_t sent = 0;
  std::uint64_t next = 1;
  const auto given_back = [&] { return sizes_in_force(cluster).at("b") > before.at("b"); };
  for (std::uint64_t second = 0; second < 20 && !given_back(); ++second) {
    for (int i = 0; i < 5; ++i) {
      InferRequest request = patient_request("a");
      request.tag = ++sent;
      quiet.send(request);
    }
    next = rising.load(patient_request("b"), 30, seconds(1), next, second, seconds(20));
  }
  EXPECT_TRUE(given_back());
  EXPECT_LT(sizes_in_force(cluster).at("a"), before.at("a"));
  ASSERT_TRUE(quiet.run_until([&] { return quiet.replies().size() == sent; }, seconds(20)));
  for (const StreamClient* client : {&quiet, &rising}) {
    for (const auto& [tag, replies] : client->replies()) {
      ASSERT_EQ(replies.size(), 1U);
      EXPECT_TRUE(replies[0].status.ok()) << replies[0].status.to_string();
    }
  }
}

}  // namespace
}  // namespace gpulet::testing

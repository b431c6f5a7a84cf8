// Spare share is given back to a model that needs it, with real daemons and processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"

namespace gpulet::testing {
namespace {

using std::chrono::milliseconds;

// The share of the model's gpulet; 0 where a reorganisation goes on or several gpulets have it.
int share_of(const serve::FrontendStatus& status, const std::string& model) {
  int share = 0;
  if (status.reorganising) return 0;
  for (const serve::GpuletStatus& gpulet : status.gpulets) {
    if (!gpulet.planned) continue;
    const auto& there = gpulet.planned->assignments;
    if (std::none_of(there.begin(), there.end(),
                     [&model](const auto& one) { return one.model == model; }))
      continue;
    if (share != 0) return 0;
    share = gpulet.planned->size.percent;
  }
  return share;
}

// A batch of "quiet" takes longer than requests of "busy" may wait, so they never share a gpulet.
TEST(SpareShareTest, IsGivenBackWhenAnotherModelNeedsIt) {
  Cluster cluster({{"quiet", 20, 250, 5}, {"busy", 2, 20, 1}});
  cluster.add_backend("n0");
  cluster.wait_until_serving();
  const int quiet_before = share_of(cluster.status(), "quiet");
  const int busy_before = share_of(cluster.status(), "busy");
  ASSERT_GT(quiet_before, 0);
  ASSERT_GT(busy_before, 0);

  StreamClient quiet(cluster.client_port());
  StreamClient busy(cluster.client_port());
  std::uint64_t asked = 0;
  std::uint64_t tag = 0;
  const auto moved = [&] {
    const serve::FrontendStatus now = cluster.status();
    const int share = share_of(now, "quiet");
    return share > 0 && share < quiet_before && share_of(now, "busy") > busy_before;
  };
  bool given_back = false;
  for (int step = 0; step < 100 && !given_back; ++step) {
    const std::uint64_t wanted = ++asked;
    quiet.send(byte_request("quiet", wanted));
    for (int i = 0; i < 50; ++i) {
      busy.send(byte_request("busy", ++tag));
      busy.run_until([] { return false; }, milliseconds(4));
    }
    EXPECT_TRUE(
        quiet.run_until([&] { return quiet.replies().contains(wanted); }, std::chrono::seconds(5)));
    given_back = moved();
  }
  EXPECT_TRUE(given_back);
  for (const auto& [request, replies] : quiet.replies())
    EXPECT_EQ(replies.size(), 1U) << "request " << request;
}

}  // namespace
}  // namespace gpulet::testing

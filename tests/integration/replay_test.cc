// A core that gets the recorded events of a daemon's core has the same effects, without sockets or
// clock.
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <vector>

#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/serve/effects.h"

namespace gpulet::testing {
namespace {

using serve::testing::told;

struct Recorded {
  serve::FrontendEvent event;
  Time time;
  std::vector<std::string> effects;
};

TEST(ReplayTest, ARecordedRunHasTheSameEffects) {
  std::mutex mutex;
  std::vector<Recorded> record;
  frontend::Setup setup;
  Time started;
  {
    Cluster cluster(
        {{"a", 4, 150, 60}, {"b", 3, 200, 40}},
        [&](const serve::FrontendEvent& event, Time time, const serve::FrontendEffects& effects) {
          const std::lock_guard lock(mutex);
          record.push_back({event, time, told(effects)});
        });
    setup = cluster.setup();
    started = cluster.started_at();
    cluster.add_backend("n0");
    cluster.add_backend("n1");
    cluster.wait_until_serving();
    StreamClient client(cluster.client_port());
    const std::uint64_t middle = client.load(byte_request("a", 0), 80, std::chrono::seconds(2), 1,
                                             1, std::chrono::seconds(5));
    client.load(byte_request("b", 0), 50, std::chrono::seconds(1), middle, 2,
                std::chrono::seconds(5));
  }
  ASSERT_GT(record.size(), 200U);

  serve::FrontendCore core(frontend::core_options(setup), setup.catalogue, started);
  std::size_t batches = 0;
  for (std::size_t i = 0; i < record.size(); ++i) {
    serve::FrontendEffects effects;
    core.on(record[i].event, record[i].time, effects);
    ASSERT_EQ(told(effects), record[i].effects) << "at event " << i;
    for (const serve::FrontendEffect& effect : effects) {
      const auto* tell = std::get_if<serve::SendToBackend>(&effect);
      if (tell != nullptr && std::holds_alternative<Batch>(tell->command)) ++batches;
    }
  }
  EXPECT_GT(batches, 50U);
}

}  // namespace
}  // namespace gpulet::testing

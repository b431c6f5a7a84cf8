// Devices and models that are not as their profile says, with real daemons and processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "gpulet/profile/store.h"
#include "gpulet/serve/values/problems.h"
#include "tests/support/cluster/cluster.h"
#include "tests/support/cluster/stream_client.h"
#include "tests/support/serve/world.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::testing {
namespace {

using std::chrono::seconds;

ClusterChanges with_feedback() {
  ClusterChanges changes;
  changes.frontend = [](config::FrontendConfig& config) { config.feedback = true; };
  return changes;
}

// Sends `rate` requests of each model per second until the condition holds. Requests of "heavy"
// are slow one in five times.
bool serve_until(Cluster& cluster, const std::map<std::string, double>& rates, Duration patience,
                 const std::function<bool(const serve::FrontendStatus&)>& condition) {
  constexpr std::uint64_t kSlowInput = 252;
  StreamClient client(cluster.client_port());
  std::uint64_t sent = 0;
  for (Duration waited{}; waited < patience; waited += std::chrono::milliseconds(250)) {
    for (const auto& [model, rate] : rates) {
      for (int i = 0; i < rate / 4; ++i) {
        const bool slow = model == "heavy" && ++sent % 5 == 0;
        client.send(byte_request(model, slow ? 1024 + kSlowInput : 1 + sent % 100));
      }
    }
    client.run_until([] { return false; }, std::chrono::milliseconds(250));
    if (condition(cluster.status())) return true;
  }
  return false;
}

TEST(FeedbackTest, ASlowDeviceIsPlannedAsItIs) {
  const support::TemporaryFolder folder;
  profile::Profile slow = serve::testing::card_profile({{"a", 4 * 1.6}});
  ASSERT_TRUE(profile::write_profile(slow, folder.path()).ok());
  ClusterChanges changes = with_feedback();
  changes.backend = [&folder](config::BackendConfig& config) { config.profiles = folder.path(); };
  Cluster cluster({{"a", 4, 100, 60}}, {}, changes);
  cluster.add_backend("n0", 3);
  cluster.wait_until_serving();
  const auto noticed = [](const serve::FrontendStatus& status) {
    return std::any_of(status.corrections.begin(), status.corrections.end(),
                       [](const auto& one) { return one.factor > 1.4 && one.planned > 1.4; });
  };
  EXPECT_TRUE(serve_until(cluster, {{"a", 60}}, seconds(25), noticed));
}

TEST(FeedbackTest, AModelThatBlocksOthersIsMovedAndNamed) {
  Cluster cluster({{"heavy", 1, 100, 20}, {"a", 2, 60, 30}, {"b", 2, 60, 30}}, {}, with_feedback());
  cluster.add_crashing_backend("n0", 2);
  cluster.wait_until_serving();
  const auto moved = [](const serve::FrontendStatus& status) {
    const auto heavy = std::find_if(status.models.begin(), status.models.end(),
                                    [](const auto& one) { return one.name == "heavy"; });
    if (heavy->disturbs.empty() || status.reorganising) return false;
    return std::none_of(status.gpulets.begin(), status.gpulets.end(),
                        [](const serve::GpuletStatus& gpulet) {
                          if (!gpulet.planned) return false;
                          const auto& models = gpulet.planned->assignments;
                          return models.size() > 1 &&
                                 std::any_of(models.begin(), models.end(),
                                             [](const auto& one) { return one.model == "heavy"; });
                        });
  };
  ASSERT_TRUE(serve_until(cluster, {{"heavy", 20}, {"a", 30}, {"b", 30}}, seconds(25), moved));
  const std::vector<serve::Problem> problems = serve::find_problems(cluster.status());
  EXPECT_TRUE(std::any_of(problems.begin(), problems.end(), [](const serve::Problem& one) {
    return one.cause == serve::ProblemCause::disturbs && one.model == "heavy";
  }));
}

}  // namespace
}  // namespace gpulet::testing

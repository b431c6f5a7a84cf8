#include "tools/cli/parallel_for.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "gpulet/simulate/simulation.h"
#include "tests/support/serve/world.h"

namespace gpulet::tools {
namespace {

TEST(ParallelFor, CallsTheBodyOncePerIndex) {
  for (const unsigned threads : {0U, 1U, 2U, 7U}) {
    std::vector<int> calls(100);
    parallel_for(threads, calls.size(), [&](std::size_t at) { ++calls[at]; });
    EXPECT_EQ(calls, std::vector<int>(100, 1));
  }
  parallel_for(4, 0, [](std::size_t) { FAIL(); });
}

// As in `gpulet simulate --scenarios`, all simulations share the profiles and the policy.
TEST(ParallelFor, SimulationsInParallelEqualThoseInSequence) {
  const profile::Profile card = serve::testing::card_profile({{"small", 3.0}, {"large", 8.0}});
  const auto policy = schedule::make_policy("elastic").value();
  simulate::Knowledge knowledge;
  knowledge.profiles =
      std::make_shared<const profile::ProfileSet>(profile::ProfileSet{{"card", card}});
  knowledge.believed = std::make_shared<const profile::InterferenceSet>();
  knowledge.simulated = simulate::simulated_interference(*knowledge.profiles);
  knowledge.policy = policy.get();
  const auto run = [&](std::size_t number) {
    simulate::SimulationInput scene;
    for (std::uint32_t at = 0; at < 2; ++at) {
      schedule::Device& device = scene.cluster.devices.emplace_back();
      device.key = {"n0", at};
      device.type = "card";
      device.partitioning = "mps";
      device.sizes = {{20}, {40}, {60}, {80}, {100}};
    }
    const double rate = 20 + 10 * static_cast<double>(number);
    scene.demands = {{"small", rate, 100, 16}, {"large", rate / 2, 150, 16}};
    simulate::SimulationOptions options;
    options.seconds = 2;
    const simulate::Outcome outcome = simulate::simulate(knowledge, scene, options).value();
    return std::pair(outcome.models.at(0).served, outcome.models.at(1).served);
  };
  constexpr std::size_t kRuns = 8;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> parallel(kRuns);
  parallel_for(4, kRuns, [&](std::size_t at) { parallel[at] = run(at); });
  for (std::size_t at = 0; at < kRuns; ++at) EXPECT_EQ(parallel[at], run(at));
}

}  // namespace
}  // namespace gpulet::tools

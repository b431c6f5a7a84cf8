// `gpulet schedule` prints the plan that a frontend makes for the same devices, profiles and
// demand.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/planning/pipeline.h"
#include "gpulet/profile/store.h"
#include "gpulet/serve/values/frontend_options.h"
#include "gpulet/simulate/simulation.h"
#include "tests/support/temporary_folder.h"
#include "tests/tools/program_run.h"
#include "tests/verify/made_up_world.h"
#include "tools/report/plan_report.h"

namespace gpulet::tools {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// A world as the files that `gpulet schedule` reads. grown.json has the rates that a frontend plans
// for: its monitor adds some growth. now.json has the rates for which it plans where the devices
// are too few for growth.
struct WorldFiles {
  explicit WorldFiles(const schedule::testing::MadeUpWorld& world) {
    std::map<std::string, json> nodes;
    for (const schedule::Device& device : world.cluster.devices) {
      json& devices = nodes[device.key.node];
      json sizes = json::array();
      for (const Share size : device.sizes) sizes.push_back(size.percent);
      devices.push_back({{"type", device.type}, {"partitioning", "simulated"}, {"sizes", sizes}});
    }
    json cluster = json::array();
    for (const auto& [name, devices] : nodes)
      cluster.push_back({{"name", name}, {"devices", devices}});
    json grown = json::array();
    for (const schedule::ModelDemand& one : world.demands) {
      grown.push_back({{"name", one.name},
                       {"rate", one.rate * kGrowth},
                       {"slo_ms", one.slo_ms},
                       {"max_batch", one.max_batch}});
    }
    json now = grown;
    for (json& model : now) model["rate"] = model["rate"].get<double>() / kGrowth;
    for (const auto& [type, profile] : *world.known)
      EXPECT_TRUE(profile::write_profile(profile, folder.path() / "profiles").ok());
    folder.write("cluster.json", json{{"nodes", cluster}}.dump());
    folder.write("grown.json", json{{"models", grown}}.dump());
    folder.write("now.json", json{{"models", now}}.dump());
  }
  [[nodiscard]] std::string file(const std::string& name) const {
    return (folder.path() / name).string();
  }
  static constexpr double kGrowth = 1 + serve::DemandOptions{}.growth;
  support::TemporaryFolder folder;
};

ProgramResult schedule_of(const WorldFiles& files, const std::string& policy,
                          const std::string& demand) {
  return run_gpulet({"schedule", "--json", "--policy", policy, "--cluster",
                     files.file("cluster.json"), "--profiles", files.file("profiles"), "--demand",
                     files.file(demand)});
}

// The parts of the document that describe the plan.
std::string plan_of(const ordered_json& document) {
  ordered_json gpulets = document.at("gpulets");
  for (ordered_json& gpulet : gpulets) {
    for (ordered_json& one : gpulet.at("assignments")) one.erase("predicted_violation");
  }
  return ordered_json{{"gpulets", gpulets}, {"unserved", document.at("unserved")}}.dump(2);
}

class SamePlan : public ::testing::TestWithParam<int> {};

TEST_P(SamePlan, OnTheCommandLineAndInTheFrontend) {
  const schedule::testing::MadeUpWorld world =
      schedule::testing::made_up_world(static_cast<std::uint64_t>(GetParam()), {});
  const WorldFiles files(world);
  std::vector<std::string> types;
  for (const auto& [type, profile] : *world.known) types.push_back(type);
  const auto interference = std::make_shared<const profile::InterferenceSet>(
      planning::choose_interference(*world.known, types, std::nullopt).value().models);
  for (const std::string name : {"auto", "elastic", "sbp"}) {
    ProgramResult printed = schedule_of(files, name, "grown.json");
    ASSERT_LE(printed.exit_code, 1) << printed.errors;
    if (printed.exit_code == 1) {
      ProgramResult now = schedule_of(files, name, "now.json");
      if (now.exit_code == 0) printed = std::move(now);
    }

    const auto policy = schedule::make_policy(name).value();
    simulate::Knowledge knowledge;
    knowledge.profiles = world.known;
    knowledge.simulated = interference;
    knowledge.believed = interference;
    knowledge.policy = policy.get();
    simulate::SimulationOptions options;
    options.seconds = 0.01;
    const auto outcome = simulate::simulate(knowledge, {world.cluster, world.demands, {}}, options);
    ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
    TimedPlan made;
    made.plan = outcome.value().first_plan;
    EXPECT_EQ(plan_of(ordered_json::parse(printed.output)), plan_of(plan_json(made))) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, SamePlan, ::testing::Range(1, 41));

}  // namespace
}  // namespace gpulet::tools

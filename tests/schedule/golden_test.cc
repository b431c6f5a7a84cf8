// Compares the plans of a few small cases with those in tests/schedule/golden. The environment
// variable GPULET_UPDATE_GOLDEN=1 rewrites them.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/schedule/worked.h"

namespace gpulet::schedule {
namespace {

using Json = nlohmann::ordered_json;
using testing::Worked;

const std::filesystem::path kFolder =
    std::filesystem::path(GPULET_SOURCE_DIR) / "tests/schedule/golden";

// {"devices":[{"node","type","count","sizes","max_partitions","memory_mb"}],
//  "types":{type:[{"model","fixed_ms","per_request_ms"}]},"demands":[{"model","rate","slo_ms"}]}
Worked read_case(const Json& document) {
  Worked worked;
  for (const auto& [type, models] : document.at("types").items()) {
    std::vector<testing::ModelLatency> latencies;
    for (const Json& model : models) {
      latencies.push_back({model.at("model"), model.at("fixed_ms"), model.at("per_request_ms"), 32,
                           model.value("memory_mb", 0.0)});
    }
    testing::add_profile(worked, type, latencies);
  }
  for (const Json& described : document.at("devices")) {
    const std::size_t before = worked.input.cluster.devices.size();
    testing::add_devices(worked, described.at("node"), described.at("type"), described.at("count"));
    for (std::size_t index = before; index < worked.input.cluster.devices.size(); ++index) {
      Device& device = worked.input.cluster.devices[index];
      device.max_partitions = described.value("max_partitions", 2U);
      device.memory_mb = described.value("memory_mb", 0.0);
    }
  }
  for (const Json& demand : document.at("demands")) {
    worked.input.demands.push_back(
        {demand.at("model"), demand.at("rate"), demand.at("slo_ms"), 32});
  }
  return worked;
}

// Rounds to six digits, to ignore rounding errors.
double six_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return std::atof(text);
}

Json plan_to_json(const Plan& plan) {
  Json gpulets = Json::array();
  for (const PlannedGpulet& gpulet : plan.gpulets) {
    Json assignments = Json::array();
    for (const Assignment& one : gpulet.assignments) {
      assignments.push_back({{"model", one.model},
                             {"rate", six_digits(one.rate)},
                             {"batch", one.batch},
                             {"latency_ms", six_digits(one.latency_ms)}});
    }
    gpulets.push_back({{"device", gpulet.device.node + "/" + std::to_string(gpulet.device.device)},
                       {"size", gpulet.size.percent},
                       {"duty_cycle_ms", six_digits(gpulet.duty_cycle_ms)},
                       {"assignments", assignments}});
  }
  Json unserved = Json::array();
  for (const Unserved& one : plan.unserved) {
    unserved.push_back(
        {{"model", one.model}, {"rate", six_digits(one.rate)}, {"reason", one.reason}});
  }
  return {{"gpulets", gpulets}, {"unserved", unserved}};
}

TEST(Golden, PlansAreTheOnesReviewed) {
  const bool update = std::getenv("GPULET_UPDATE_GOLDEN") != nullptr;
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".in.json")) continue;
    ++cases;
    std::ifstream in(entry.path());
    const Worked worked = read_case(Json::parse(in));
    ASSERT_EQ(validate(worked.input), Status()) << name;
    Json plans;
    for (const std::string_view policy : testing::share_policies()) {
      plans[std::string(policy)] = plan_to_json(testing::policy(policy)->plan(worked.input));
    }
    const std::filesystem::path expected =
        kFolder / (name.substr(0, name.size() - 8) + ".out.json");
    if (update) {
      std::ofstream(expected) << plans.dump(1) << '\n';
    } else {
      std::ifstream out(expected);
      const Json reviewed = Json::parse(out);
      Json expected_plans;  // of the policies that this program has
      for (const auto& [policy, plan] : reviewed.items()) {
        if (plans.contains(policy)) expected_plans[policy] = plan;
      }
      EXPECT_EQ(plans.dump(1), expected_plans.dump(1)) << name;
    }
  }
  EXPECT_GT(cases, 0);
}

}  // namespace
}  // namespace gpulet::schedule

#include "gpulet/schedule/policy.h"

#include <gtest/gtest.h>

#include <limits>

#include "gpulet/config/cluster_config.h"
#include "tests/schedule/worked.h"
#include "tests/support/names.h"
#include "tests/support/source_file.h"

namespace gpulet::schedule {
namespace {

using support::names;
using testing::Worked;

struct RefusedCase {
  std::string what;
  void (*change)(PlanInput& input);
  std::string value;  // that the message names
};

class ValidateRefuses : public ::testing::TestWithParam<RefusedCase> {};

Worked valid() {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1}});
  testing::add_devices(worked, "n0", "gpu", 2);
  worked.input.demands = {
      {"a", 10, 40, 8}, {"never measured", 10, 40, 8}, {"unreachable", 10, 0, 8}};
  return worked;
}

TEST(Validate, AcceptsModelsThatNoDeviceCanServe) { EXPECT_EQ(validate(valid().input), Status()); }

TEST(Validate, AcceptsAnEmptyClusterWithoutDemand) {
  Worked worked;
  EXPECT_EQ(validate(worked.input), Status());
}

TEST_P(ValidateRefuses, Input) {
  Worked worked = valid();
  GetParam().change(worked.input);
  const Status status = validate(worked.input);
  EXPECT_EQ(status.code(), StatusCode::invalid);
  EXPECT_TRUE(names(status, GetParam().value));
}

using Limits = std::numeric_limits<double>;

INSTANTIATE_TEST_SUITE_P(
    Table, ValidateRefuses,
    ::testing::Values(
        RefusedCase{"NoProfiles", [](PlanInput& in) { in.profiles = nullptr; }, "profiles"},
        RefusedCase{"NegativeRate", [](PlanInput& in) { in.demands[0].rate = -3; }, "-3"},
        RefusedCase{"RateNaN", [](PlanInput& in) { in.demands[0].rate = Limits::quiet_NaN(); },
                    "nan"},
        RefusedCase{"InfiniteRate", [](PlanInput& in) { in.demands[0].rate = Limits::infinity(); },
                    "inf"},
        RefusedCase{"NegativeSlo", [](PlanInput& in) { in.demands[0].slo_ms = -1; }, "slo_ms"},
        RefusedCase{"InfiniteSlo", [](PlanInput& in) { in.demands[0].slo_ms = Limits::infinity(); },
                    "slo_ms"},
        RefusedCase{"NoBatch", [](PlanInput& in) { in.demands[0].max_batch = 0; }, "max_batch"},
        RefusedCase{"NoName", [](PlanInput& in) { in.demands[0].name.clear(); }, "name"},
        RefusedCase{"DemandTwice", [](PlanInput& in) { in.demands[1].name = "a"; }, "'a'"},
        RefusedCase{"UnknownType", [](PlanInput& in) { in.cluster.devices[1].type = "tpu"; },
                    "'tpu'"},
        RefusedCase{"NoSizes", [](PlanInput& in) { in.cluster.devices[0].sizes.clear(); }, "sizes"},
        RefusedCase{"SizeOfNothing",
                    [](PlanInput& in) {
                      in.cluster.devices[0].sizes = {{0}, {50}};
                    },
                    "0"},
        RefusedCase{"SizeAboveAll", [](PlanInput& in) { in.cluster.devices[0].sizes = {{101}}; },
                    "101"},
        RefusedCase{"UnsortedSizes",
                    [](PlanInput& in) {
                      in.cluster.devices[0].sizes = {{50}, {20}};
                    },
                    "20"},
        RefusedCase{"RepeatedSizes",
                    [](PlanInput& in) {
                      in.cluster.devices[0].sizes = {{50}, {50}};
                    },
                    "50"},
        RefusedCase{"NoPartition", [](PlanInput& in) { in.cluster.devices[0].max_partitions = 0; },
                    "max_partitions"},
        RefusedCase{"MemoryNaN",
                    [](PlanInput& in) { in.cluster.devices[0].memory_mb = Limits::quiet_NaN(); },
                    "memory_mb"},
        RefusedCase{"DeviceTwice", [](PlanInput& in) { in.cluster.devices[1].key.device = 0; },
                    "n0/0"},
        RefusedCase{"MarginBelowOne", [](PlanInput& in) { in.options.margin = 0.9; }, "margin"},
        RefusedCase{"MarginNaN", [](PlanInput& in) { in.options.margin = Limits::quiet_NaN(); },
                    "margin"}),
    [](const auto& instance) { return instance.param.what; });

TEST(MakePolicy, KnowsItsNames) {
  for (const std::string_view name : policy_names()) EXPECT_EQ(testing::policy(name)->name(), name);
}

TEST(MakePolicy, SaysWhichNamesThereAre) {
  const Status status = make_policy("best").status();
  EXPECT_EQ(status.code(), StatusCode::not_found);
  EXPECT_TRUE(names(status, "'best'"));
  for (const std::string_view name : policy_names()) {
    EXPECT_TRUE(names(status, name));
  }
}

TEST(PolicyTable, HasEveryPolicyInTheDocumentation) {
  const std::string pages =
      support::source_file("docs/scheduling.md") + support::source_file("docs/mig.md");
  for (const std::string_view name : testing::policy_names())
    EXPECT_TRUE(support::holds(pages, "`" + std::string(name) + "`"));
}

TEST(FromConfig, NumbersDevicesWithinTheirNode) {
  config::DeviceConfig large;
  large.type = "large";
  large.count = 2;
  large.partitioning = "mps";
  large.sizes = {{50}, {100}};
  large.max_partitions = 3;
  large.memory_mb = 16000;
  large.cores = {0, 1, 2, 3, 4, 5};
  config::DeviceConfig small = large;
  small.type = "small";
  small.count = 1;
  small.geometry = partition::MigGeometry::of("a30").value();
  small.processes_per_instance = 2;
  small.core_count = 1.5;
  const Cluster cluster = cluster_from({{"n1", {large, small}}, {"n0", {small}}});
  ASSERT_EQ(cluster.devices.size(), 4U);
  EXPECT_EQ(cluster.devices[0].key, (DeviceKey{"n0", 0}));
  EXPECT_EQ(cluster.devices[0].type, "small");
  EXPECT_EQ(cluster.devices[0].mig, small.geometry);
  EXPECT_EQ(cluster.devices[0].processes_per_instance, 2U);
  EXPECT_EQ(cluster.devices[0].cores, 1.5);
  EXPECT_FALSE(cluster.devices[2].mig);
  EXPECT_EQ(cluster.devices[2].cores, 3);
  EXPECT_EQ(cluster.devices[2].key, (DeviceKey{"n1", 1}));
  EXPECT_EQ(cluster.devices[2].type, "large");
  EXPECT_EQ(cluster.devices[2].sizes, large.sizes);
  EXPECT_EQ(cluster.devices[2].max_partitions, 3U);
  EXPECT_EQ(cluster.devices[2].memory_mb, 16000);
  EXPECT_EQ(cluster.devices[3].key, (DeviceKey{"n1", 2}));
  EXPECT_EQ(cluster.devices[3].type, "small");
}

TEST(FromConfig, CopiesDemands) {
  const std::vector<ModelDemand> demands = demands_from({{"net", 12.5, 40, 16}});
  ASSERT_EQ(demands.size(), 1U);
  EXPECT_EQ(demands[0], (ModelDemand{"net", 12.5, 40, 16}));
}

}  // namespace
}  // namespace gpulet::schedule

#include <gtest/gtest.h>

#include <limits>

#include "tests/schedule/worked.h"

namespace gpulet::schedule {
namespace {

using testing::Worked;

struct RefusedCase {
  std::string what;
  void (*change)(PlanInput& input);
  std::string says;
};

class ValidateRefuses : public ::testing::TestWithParam<RefusedCase> {};

Worked valid() {
  Worked worked;
  testing::add_profile(worked, "gpu", {{"a", 1, 1}});
  testing::add_devices(worked, "n0", "gpu", 2);
  worked.input.demands = {{"a", 10, 40, 8}, {"never measured", 10, 40, 8}, {"hopeless", 10, 0, 8}};
  return worked;
}

TEST(Validate, AcceptsModelsThatNobodyCanServe) { EXPECT_EQ(validate(valid().input), Status()); }

TEST(Validate, AcceptsNothingToDoAndNothingToDoItWith) {
  Worked worked;
  EXPECT_EQ(validate(worked.input), Status());
}

TEST_P(ValidateRefuses, Input) {
  Worked worked = valid();
  GetParam().change(worked.input);
  const Status status = validate(worked.input);
  EXPECT_EQ(status.code(), StatusCode::invalid);
  EXPECT_NE(status.message().find(GetParam().says), std::string::npos) << status.message();
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

INSTANTIATE_TEST_SUITE_P(
    Table, ValidateRefuses,
    ::testing::Values(
        RefusedCase{"NoProfiles", [](PlanInput& in) { in.profiles = nullptr; }, "needs profiles"},
        RefusedCase{"NegativeRate", [](PlanInput& in) { in.demands[0].rate = -3; },
                    "'a': rate must be"},
        RefusedCase{"RateNaN", [](PlanInput& in) { in.demands[0].rate = kNaN; }, "was nan"},
        RefusedCase{"InfiniteRate", [](PlanInput& in) { in.demands[0].rate = kInfinity; },
                    "was inf"},
        RefusedCase{"NegativeSlo", [](PlanInput& in) { in.demands[0].slo_ms = -1; },
                    "slo_ms must be"},
        RefusedCase{"InfiniteSlo", [](PlanInput& in) { in.demands[0].slo_ms = kInfinity; },
                    "slo_ms must be"},
        RefusedCase{"NoBatch", [](PlanInput& in) { in.demands[0].max_batch = 0; },
                    "max_batch must be"},
        RefusedCase{"NoName", [](PlanInput& in) { in.demands[0].name.clear(); }, "no model name"},
        RefusedCase{"DemandTwice", [](PlanInput& in) { in.demands[1].name = "a"; },
                    "names 'a' twice"},
        RefusedCase{"UnknownType", [](PlanInput& in) { in.cluster.devices[1].type = "tpu"; },
                    "device n0/1: there is no profile of device type 'tpu'; there is gpu"},
        RefusedCase{"NoSizes", [](PlanInput& in) { in.cluster.devices[0].sizes.clear(); },
                    "lists no size"},
        RefusedCase{"SizeOfNothing",
                    [](PlanInput& in) {
                      in.cluster.devices[0].sizes = {{0}, {50}};
                    },
                    "one was 0"},
        RefusedCase{"SizeAboveAll", [](PlanInput& in) { in.cluster.devices[0].sizes = {{101}}; },
                    "one was 101"},
        RefusedCase{"UnsortedSizes",
                    [](PlanInput& in) {
                      in.cluster.devices[0].sizes = {{50}, {20}};
                    },
                    "20 stands after 50"},
        RefusedCase{"RepeatedSizes",
                    [](PlanInput& in) {
                      in.cluster.devices[0].sizes = {{50}, {50}};
                    },
                    "50 stands after 50"},
        RefusedCase{"NoPartition", [](PlanInput& in) { in.cluster.devices[0].max_partitions = 0; },
                    "max_partitions must be"},
        RefusedCase{"MemoryNaN", [](PlanInput& in) { in.cluster.devices[0].memory_mb = kNaN; },
                    "memory_mb must be"},
        RefusedCase{"DeviceTwice", [](PlanInput& in) { in.cluster.devices[1].key.device = 0; },
                    "has device n0/0 twice"},
        RefusedCase{"MarginBelowOne", [](PlanInput& in) { in.options.margin = 0.9; },
                    "margin must be"},
        RefusedCase{"MarginNaN", [](PlanInput& in) { in.options.margin = kNaN; },
                    "margin must be"}),
    [](const auto& instance) { return instance.param.what; });

TEST(MakePolicy, KnowsItsNames) {
  for (const std::string_view name : policy_names()) EXPECT_EQ(testing::policy(name)->name(), name);
}

TEST(MakePolicy, SaysWhichNamesThereAre) {
  const Status status = make_policy("best").status();
  EXPECT_EQ(status.code(), StatusCode::not_found);
  EXPECT_NE(status.message().find("'best': choose one of "), std::string::npos);
  for (const std::string_view name : policy_names()) {
    EXPECT_NE(status.message().find(name), std::string::npos) << status.message();
  }
}

}  // namespace
}  // namespace gpulet::schedule

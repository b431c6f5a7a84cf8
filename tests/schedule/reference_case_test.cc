// How much of the reference case (reference_case.h) every policy schedules without interference.
#include "tests/schedule/reference_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace gpulet::schedule {
namespace {

using testing::policy;
using testing::Worked;

class ReferenceCase : public ::testing::Test {
 protected:
  void SetUp() override { worked_ = testing::reference_case(); }

  // Whether each scenario is schedulable. Checks every plan.
  std::vector<bool> schedulable(std::string_view name, double scale) {
    const auto planner = policy(name);
    std::vector<bool> rows;
    for (int scenario = 1; scenario < testing::kScenarios; ++scenario) {
      testing::set_scenario(worked_, scenario, scale);
      const Plan plan = planner->plan(worked_.input);
      EXPECT_EQ(testing::violations(plan, worked_.input), "") << name << " scenario " << scenario;
      rows.push_back(plan.schedulable());
    }
    return rows;
  }

  // The number of schedulable scenarios; also records the pairs that are not monotonic in the load.
  std::ptrdiff_t count(std::string_view name, double scale) {
    const std::vector<bool> rows = schedulable(name, scale);
    const std::ptrdiff_t scheduled = std::count(rows.begin(), rows.end(), true);
    const std::string what = std::string(name) + "_" + std::to_string(static_cast<int>(scale));
    RecordProperty(what, std::to_string(scheduled));
    RecordProperty(what + "_non_monotonic", std::to_string(testing::count_non_monotonic(rows)));
    return scheduled;
  }

  Worked worked_;
};

// An independent sketch of squishy bin packing schedules 640. With every duty cycle tried it is
// 647, with only the smaller one of each pair 616.
TEST_F(ReferenceCase, SbpSchedulesWhatAnIndependentSketchDoesAndLittleMore) {
  const std::ptrdiff_t scheduled = count("sbp", 4);
  EXPECT_GE(scheduled, 640);
  EXPECT_LE(scheduled, 660);
}

// The same sketch schedules 944 on halves, and so does this policy: on halves most rates are rests,
// and the duty cycles that the sketch does not try make no difference.
TEST_F(ReferenceCase, SplitSbpSchedulesWhatAnIndependentSketchDoes) {
  const std::ptrdiff_t scheduled = count("sbp-split", 4);
  EXPECT_GE(scheduled, 940);
  EXPECT_LE(scheduled, 950);
}

TEST_F(ReferenceCase, ElasticSchedulesWhatSbpDoes) {
  for (const double scale : {3.0, 4.0, 5.0}) {
    const std::vector<bool> whole = schedulable("sbp", scale);
    const std::vector<bool> divided = schedulable("elastic", scale);
    for (std::size_t row = 0; row < whole.size(); ++row) {
      EXPECT_TRUE(divided[row] || !whole[row]) << "scale " << scale << ", scenario " << row + 1;
    }
  }
}

// The algorithm as the gpulet paper prints it shares no code with ideal's search. `elastic` does:
// it runs a shorter form of it, so a comparison of `elastic` with `ideal` would prove little.
TEST_F(ReferenceCase, ThePublishedAlgorithmSchedulesPartOfWhatTheIdealDoes) {
  for (const double scale : {3.0, 4.0, 5.0}) {
    const std::vector<bool> published = schedulable("elastic-one-pass", scale);
    const std::vector<bool> ideal = schedulable("ideal", scale);
    std::ptrdiff_t more = 0;
    for (std::size_t row = 0; row < ideal.size(); ++row) {
      EXPECT_TRUE(ideal[row] || !published[row]) << "scale " << scale << ", scenario " << row + 1;
      more += ideal[row] && !published[row] ? 1 : 0;
    }
    RecordProperty("more_than_published_" + std::to_string(static_cast<int>(scale)),
                   std::to_string(more));
    EXPECT_LT(more, static_cast<std::ptrdiff_t>(ideal.size()) / 4) << "scale " << scale;
  }
}

// Temporal or spatial sharing alone schedules less: figures 13 and 16.
TEST_F(ReferenceCase, ElasticSchedulesMoreThanTheBaselines) {
  for (const double scale : {4.0, 5.0}) {
    const std::ptrdiff_t elastic = count("elastic", scale);
    for (const char* name : {"sbp", "sbp-split", "greedy-best-fit", "guided-self-tuning",
                             "elastic-preprint", "elastic-one-pass"}) {
      EXPECT_GT(elastic, count(name, scale)) << name << " at scale " << scale;
    }
  }
}

class ReferenceCaseWith : public ReferenceCase,
                          public ::testing::WithParamInterface<profile::InterferenceKind> {};

// Whole devices are among its choices, and a model alone on a device is not slowed down.
TEST_P(ReferenceCaseWith, ElasticSchedulesNoLessThanSbpDoes) {
  if (IsSkipped()) return;
  worked_ = testing::reference_case(GetParam());
  EXPECT_GE(count("elastic", 3.3), count("sbp", 3.3));
}

INSTANTIATE_TEST_SUITE_P(Interference, ReferenceCaseWith,
                         ::testing::Values(profile::InterferenceKind::linear,
                                           profile::InterferenceKind::learned),
                         [](const auto& instance) {
                           return std::string(profile::to_string(instance.param));
                         });

}  // namespace
}  // namespace gpulet::schedule

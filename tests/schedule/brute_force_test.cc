// Compares the policies with an exhaustive search that shares no code with them: every division of
// the devices, every assignment of whole rates to gpulets, and the rules of docs/scheduling.md.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/schedule/worked.h"

namespace gpulet::schedule {
namespace {

using testing::ModelLatency;
using testing::policy;
using testing::Worked;

constexpr std::array<std::array<int, 2>, 4> kLayouts{{{100, 0}, {80, 20}, {60, 40}, {50, 50}}};

struct SmallCase {
  std::vector<ModelLatency> models;
  std::vector<ModelDemand> demands;
  std::uint32_t devices = 1;

  [[nodiscard]] Worked worked() const {
    Worked made;
    testing::add_profile(made, "gpu", models);
    testing::add_devices(made, "n0", "gpu", devices);
    made.input.demands = demands;
    return made;
  }
};

double latency_ms(const ModelLatency& model, std::uint32_t batch, int percent) {
  return (model.fixed_ms + model.per_request_ms * batch) * 100 / percent;
}

// Whether a gpulet of that size serves the whole rates of the models: the shortest cycle, found by
// iteration from 0.
bool holds(const SmallCase& one, const std::vector<std::size_t>& models, int percent) {
  constexpr double kSlack = 1e-9;
  double cycle_ms = 0;
  while (true) {
    double round_ms = 0;
    for (const std::size_t index : models) {
      const ModelDemand& demand = one.demands[index];
      const double requests = std::ceil(demand.rate * cycle_ms / 1000 - kSlack);
      if (requests > one.models[index].largest) return false;
      const auto batch = std::max(1U, static_cast<std::uint32_t>(requests));
      const double ms = latency_ms(one.models[index], batch, percent);
      if (cycle_ms + ms > demand.slo_ms + kSlack) return false;
      round_ms += ms;
    }
    if (round_ms <= cycle_ms + kSlack) return true;
    cycle_ms = round_ms;
  }
}

// Sizes of the gpulets of all devices, with their models.
struct DividedDevices {
  std::vector<int> percents;
  std::vector<std::vector<std::size_t>> models;
};

bool any_assignment(const SmallCase& one, DividedDevices& division, std::size_t model) {
  if (model == one.models.size()) return true;
  for (std::size_t gpulet = 0; gpulet < division.percents.size(); ++gpulet) {
    division.models[gpulet].push_back(model);
    const bool serves = holds(one, division.models[gpulet], division.percents[gpulet]) &&
                        any_assignment(one, division, model + 1);
    if (serves) return true;
    division.models[gpulet].pop_back();
  }
  return false;
}

bool any_division(const SmallCase& one, const std::vector<int>& percents, std::uint32_t devices) {
  if (devices == 0) {
    DividedDevices division{percents, std::vector<std::vector<std::size_t>>(percents.size())};
    return any_assignment(one, division, 0);
  }
  return std::any_of(kLayouts.begin(), kLayouts.end(), [&](const std::array<int, 2>& layout) {
    std::vector<int> more = percents;
    for (const int percent : layout) {
      if (percent > 0) more.push_back(percent);
    }
    return any_division(one, more, devices - 1);
  });
}

bool brute_force_serves(const SmallCase& one) { return any_division(one, {}, one.devices); }

// Demands near the limit of the devices: a fifth to all of what a whole device serves of a model.
SmallCase any_case() {
  SmallCase one;
  one.devices = *rc::gen::inRange(1U, 3U);
  const int count = *rc::gen::inRange(1, 5);
  for (int index = 0; index < count; ++index) {
    ModelLatency model{std::string(1, static_cast<char>('a' + index))};
    model.fixed_ms = *rc::gen::inRange(0, 40) * 0.25;
    model.per_request_ms = *rc::gen::inRange(1, 20) * 0.1;
    const double slo_ms = *rc::gen::inRange(2, 12) * latency_ms(model, 8, 100) / 2;
    double most = 0;
    for (std::uint32_t batch = 1; batch <= model.largest; ++batch) {
      const double ms = latency_ms(model, batch, 100);
      if (2 * ms <= slo_ms) most = std::max(most, batch / ms * 1000);
    }
    const double rate = std::max(1.0, most * *rc::gen::inRange(2, 11) / 10);
    one.models.push_back(model);
    one.demands.push_back({model.name, rate, slo_ms, model.largest});
  }
  return one;
}

TEST(BruteForce, AgreesWithTwoCasesThatAreWorkedByHand) {
  // 10 requests take 20 ms on the whole device: 500 a second with an SLO of 40 ms.
  SmallCase one{{{"a", 10, 1}}, {{"a", 500, 40, 32}}, 1};
  EXPECT_TRUE(brute_force_serves(one));
  one.demands[0].rate = 510;
  EXPECT_FALSE(brute_force_serves(one));
  // Each takes the half that it needs, and none leaves time for the other.
  SmallCase two{{{"a", 5, 0.5}, {"b", 5, 0.5}}, {{"a", 500, 40, 32}, {"b", 500, 40, 32}}, 1};
  EXPECT_TRUE(brute_force_serves(two));
  two.models[0].fixed_ms = two.models[1].fixed_ms = 10;
  EXPECT_FALSE(brute_force_serves(two));
}

// A plan may divide a rate, so a policy may schedule more.
RC_GTEST_PROP(BruteForce, IdealSchedulesWhateverItDoes, ()) {
  const SmallCase one = any_case();
  const bool serves = brute_force_serves(one);
  RC_CLASSIFY(serves, "schedulable");
  if (!serves) return;
  const Worked worked = one.worked();
  const Plan plan = policy("ideal")->plan(worked.input);
  RC_LOG() << testing::violations(plan, worked.input);
  RC_ASSERT(plan.schedulable());
}

RC_GTEST_PROP(BruteForce, CoverSchedulesWhateverItDoes, ()) {
  const SmallCase one = any_case();
  if (!brute_force_serves(one)) return;
  const Worked worked = one.worked();
  RC_ASSERT(policy("cover")->plan(worked.input).schedulable());
}

RC_GTEST_PROP(BruteForce, ElasticSchedulesWhateverItDoes, ()) {
  const SmallCase one = any_case();
  if (!brute_force_serves(one)) return;
  const Worked worked = one.worked();
  RC_ASSERT(policy("elastic")->plan(worked.input).schedulable());
}

}  // namespace
}  // namespace gpulet::schedule

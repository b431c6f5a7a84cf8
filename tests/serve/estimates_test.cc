// Models without a profile, in virtual time: they are probed, served with estimated latencies that
// are near the real ones, and never hold up others.
#include "serve/adapt/estimates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "tests/support/serve/traffic.h"

namespace gpulet::serve::estimates_test {
namespace {

using testing::at_s;
using testing::byte_model;
using testing::card_profile;
using testing::load;
using testing::outcome;
using testing::World;

// What a batch of the model "new" takes on the devices.
constexpr double kRealBaseMs = 6;
double real_ms(std::uint32_t batch, Share size) {
  return kRealBaseMs * (0.5 + 0.5 * batch) * 100 / size.percent;
}

FrontendOptions estimating() {
  FrontendOptions options;
  options.estimates = true;
  options.policy = "elastic";
  return options;
}

// The devices run a, b and new; the frontends' profile has a and b.
struct Site {
  explicit Site(FrontendOptions options = estimating(), std::size_t frontends = 1)
      : world(options, models(), card_profile({{"a", 4}, {"b", 20}, {"new", kRealBaseMs}})) {
    for (std::uint64_t other = 1; other < frontends; ++other) {
      options.run = other + 1;
      world.cluster().add_frontend(options);
    }
    for (std::size_t one = 0; one < frontends; ++one)
      set_profile(card_profile({{"a", 4}, {"b", 20}}), one);
    world.add_backend("n0", 1);
    world.add_backend("n1", 1);
  }
  static std::vector<ServedModel> models() {
    return {byte_model("a", 100, 60), byte_model("new", 100, 60)};
  }
  void set_profile(const profile::Profile& profile, std::size_t frontend = 0) {
    CatalogueChanged change;
    change.catalogue.models = models();
    change.catalogue.profiles =
        std::make_shared<const profile::ProfileSet>(profile::ProfileSet{{profile.name, profile}});
    world.cluster().inject(std::move(change), frontend);
  }
  FrontendStatus status(std::size_t frontend = 0) {
    return world.cluster().frontend(frontend).status(world.now());
  }
  // The largest relative error of the planned latencies of "new", without margins.
  double error_of_plan() {
    double worst = 0;
    for (const GpuletStatus& one : status().gpulets) {
      if (!one.planned) continue;
      for (const schedule::Assignment& part : one.planned->assignments) {
        if (part.model != "new") continue;
        const double planned_ms = part.latency_ms / schedule::kDefaultMargin;
        worst = std::max(worst, std::abs(planned_ms / real_ms(part.batch, one.gpulet.size) - 1));
      }
    }
    return worst;
  }

  World world;
};

TEST(Estimates, AModelWithoutAProfileServesAfterItsProbes) {
  Site site;
  const std::uint64_t last = load(site.world, "new", 50, 8, 60, 1, 1);
  site.world.run_until(at_s(62));
  EXPECT_EQ(site.world.model("new").state, ModelState::ready);
  const FrontendStatus status = site.status();
  ASSERT_EQ(status.estimates.size(), 1U);
  EXPECT_EQ(status.estimates[0].model, "new");
  EXPECT_EQ(status.estimates[0].device_type, "card");
  EXPECT_EQ(status.estimates[0].nearest, "a");
  EXPECT_GE(status.estimates[0].probes, 2U);
  EXPECT_TRUE(status.schedulable);
  EXPECT_LT(site.error_of_plan(), 0.4);
  EXPECT_GT(outcome(site.world, 1, last).good, 0.98 * static_cast<double>(last - 1));
}

TEST(Estimates, TheFirstRequestIsAnsweredSoon) {
  Site site;
  site.world.request_at(at_s(0.1), "new", 1, std::chrono::seconds(15));
  site.world.run_until(at_s(15));
  EXPECT_EQ(outcome(site.world, 1, 2).good, 1U);
}

TEST(Estimates, OtherModelsServeMeanwhile) {
  Site site;
  const std::uint64_t last = load(site.world, "a", 50, 4, 30, 1, 1);
  site.world.run_until(at_s(32));
  EXPECT_GT(outcome(site.world, 1, last).good, 0.98 * static_cast<double>(last - 1));
}

TEST(Estimates, WithoutThemAModelWithoutAProfileIsNotServed) {
  FrontendOptions options = estimating();
  options.estimates = false;
  Site site(options);
  site.world.run_until(at_s(20));
  EXPECT_EQ(site.world.model("new").state, ModelState::unavailable);
  EXPECT_TRUE(site.status().estimates.empty());
}

TEST(Estimates, AMeasurementReplacesTheEstimate) {
  Site site;
  site.world.run_until(at_s(20));
  ASSERT_FALSE(site.status().estimates.empty());
  site.set_profile(card_profile({{"a", 4}, {"b", 20}, {"new", kRealBaseMs}}));
  site.world.run_until(at_s(40));
  EXPECT_TRUE(site.status().estimates.empty());
  EXPECT_EQ(site.world.model("new").state, ModelState::ready);
  EXPECT_LT(site.error_of_plan(), 0.01);
}

// From now on, results of the model's batches are changed on their way.
void change_results(World& world, const std::function<void(BatchResult&)>& change) {
  world.cluster().filter_messages([change](const std::string&, BackendMessage& message) {
    if (auto* const result = std::get_if<BatchResult>(&message)) change(*result);
    return true;
  });
}

// The model is refused with a reason, and not tried again and again.
void expect_refused(Site& site) {
  site.world.run_until(at_s(25));
  EXPECT_EQ(site.world.model("new").state, ModelState::unavailable);
  EXPECT_FALSE(site.world.model("new").reason.empty());
  EXPECT_EQ(site.world.model("a").state, ModelState::ready);
  EXPECT_LT(site.world.plans().size(), 12U);
}

TEST(Estimates, ADurationThatCannotBeTrueIsRefused) {
  for (const Duration reported : {Duration{}, Duration(-1), Duration(std::chrono::hours(1))}) {
    Site site;
    change_results(site.world, [reported](BatchResult& result) { result.executed = reported; });
    expect_refused(site);
  }
}

TEST(Estimates, OutputsOfAnotherSizeAreRefused) {
  Site site;
  change_results(site.world, [](BatchResult& result) {
    result.outputs = Bytes::own(std::vector<std::byte>(result.outputs.size() + 1));
  });
  expect_refused(site);
}

TEST(Estimates, AModelWhoseProbeFailsIsRefused) {
  Site site;
  change_results(site.world, [](BatchResult& result) {
    result.status = {StatusCode::invalid, "cannot compute this input"};
    result.cause = FailureCause::input;
  });
  expect_refused(site);
}

TEST(Estimates, AModelWhoseProbeCrashesItsProcessIsRefused) {
  Site site;
  site.world.crash_on("new", std::byte{0}, 11);
  expect_refused(site);
}

TEST(Estimates, ANodeThatIsLostWhileItProbesIsNoFaultOfTheModel) {
  Site site;
  bool killed = false;
  site.world.cluster().filter_messages([&killed](const std::string&, BackendMessage& message) {
    if (std::holds_alternative<BatchResult>(message)) killed = true;
    return !killed;  // the first probe's result and all after it are lost
  });
  for (double time_s = 0.1; time_s < 10 && !killed; time_s += 0.1)
    site.world.run_until(at_s(time_s));
  ASSERT_TRUE(killed);
  site.world.cluster().filter_messages(nullptr);
  site.world.kill_backend("n0");
  site.world.kill_backend("n1");
  site.world.add_backend("n2", 1);
  site.world.run_until(site.world.now() + std::chrono::seconds(20));
  EXPECT_EQ(site.world.model("new").state, ModelState::ready);
}

TEST(Estimates, TheNextLeaderGoesOnWithWhatThePlanSays) {
  FrontendOptions options = estimating();
  options.clustered = true;
  Site site(options, 2);
  site.world.cluster().inject(LeadershipWon{{1}}, 0);
  site.world.cluster().inject(LeadershipLost{"f0", "host:7000"}, 1);
  site.world.run_until(at_s(20));
  ASSERT_EQ(site.status().estimates.size(), 1U);
  std::set<GpuletId> before;
  for (const GpuletStatus& one : site.status().gpulets) before.insert(one.id);
  site.world.cluster().kill_frontend(0);
  site.world.cluster().set_entry(1);
  const std::uint64_t last = load(site.world, "new", 30, 22, 40, 1, 1);
  site.world.run_until(at_s(21));
  site.world.cluster().inject(LeadershipWon{{2}}, 1);
  site.world.run_until(at_s(24));
  const FrontendStatus after = site.status(1);
  ASSERT_EQ(after.estimates.size(), 1U);
  EXPECT_GE(after.estimates[0].probes, 1U);
  EXPECT_TRUE(std::any_of(after.gpulets.begin(), after.gpulets.end(), [&](const auto& one) {
    return before.contains(one.id) && !one.gpulet.models.empty() &&
           one.gpulet.models[0].name == "new";
  }));
  site.world.run_until(at_s(42));
  EXPECT_GT(outcome(site.world, 1, last).good, 0.98 * static_cast<double>(last - 1));
}

}  // namespace
}  // namespace gpulet::serve::estimates_test

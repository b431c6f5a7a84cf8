#include "schedule/fit_screen.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gpulet/base/random.h"
#include "tests/schedule/worked.h"

namespace gpulet::schedule::fit_screen_test {
namespace {

using testing::Worked;

// Whole devices, each with one model.
Worked models_on_devices(std::uint32_t count, Headroom headroom) {
  Worked worked;
  Random random(count);
  std::vector<testing::ModelLatency> models;
  for (std::uint32_t model = 0; model < count; ++model) {
    const std::string name = "m" + std::to_string(100 + model);
    const double per_request_ms = 0.2 + random.uniform();
    models.push_back({name, 1 + 4 * random.uniform(), per_request_ms, 32, 0});
    const double slo_ms = 10 + 60 * random.uniform();
    worked.input.demands.push_back({name, 5 + 400 * random.uniform(), slo_ms, 32});
  }
  testing::add_profile(worked, "gpu", models);
  testing::add_devices(worked, "n0", "gpu", count);
  worked.input.options.headroom = headroom;
  return worked;
}

TEST(FitScreen, RefusesMostOfWhatDoesNotFitAndNothingThatDoes) {
  constexpr std::uint32_t kModels = 60;
  const Worked worked = models_on_devices(kModels, Headroom::poisson);
  PlanContext context(worked.input);
  PlanBuilder builder(context);
  const auto whole = static_cast<std::uint32_t>(context.classes()[0].sizes.size() - 1);
  for (std::uint32_t model = 0; model < kModels / 2; ++model) {
    const double most = context.curve(model, 0, whole).max_rate;
    if (most > 0)
      builder.add_gpulet(builder.open(0), whole, model, std::min(most, builder.unplaced(model)));
  }
  FitScreen screen(builder);
  std::size_t fits = 0;
  std::size_t refused = 0;
  std::size_t refused_by_screen = 0;
  for (std::uint32_t model = kModels / 2; model < kModels; ++model) {
    for (std::size_t gpulet = 0; gpulet < builder.gpulets().size(); ++gpulet) {
      const bool may_fit = screen.may_fit(gpulet, model, builder.unplaced(model));
      if (builder.fits(gpulet, model, builder.unplaced(model))) {
        ++fits;
        EXPECT_TRUE(may_fit) << gpulet << " " << model;
      } else {
        ++refused;
        if (!may_fit) ++refused_by_screen;
      }
    }
  }
  EXPECT_GT(fits, 50U);
  EXPECT_GT(refused, 200U);
  EXPECT_GT(refused_by_screen, refused * 3 / 4);
}

TEST(FitScreen, SeesThatAGpuletHasChanged) {
  const Worked worked = models_on_devices(3, Headroom::poisson);
  PlanContext context(worked.input);
  PlanBuilder builder(context);
  const auto whole = static_cast<std::uint32_t>(context.classes()[0].sizes.size() - 1);
  const std::size_t gpulet = builder.add_gpulet(builder.open(0), whole, 0, 1);
  FitScreen screen(builder);
  const double rate = context.curve(1, 0, whole).max_rate / 2;
  ASSERT_TRUE(screen.may_fit(gpulet, 1, rate));
  builder.add(gpulet, 0, 0.9 * context.curve(0, 0, whole).max_rate);
  EXPECT_FALSE(screen.may_fit(gpulet, 1, rate));
}

TEST(FitScreen, RefusesNothingWithoutRandomArrivals) {
  const Worked worked = models_on_devices(2, Headroom::none);
  PlanContext context(worked.input);
  PlanBuilder builder(context);
  const auto whole = static_cast<std::uint32_t>(context.classes()[0].sizes.size() - 1);
  const std::size_t gpulet = builder.add_gpulet(builder.open(0), whole, 0, 1);
  EXPECT_TRUE(FitScreen(builder).may_fit(gpulet, 1, 1e9));
}

}  // namespace
}  // namespace gpulet::schedule::fit_screen_test

#include "gpulet/profile/estimate.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "gpulet/profile/store.h"

namespace gpulet::profile::estimate_test {
namespace {

LatencyTable table(std::vector<LatencySample> samples) {
  return LatencyTable::create(std::move(samples)).value();
}

// Batches cost a constant and a part for each request; smaller sizes take longer in proportion.
LatencyTable affine(double constant_ms, double per_request_ms) {
  std::vector<LatencySample> samples;
  for (const std::uint32_t batch : {1U, 2U, 4U, 8U, 16U}) {
    for (const int percent : {20, 50, 100}) {
      const double whole_ms = constant_ms + per_request_ms * batch;
      samples.push_back(
          {.batch = batch, .share = Share{percent}, .latency_ms = whole_ms * 100 / percent});
    }
  }
  return table(std::move(samples));
}

Profile profile_of(std::map<std::string, LatencyTable> tables) {
  Profile profile;
  for (auto& [name, latency] : tables)
    profile.models.emplace(name, ModelProfile{std::move(latency), {}, {}});
  return profile;
}

std::vector<LatencySample> probes(const LatencyTable& of, Share size,
                                  const std::vector<std::uint32_t>& batches) {
  std::vector<LatencySample> all;
  for (const std::uint32_t batch : batches) {
    const double latency_ms = of.latency_ms(batch, size).value();
    all.push_back({.batch = batch, .share = size, .latency_ms = latency_ms});
  }
  return all;
}

TEST(Estimate, TakesTheModelWithTheSimilarCurve) {
  const Profile profile = profile_of({{"flat", affine(10, 0.1)}, {"steep", affine(0.1, 10)}});
  const auto nearest = nearest_model(profile, probes(affine(20, 0.2), Share{50}, {1, 16}));
  ASSERT_TRUE(nearest);
  EXPECT_EQ(nearest->name, "flat");
  EXPECT_EQ(nearest_model(profile, probes(affine(0.2, 20), Share{50}, {1, 16}))->name, "steep");
}

TEST(Estimate, OfTwoSimilarCurvesTakesTheOneOfSimilarSize) {
  const Profile profile = profile_of({{"large", affine(100, 10)}, {"small", affine(1, 0.1)}});
  EXPECT_EQ(nearest_model(profile, probes(affine(2, 0.2), Share{50}, {1, 16}))->name, "small");
}

TEST(Estimate, IsNeverMadeFromAnotherEstimate) {
  Profile profile = profile_of({{"flat", affine(10, 0.1)}});
  profile.models.at("flat").estimate = EstimateSource{"other", 2};
  EXPECT_FALSE(nearest_model(profile, probes(affine(20, 0.2), Share{50}, {1, 16})));
}

TEST(Estimate, OfAModelThatIsAMultipleOfAnotherIsItsTable) {
  const LatencyTable known = affine(3, 0.5);
  const LatencyTable real = affine(6, 1);
  const LatencyTable estimated = estimated_latencies(&known, probes(real, Share{50}, {1, 8}),
                                                     {{Share{20}, Share{50}, Share{100}}, 8, 1});
  for (const LatencySample& one : estimated.samples()) {
    EXPECT_NEAR(one.latency_ms, real.latency_ms(one.batch, one.share).value(), 1e-9)
        << one.batch << " at " << one.share.percent;
  }
}

TEST(Estimate, BeyondTheLargestProbeGrowsWithTheBatch) {
  const LatencyTable flat = affine(10, 0.001);
  const LatencyTable estimated = estimated_latencies(
      &flat, probes(affine(10, 0.001), Share{100}, {1, 4}), {{Share{100}}, 16, 1});
  EXPECT_NEAR(estimated.latency_ms(16, Share{100}).value(),
              4 * estimated.latency_ms(4, Share{100}).value(), 1e-9);
}

TEST(Estimate, WithoutAModelASmallerSizeIsSlowerAndALargerOneNoFaster) {
  const std::vector<LatencySample> probed{{.batch = 1, .share = Share{50}, .latency_ms = 4},
                                          {.batch = 4, .share = Share{50}, .latency_ms = 10}};
  const LatencyTable estimated =
      estimated_latencies(nullptr, probed, {{Share{25}, Share{50}, Share{100}}, 4, 1});
  EXPECT_DOUBLE_EQ(estimated.latency_ms(4, Share{25}).value(), 20);
  EXPECT_DOUBLE_EQ(estimated.latency_ms(4, Share{50}).value(), 10);
  EXPECT_DOUBLE_EQ(estimated.latency_ms(4, Share{100}).value(), 10);
}

RC_GTEST_PROP(EstimateProperty, KeepsProbesAndCoversEveryCell, ()) {
  const auto milliseconds = rc::gen::map(rc::gen::inRange(1, 100'000),
                                         [](int microseconds) { return microseconds / 1000.0; });
  std::set<std::pair<std::uint32_t, int>> cells;
  const auto any_probes = [&] {
    std::vector<LatencySample> all;
    const int count = *rc::gen::inRange(1, 5);
    for (int i = 0; i < count; ++i) {
      LatencySample one;
      one.batch = *rc::gen::inRange<std::uint32_t>(1, 40);
      one.share = Share{*rc::gen::inRange(1, 101)};
      one.latency_ms = *milliseconds;
      if (cells.emplace(one.batch, one.share.percent).second) all.push_back(one);
    }
    return all;
  };
  const LatencyTable known = table(any_probes());
  cells.clear();
  const std::vector<LatencySample> probed = any_probes();
  const EstimatedCells wanted{{Share{*rc::gen::inRange(1, 50)}, Share{100}},
                              *rc::gen::inRange<std::uint32_t>(1, 64)};
  const LatencyTable estimated =
      estimated_latencies(*rc::gen::arbitrary<bool>() ? &known : nullptr, probed, wanted);
  for (const LatencySample& probe : probed)
    RC_ASSERT(estimated.latency_ms(probe.batch, probe.share) == probe.latency_ms);
  for (const Share size : wanted.sizes) {
    for (std::uint32_t batch = 1; batch <= wanted.largest_batch; ++batch)
      RC_ASSERT(estimated.latency_ms(batch, size).has_value());
  }
  for (const LatencySample& cell : estimated.samples()) {
    const bool is_probe = std::find(probed.begin(), probed.end(), cell) != probed.end();
    for (const LatencySample& probe : probed) {
      if (!is_probe && probe.batch <= cell.batch && probe.share >= cell.share)
        RC_ASSERT(cell.latency_ms >= probe.latency_ms);
    }
  }
}

// Each model of a committed profile is left out in turn, and estimated from its own cells of the
// smallest and the largest batch on the whole device. Returns the relative errors of the others.
std::vector<double> left_out_errors(const Profile& profile, std::uint32_t largest_batch) {
  std::vector<double> errors;
  for (const auto& [name, model] : profile.models) {
    Profile others = profile;
    others.models.erase(name);
    const std::vector<LatencySample> probed =
        probes(model.latency, kWholeDevice, {1, largest_batch});
    EstimatedCells cells{{}, largest_batch, 1};
    for (const LatencySample& sample : model.latency.samples()) cells.sizes.push_back(sample.share);
    cells.sizes.erase(std::unique(cells.sizes.begin(), cells.sizes.end()), cells.sizes.end());
    const LatencyTable estimated =
        estimated_latencies(nearest_model(others, probed)->latency, probed, cells);
    for (const LatencySample& sample : model.latency.samples()) {
      const bool is_probe =
          sample.share == kWholeDevice && (sample.batch == 1 || sample.batch == largest_batch);
      if (is_probe || sample.batch > largest_batch) continue;
      const double estimate_ms = estimated.latency_ms(sample.batch, sample.share).value();
      errors.push_back(std::abs(estimate_ms / sample.latency_ms - 1));
    }
  }
  std::sort(errors.begin(), errors.end());
  return errors;
}

TEST(Estimate, OfTheModelsOfTheReferenceGpuIsWithinFortyPercent) {
  const auto profile = read_profile(GPULET_SOURCE_DIR "/profiles/reference-gpu");
  ASSERT_TRUE(profile.ok()) << profile.status().message();
  const std::vector<double> errors = left_out_errors(profile.value(), 32);
  EXPECT_LT(errors[errors.size() / 2], 0.05);
  EXPECT_LT(errors.back(), 0.4);
}

}  // namespace
}  // namespace gpulet::profile::estimate_test

// Tests of a change to a gpulet, against rounds that are computed anew.
#include "schedule/round_probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "gpulet/base/random.h"

namespace gpulet::schedule {
namespace {

// Light models for one gpulet, of which dozens fit.
struct Models {
  explicit Models(std::uint64_t seed) : random(seed) {
    constexpr std::size_t kModels = 90;
    latencies_ms.reserve(kModels);
    curves.reserve(kModels);
    for (std::uint32_t model = 0; model < kModels; ++model) {
      std::vector<double>& latency_ms = latencies_ms.emplace_back();
      const double launch_ms = 0.2 + random.uniform();
      for (int batch = 1; batch <= 8; ++batch) latency_ms.push_back(launch_ms + 0.2 * batch);
      LatencyCurve& curve = curves.emplace_back();
      curve.latency_ms = latency_ms.data();
      curve.max_batch = 8;
      curve.random_arrivals = true;
      const double slo_ms = 60 + 60 * random.uniform();
      rate_curve(&curve, slo_ms);
      offered.push_back({&curve, 1 + 20 * random.uniform(), slo_ms, model});
    }
    // Slots are sorted by model, so newcomers come anywhere.
    std::stable_sort(offered.begin(), offered.end(),
                     [](const BatchSlot& a, const BatchSlot& b) { return a.slo_ms < b.slo_ms; });
  }

  Random random;
  std::vector<std::vector<double>> latencies_ms;
  std::vector<LatencyCurve> curves;
  std::vector<BatchSlot> offered;
};

bool holds_anew(std::vector<BatchSlot> slots, std::size_t at, double rate) {
  slots[at].rate = rate;
  return min_duty_cycle_ms(slots).has_value();
}

TEST(RoundProbe, AgreesWithARoundComputedAnewWhileAGpuletFills) {
  constexpr double kNearly = 1e-6;
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    Models models(seed);
    std::vector<BatchSlot> slots;
    std::optional<KnownRound> known;
    std::size_t refused = 0;
    for (const BatchSlot& offered : models.offered) {
      const auto place = std::find_if(slots.begin(), slots.end(), [&](const BatchSlot& slot) {
        return slot.model > offered.model;
      });
      const auto at = static_cast<std::size_t>(place - slots.begin());
      if (!known && slots.size() > SlotSums::kFew) known.emplace(slots);
      std::vector<BatchSlot> with = slots;
      with.insert(with.begin() + static_cast<std::ptrdiff_t>(at), offered);
      const bool holds = RoundProbe(with, at, known ? &*known : nullptr).holds(offered.rate);
      if (holds) {
        EXPECT_TRUE(holds_anew(with, at, offered.rate)) << seed << " " << slots.size();
        slots = with;
        if (known) known->added(slots, at);
      } else {
        EXPECT_FALSE(holds_anew(with, at, offered.rate * (1 + kNearly))) << seed;
        ++refused;
      }
    }
    EXPECT_GT(slots.size(), 2 * SlotSums::kFew);
    EXPECT_GT(refused, 0U);
  }
}

TEST(RoundProbe, FindsTheHighestFurtherRateOfAModelThatIsThere) {
  Models models(4);
  std::vector<BatchSlot> slots(models.offered.begin(), models.offered.begin() + 20);
  std::sort(slots.begin(), slots.end(),
            [](const BatchSlot& a, const BatchSlot& b) { return a.model < b.model; });
  ASSERT_TRUE(min_duty_cycle_ms(slots).has_value());
  KnownRound known(slots);
  for (const std::size_t at : {std::size_t{3}, std::size_t{11}, std::size_t{3}}) {
    const double before = slots[at].rate;
    std::vector<BatchSlot> tried = slots;
    RoundProbe probe(tried, at, &known, before);
    const double most = slots[at].curve->max_rate;
    const double highest = highest_rate(probe, before, most);
    ASSERT_GT(highest, before);
    EXPECT_TRUE(holds_anew(slots, at, highest));
    EXPECT_FALSE(holds_anew(slots, at, highest + most / 4096));
    slots[at].rate = (before + highest) / 2;
    known.raised(slots, at, before);
  }
}

}  // namespace
}  // namespace gpulet::schedule

// Tests of a change to a gpulet, against rounds that are computed anew.
#include "schedule/round_probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
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

// What is known is made once the gpulet has that many slots.
void fill_a_gpulet(std::uint64_t seed, std::size_t known_from) {
  constexpr double kNearly = 1e-6;
  Models models(seed);
  std::vector<BatchSlot> slots;
  std::optional<KnownRound> known;
  std::size_t refused = 0;
  for (const BatchSlot& offered : models.offered) {
    const auto place = std::find_if(slots.begin(), slots.end(), [&](const BatchSlot& slot) {
      return slot.model > offered.model;
    });
    const auto at = static_cast<std::size_t>(place - slots.begin());
    if (!known && slots.size() >= known_from) known.emplace(slots);
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

TEST(RoundProbe, AgreesWithARoundComputedAnewWhileAGpuletFills) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    for (const std::size_t known_from : {std::size_t{1}, std::size_t{5}, SlotSums::kFew + 1})
      fill_a_gpulet(seed, known_from);
  }
}

// A gpulet with so many slots.
void raise_a_rate(std::size_t count) {
  Models models(4);
  std::vector<BatchSlot> slots(models.offered.begin(),
                               models.offered.begin() + static_cast<std::ptrdiff_t>(count));
  std::sort(slots.begin(), slots.end(),
            [](const BatchSlot& a, const BatchSlot& b) { return a.model < b.model; });
  ASSERT_TRUE(min_duty_cycle_ms(slots).has_value());
  KnownRound known(slots);
  for (const std::size_t at : {std::size_t{0}, count / 2, std::size_t{0}}) {
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

TEST(RoundProbe, FindsTheHighestFurtherRateOfAModelThatIsThere) {
  for (const std::size_t count : {1U, 2U, 8U, 20U}) raise_a_rate(count);
}

// A slot that was alone and gets a neighbour needs no batch as large as before.
TEST(RoundProbe, AgreesWhereASlotWasAlone) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    Models models(seed);
    std::vector<BatchSlot> slots{models.offered[0]};
    slots[0].rate = 0.7 * slots[0].curve->max_rate;
    KnownRound known(slots);
    const double before = slots[0].rate;
    EXPECT_TRUE(RoundProbe(slots, 0, &known, before).holds(0.8 * slots[0].curve->max_rate));
    known.raised(slots, 0, before);
    std::vector<BatchSlot> with{slots[0], models.offered[1]};
    for (const double rate : {0.01, 1.0, 20.0, 100.0, 200.0}) {
      std::vector<BatchSlot> tried = with;
      EXPECT_EQ(RoundProbe(tried, 1, &known).holds(rate), holds_anew(with, 1, rate)) << rate;
    }
  }
}

// The latencies of batches from 1 to that of the last point, linear between the points.
std::vector<double> linear(const std::vector<std::pair<std::uint32_t, double>>& points) {
  std::vector<double> latency_ms{points.front().second};
  for (std::size_t next = 1; next < points.size(); ++next) {
    const auto [below, below_ms] = points[next - 1];
    const auto [above, above_ms] = points[next];
    for (std::uint32_t batch = below + 1; batch <= above; ++batch)
      latency_ms.push_back(below_ms + (above_ms - below_ms) * (batch - below) / (above - below));
  }
  return latency_ms;
}

// The third model takes 93 % of the time: in a cycle of the second, the others need hardly more
// than is left.
TEST(RoundProbe, AgreesWhereACycleIsHardToFind) {
  const std::vector<std::vector<double>> latencies_ms{
      linear({{1, 0.33}, {2, 0.36}}), linear({{1, 0.36}, {2, 0.36}, {46, 2}}),
      linear({{1, 2.2}, {2, 3.2}, {8, 12.6}, {64, 107}})};
  std::vector<BatchSlot> slots{
      {nullptr, 0.13, 180, 0}, {nullptr, 0, 44, 1}, {nullptr, 619, 300, 2}};
  std::vector<LatencyCurve> curves(slots.size());
  for (std::size_t at = 0; at < slots.size(); ++at) {
    curves[at].latency_ms = latencies_ms[at].data();
    curves[at].max_batch = static_cast<std::uint32_t>(latencies_ms[at].size());
    curves[at].random_arrivals = true;
    rate_curve(&curves[at], slots[at].slo_ms);
    slots[at].curve = &curves[at];
  }
  for (int rate = 1; rate <= 80; ++rate) {
    slots[1].rate = rate;
    const SlotsInTurn gpulet(slots);
    const std::uint32_t least = least_batch(gpulet, 1, 0);
    for (std::uint32_t first = 1; first <= curves[1].max_batch; ++first)
      EXPECT_GE(least_batch(gpulet, 1, 0, first), least) << rate << " from " << first;
    KnownRound known(std::vector<BatchSlot>{slots[0], slots[2]});
    std::vector<BatchSlot> tried = slots;
    EXPECT_EQ(RoundProbe(tried, 1, &known).holds(rate), holds_anew(slots, 1, rate)) << rate;
  }
}

}  // namespace
}  // namespace gpulet::schedule

// The mathematics of a gpulet's rounds: properties of the planner's rules, and the table of
// headroom against simulated queues.
#include "schedule/duty_cycle.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <vector>

#include "gpulet/base/random.h"
#include "schedule/age_chain.h"
#include "schedule/headroom_table.h"

namespace gpulet::schedule {
namespace {

// A slot whose batches follow each other without pause: a batch of n takes cycle[n], a turn without
// requests cycle[0], or the time to the next arrival where that is 0.
struct Lane {
  std::vector<double> cycle;
  std::vector<double> oldest;  // [n - 1]: the age up to which a batch of n may start

  Lane(std::uint32_t batch, double wait, double half) {
    for (std::uint32_t n = 0; n <= batch; ++n) {
      const double saved = 2 * (1 - half) * (1 - n / static_cast<double>(batch));
      cycle.push_back(1 - saved);
      if (n > 0) oldest.push_back(wait + saved / 2);
    }
  }

  // The fraction of that many Poisson arrivals that no batch can serve in time.
  [[nodiscard]] double simulated_late(double mean, int requests) const {
    const std::size_t batch = oldest.size();
    Random random(11);
    std::deque<double> waiting;
    double next = random.exponential(1 / mean);
    double now = 0;
    int late = 0;
    int arrived = 0;
    while (arrived < requests) {
      if (waiting.empty() && cycle[0] <= 0) now = std::max(now, next);
      for (; next <= now; next += random.exponential(1 / mean)) {
        waiting.push_back(next);
        ++arrived;
      }
      const double limit = waiting.size() > batch ? oldest.back() : oldest.front();
      while (!waiting.empty() && now - waiting.front() > limit) {
        waiting.pop_front();
        ++late;
      }
      std::size_t taken = std::min(batch, waiting.size());
      while (taken > 1 && now - waiting.front() > oldest[taken - 1]) --taken;
      waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(taken));
      now += std::max(cycle[taken], taken == 0 ? 1e-9 : 0);
    }
    return static_cast<double>(late) / arrived;
  }
};

TEST(Headroom, LimitsLateRequests) {
  for (const std::uint32_t batch : {1U, 2U, 4U, 8U, 16U, 32U}) {
    for (const double wait : {1.0, 1.3, 2.0, 3.7, 6.0}) {
      for (const double half : {0.5, 0.8, 1.0}) {
        const double mean = requests_held({.batch = batch, .wait = wait, .half = half});
        if (mean == 0) continue;
        // For the grid of the chain, the table's interpolation and the noise.
        EXPECT_LE(Lane(batch, wait, half).simulated_late(mean, 200000), kMostLateByChance * 1.4)
            << "batch " << batch << ", wait " << wait << ", half " << half;
      }
    }
  }
}

TEST(Headroom, IsTight) {
  for (const std::uint32_t batch : {2U, 8U, 32U}) {
    for (const double wait : {1.0, 1.5, 2.0}) {
      for (const double half : {0.5, 0.7}) {
        const double mean = requests_held({.batch = batch, .wait = wait, .half = half});
        EXPECT_GE(Lane(batch, wait, half).simulated_late(mean * 1.06, 200000), kMostLateByChance)
            << "batch " << batch << ", wait " << wait << ", half " << half;
      }
    }
  }
}

TEST(Headroom, TheTableIsWhatTheChainGives) {
  Random random(5);
  for (int i = 0; i < 12; ++i) {
    const std::size_t b = random.below(8);
    const std::size_t w = 3 + random.below(12);
    const std::size_t h = random.below(3);
    const std::size_t d = random.below(3);
    const std::size_t o = random.below(d + 1);
    const SlotShape slot{kHeadroomBatches[b], kHeadroomWaits[w], kHeadroomHalves[h],
                         kHeadroomDeviations[d], kHeadroomDeviations[o]};
    EXPECT_NEAR(requests_held(slot), solve_headroom(slot, 96), 0.02 * slot.batch)
        << "batch " << slot.batch << ", wait " << slot.wait << ", half " << slot.half
        << ", deviation " << slot.deviation << ", own " << slot.own_deviation;
  }
}

RC_GTEST_PROP(Headroom, RisesWithTheBatchAndTheWaitAndFallsWithTheRest, ()) {
  SlotShape slot;
  slot.batch = *rc::gen::inRange(1U, 100U);
  slot.wait = *rc::gen::inRange(600, 25000) / 1000.0;
  slot.half = *rc::gen::inRange(300, 1100) / 1000.0;
  slot.deviation = *rc::gen::inRange(0, 600) / 1000.0;
  slot.own_deviation = *rc::gen::inRange(0, 600) / 1000.0;
  const double held = requests_held(slot);
  RC_ASSERT(held >= 0);
  RC_ASSERT(held <= slot.batch);
  const auto changed = [&slot](auto change) {
    SlotShape other = slot;
    change(other);
    return requests_held(other);
  };
  const double kSlack = 1e-9;
  RC_ASSERT(changed([](SlotShape& s) { s.batch += 1; }) >= held - kSlack);
  RC_ASSERT(changed([](SlotShape& s) { s.wait *= 1.1; }) >= held - kSlack);
  RC_ASSERT(changed([](SlotShape& s) { s.half += 0.05; }) <= held + kSlack);
  RC_ASSERT(changed([](SlotShape& s) { s.deviation += 0.02; }) <= held + kSlack);
  RC_ASSERT(changed([](SlotShape& s) { s.own_deviation += 0.02; }) <= held + kSlack);
}

// Batches that follow each other without pause and take a time that varies, 1 on average, whatever
// they hold: the fraction of the requests that is dropped by that mean or late.
double simulated_late(const SlotShape& slot, double mean, int requests) {
  Random random(3);
  std::deque<double> waiting;
  double next = random.exponential(1 / mean);
  double now = 0;
  int late = 0;
  int arrived = 0;
  while (arrived < requests) {
    for (; next <= now; next += random.exponential(1 / mean)) {
      waiting.push_back(next);
      ++arrived;
    }
    for (; !waiting.empty() && now - waiting.front() > slot.wait; ++late) waiting.pop_front();
    const double time = random.log_normal(slot.own_deviation);
    for (std::uint32_t n = 0; n < slot.batch && !waiting.empty(); ++n) {
      late += now - waiting.front() + time > slot.wait + 1 ? 1 : 0;
      waiting.pop_front();
    }
    now += time;
  }
  return static_cast<double>(late) / arrived;
}

TEST(Headroom, IsThatOfASimulatedQueueWhoseTimesVary) {
  struct Case {
    double wait;
    double cv;
  };
  for (const std::uint32_t batch : {4U, 16U}) {
    for (const auto& [wait, cv] : {Case{1.5, 0.1}, Case{2.5, 0.1}, Case{2.5, 0.25}}) {
      const SlotShape slot{batch, wait, 1, cv, cv};
      const double late = simulated_late(slot, requests_held(slot), 100000);
      EXPECT_LE(late, 1.5 * kMostLateByChance) << batch << " " << wait << " " << cv;
      EXPECT_GE(late, kMostLateByChance / 1.5) << batch << " " << wait << " " << cv;
    }
  }
}

TEST(Headroom, IsNothingWhereARequestCannotWait) {
  EXPECT_EQ(requests_held({.batch = 8, .wait = 0.5}), 0);
  EXPECT_EQ(requests_held({.batch = 8, .wait = -1}), 0);
  EXPECT_EQ(requests_held({.batch = 0, .wait = 3}), 0);
}

TEST(AgeChain, FindsTheLateFractionOfASimulatedQueue) {
  for (const std::uint32_t batch : {1U, 4U, 16U}) {
    for (const double wait : {1.0, 1.6, 3.0}) {
      for (const double half : {0.5, 0.75, 1.0}) {
        const Lane lane(batch, wait, half);
        const double mean = 1.05 * requests_held({.batch = batch, .wait = wait, .half = half});
        const double simulated = lane.simulated_late(mean, 300000);
        std::vector<TimePoint> turn;  // a random part of an empty one
        for (const double part : {0.125, 0.375, 0.625, 0.875})
          turn.push_back({part * lane.cycle[0], 0.25});
        const SlotQueue queue{
            .rate = mean,
            .oldest = lane.oldest,
            .cycle =
                [&](std::size_t n, double, double, std::vector<TimePoint>& times) {
                  times.push_back({lane.cycle[n], 1});
                },
            .longest_cycle = lane.cycle.back(),
            .idle = turn};
        const double found = solve_queue(queue, 96).late;
        EXPECT_LE(found, 1.4 * simulated + 2e-4) << batch << " " << wait << " " << half;
        EXPECT_GE(found, simulated / 1.4 - 2e-4) << batch << " " << wait << " " << half;
      }
    }
  }
}

// ---- slots in turn

// Two models take turns without pause; the second mostly has no batch. A batch of n takes
// base + slope * n.
struct InTurn {
  double base_ms;
  double slope_ms;
  double slo_ms;
  double rate;  // per ms
  std::uint32_t batch;

  [[nodiscard]] double ms(std::size_t n) const {
    return base_ms + slope_ms * static_cast<double>(n);
  }
};

// The fraction of the first model's requests that are dropped.
double simulated_late(const std::array<InTurn, 2>& models, int requests) {
  Random random(7);
  std::array<std::deque<double>, 2> waiting;
  std::array<double, 2> next{};
  double now = 0;
  int late = 0;
  int arrived = 0;
  for (std::size_t turn = 0; arrived < requests; turn = 1 - turn) {
    for (std::size_t at = 0; at < models.size(); ++at) {
      for (; next.at(at) <= now; next.at(at) += random.exponential(1 / models.at(at).rate)) {
        waiting.at(at).push_back(next.at(at));
        if (at == 0) ++arrived;
      }
    }
    const InTurn& model = models.at(turn);
    std::deque<double>& queue = waiting.at(turn);
    const auto full = [&] { return std::min<std::size_t>(model.batch, queue.size()); };
    for (; !queue.empty() && now - queue.front() + model.ms(full()) > model.slo_ms;
         late += turn == 0 ? 1 : 0) {
      queue.pop_front();
    }
    if (queue.empty()) {
      if (waiting.at(1 - turn).empty()) now = std::max(now, std::min(next[0], next[1]));
      continue;
    }
    const std::size_t taken = full();
    queue.erase(queue.begin(), queue.begin() + static_cast<std::ptrdiff_t>(taken));
    now += model.ms(taken);
  }
  return static_cast<double>(late) / arrived;
}

TEST(Headroom, CountsTheCyclesWithoutABatchOfAnother) {
  for (const double other_rate : {0.01, 0.04, 0.08}) {
    std::array<InTurn, 2> models{InTurn{10.7, 0.15, 35.5, 0, 32},
                                 InTurn{4.2, 0.25, 26.5, other_rate, 32}};
    std::array<std::vector<double>, 2> latency_ms;
    std::array<LatencyCurve, 2> curves;
    for (std::size_t at = 0; at < models.size(); ++at) {
      for (std::size_t n = 1; n <= models.at(at).batch; ++n)
        latency_ms.at(at).push_back(models.at(at).ms(n));
      curves.at(at).latency_ms = latency_ms.at(at).data();
      curves.at(at).max_batch = models.at(at).batch;
      curves.at(at).random_arrivals = true;
      rate_curve(&curves.at(at), models.at(at).slo_ms);
    }
    const std::vector<BatchSlot> other{{&curves[1], other_rate * 1000, models[1].slo_ms, 1}};
    std::vector<BatchSlot> both{
        {&curves[0], max_rate_beside(other, curves[0], models[0].slo_ms), models[0].slo_ms, 0}};
    ASSERT_GT(both.front().rate, 0);
    both.push_back(other.front());
    const auto round = shortest_round(both);
    ASSERT_TRUE(round.has_value());
    models[0].rate = both.front().rate / 1000;
    for (std::size_t at = 0; at < models.size(); ++at) models.at(at).batch = round->batches[at];
    EXPECT_LE(simulated_late(models, 200000), 1.5 * kMostLateByChance) << other_rate;
  }
}

// ---- rounds

// Latency curves with the numbers that they point to.
struct Slots {
  std::vector<std::vector<double>> latencies_ms;
  std::vector<LatencyCurve> curves;
  std::vector<BatchSlot> slots;

  static Slots any(bool random_arrivals, int least = 1) {
    Slots made;
    const int count = *rc::gen::inRange(least, 4);
    made.latencies_ms.reserve(static_cast<std::size_t>(count));
    made.curves.reserve(static_cast<std::size_t>(count));
    for (int model = 0; model < count; ++model) {
      std::vector<double>& latency_ms = made.latencies_ms.emplace_back();
      double ms = *rc::gen::inRange(5, 60) / 10.0;
      const auto batches = *rc::gen::inRange<std::size_t>(1, 33);
      for (std::size_t batch = 0; batch < batches; ++batch) {
        latency_ms.push_back(ms);
        ms += *rc::gen::inRange(0, 8) / 10.0;
      }
      LatencyCurve& curve = made.curves.emplace_back();
      curve.latency_ms = latency_ms.data();
      curve.random_arrivals = random_arrivals;
      curve.margin = *rc::gen::inRange(100, 120) / 100.0;
      curve.cv = *rc::gen::element(0.0, 0.05, 0.2);
      const double slo_ms = 2 + latency_ms.back() * *rc::gen::inRange(25, 80) / 10.0;
      while (curve.max_batch < batches &&
             latency_ms[curve.max_batch] <= longest_useful_ms(slo_ms)) {
        ++curve.max_batch;
      }
      rate_curve(&curve, slo_ms);
      RC_PRE(curve.max_rate > 0);
      made.slots.push_back({&curve, curve.max_rate * *rc::gen::inRange(1, 100) / 100.0, slo_ms,
                            static_cast<std::uint32_t>(model)});
    }
    return made;
  }
};

RC_GTEST_PROP(Rounds, ALowerRateNeedsNoMore, (bool random_arrivals)) {
  const Slots made = Slots::any(random_arrivals);
  const auto duty_cycle_ms = min_duty_cycle_ms(made.slots);
  RC_PRE(duty_cycle_ms.has_value());
  std::vector<BatchSlot> lower = made.slots;
  lower[*rc::gen::inRange<std::size_t>(0, lower.size())].rate *= *rc::gen::inRange(1, 100) / 100.0;
  const auto lower_ms = min_duty_cycle_ms(lower);
  RC_ASSERT(lower_ms.has_value());
  RC_ASSERT(*lower_ms <= *duty_cycle_ms * (1 + 1e-9));
}

RC_GTEST_PROP(Rounds, TheHighestRateBesideOthersFits, (bool random_arrivals)) {
  const Slots made = Slots::any(random_arrivals, 2);
  std::vector<BatchSlot> slots = made.slots;
  BatchSlot newcomer = slots.back();
  slots.pop_back();
  RC_PRE(min_duty_cycle_ms(slots).has_value());
  newcomer.rate = max_rate_beside(slots, *newcomer.curve, newcomer.slo_ms);
  RC_PRE(newcomer.rate > 0);
  slots.push_back(newcomer);
  RC_ASSERT(min_duty_cycle_ms(slots).has_value());
  // To a part in 4,096 of its highest rate alone.
  slots.back().rate += newcomer.curve->max_rate / 4096;
  RC_ASSERT(slots.back().rate > newcomer.curve->max_rate || !min_duty_cycle_ms(slots).has_value());
}

RC_GTEST_PROP(Rounds, HoldTheirOwnBatchesWithinEverySlo, (bool random_arrivals)) {
  const Slots made = Slots::any(random_arrivals);
  const std::optional<TolerantRound> tolerant = burst_tolerant_round(made.slots);
  RC_PRE(tolerant.has_value());
  RC_ASSERT(tolerant->round.batches.size() == made.slots.size());
  double busy_ms = 0;
  for (std::size_t at = 0; at < made.slots.size(); ++at)
    busy_ms += made.slots[at].curve->latency_ms[tolerant->round.batches[at] - 1];
  const double duty_cycle_ms = tolerant->round.duty_cycle_ms;
  RC_ASSERT(busy_ms <= duty_cycle_ms * (1 + 1e-9));
  for (std::size_t at = 0; at < made.slots.size(); ++at) {
    const std::uint32_t batch = tolerant->round.batches[at];
    const BatchSlot& slot = made.slots[at];
    RC_ASSERT(duty_cycle_ms + slot.curve->latency_ms[batch - 1] <= slot.slo_ms * (1 + 1e-9));
    RC_ASSERT(batch_holds(made.slots, at, batch, duty_cycle_ms));
  }
}

}  // namespace
}  // namespace gpulet::schedule

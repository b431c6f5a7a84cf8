#include "schedule/device_chain.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

namespace gpulet::schedule {
namespace {

// What the engine adds to the times of a profile (docs/scheduling.md, "Random arrivals").
constexpr double kLinkMs = 0.1;        // a message between frontend and backend
constexpr double kAllowanceMs = 0.5;   // batching::Allowance, of a device that keeps its profile
constexpr double kBoundAheadMs = 0.3;  // the next batch is sent that long before the predicted end

constexpr std::size_t kCells = 32;  // of the chain's grid
constexpr int kPasses = 3;          // over the models of a device, each of which needs the others

double mean_of(std::span<const TimePoint> points) {
  return std::accumulate(points.begin(), points.end(), 0.0, [](double sum, const TimePoint& one) {
    return sum + one.probability * one.time;
  });
}

double variance_of(std::span<const TimePoint> points) {
  const double mean = mean_of(points);
  return std::accumulate(points.begin(), points.end(), 0.0,
                         [mean](double sum, const TimePoint& one) {
                           return sum + one.probability * (one.time - mean) * (one.time - mean);
                         });
}

// Joins what is near each other so that at most `most` points are left, in ascending order. The
// mean stays.
void compress(std::vector<TimePoint>* points, std::size_t most) {
  std::erase_if(*points, [](const TimePoint& one) { return one.probability <= 0; });
  if (points->empty()) return;
  const auto [low, high] =
      std::minmax_element(points->begin(), points->end(),
                          [](const TimePoint& a, const TimePoint& b) { return a.time < b.time; });
  const double from = low->time;
  const double width = (high->time - from) / static_cast<double>(most);
  std::vector<TimePoint> bins(most);
  for (const TimePoint& one : *points) {
    const auto bin =
        width > 0 ? std::min(most - 1, static_cast<std::size_t>((one.time - from) / width)) : 0;
    bins[bin].time += one.time * one.probability;
    bins[bin].probability += one.probability;
  }
  std::erase_if(bins, [](const TimePoint& one) { return one.probability <= 0; });
  for (TimePoint& one : bins) one.time /= one.probability;
  *points = std::move(bins);
}

// A time that varies by chance: five points of a log-normal time, those of Gauss and Hermite for
// the normal distribution.
std::vector<TimePoint> points_of_noise(double mean, double variance) {
  if (!(variance > 0) || !(mean > 0)) return {{mean, 1}};
  const double log_variance = std::log1p(variance / (mean * mean));
  const double deviation = std::sqrt(log_variance);
  const double median = mean / std::sqrt(1 + variance / (mean * mean));
  const double near = std::exp(1.3556261800 * deviation);
  const double far = std::exp(2.8569700139 * deviation);
  constexpr double kFar = 0.011257411328;
  constexpr double kNear = 0.22207592201;
  return {{median / far, kFar},
          {median / near, kNear},
          {median, 1 - 2 * (kFar + kNear)},
          {median * near, kNear},
          {median * far, kFar}};
}

double normal_tail(double deviations) { return std::erfc(deviations / std::sqrt(2)) / 2; }

// P(Poisson(mean) >= count) for one count: linear between points of a table.
class AtLeast {
 public:
  explicit AtLeast(std::size_t count)
      : step_((static_cast<double>(count) + 6 * std::sqrt(static_cast<double>(count)) + 6) /
              (kPoints - 1)) {
    for (std::size_t at = 0; at < kPoints; ++at) {
      const double mean = step_ * static_cast<double>(at);
      double term = std::exp(-mean);
      double tail = 1;
      for (std::size_t n = 0; n < count; ++n) {
        tail -= term;
        term *= mean / static_cast<double>(n + 1);
      }
      points_.at(at) = std::max(0.0, tail);
    }
  }
  [[nodiscard]] double operator()(double mean) const {
    const double position = std::max(0.0, mean) / step_;
    if (position >= kPoints - 1) return 1;
    const auto below = static_cast<std::size_t>(position);
    return std::lerp(points_.at(below), points_.at(below + 1),
                     position - static_cast<double>(below));
  }

 private:
  static constexpr std::size_t kPoints = 256;
  double step_;
  std::array<double, kPoints> points_{};
};

// The next batch is sent kBoundAheadMs before the predicted end of this one, or when it has ended:
// that takes two messages, unless the prediction is just a little late.
double gap_after(const Lane& lane, std::size_t n) {
  const double early_ms = lane.expected_ms[n - 1] - lane.mean_ms[n - 1];
  return std::clamp(early_ms - kBoundAheadMs, 0.0, 2 * kLinkMs);
}

// How long the batches of the other slots run between two turns of one, by the length of the cycle
// that brings their requests.
class OthersTable {
 public:
  // By slot, from the sums of the slots before and behind each: the work is linear in the slots.
  static std::vector<OthersTable> of_slots(const LaneGroup& group, double longest_ms) {
    const std::size_t slots = group.lanes.size();
    std::vector<OthersTable> tables(slots, OthersTable(longest_ms));
    std::vector<Times> batches(slots);
    for (std::size_t at = 0; at < kPoints; ++at) {
      for (std::size_t slot = 0; slot < slots; ++slot)
        batches[slot] = batch_of(group.lanes[slot], tables[slot].step_ * static_cast<double>(at));
      Times before;
      for (std::size_t slot = 0; slot < slots; ++slot) {
        tables[slot].times_.at(at) = before;
        before = sum(before, batches[slot]);
      }
      Times behind;
      for (std::size_t slot = slots; slot-- > 0;) {
        Times& others = tables[slot].times_.at(at);
        others = sum(others, behind);
        tables[slot].means_.at(at) = mean_of(others);
        behind = sum(behind, batches[slot]);
      }
    }
    return tables;
  }

  [[nodiscard]] double mean_ms(double cycle_ms) const {
    const auto [below, part] = position(cycle_ms);
    return std::lerp(means_.at(below), means_.at(below + 1), part);
  }
  // Calls visit(time, probability).
  template <typename Visit>
  void each(double cycle_ms, const Visit& visit) const {
    const auto [below, part] = position(cycle_ms);
    for (const TimePoint& one : times_.at(below)) visit(one.time, (1 - part) * one.probability);
    for (const TimePoint& one : times_.at(below + 1)) visit(one.time, part * one.probability);
  }

 private:
  using Times = std::vector<TimePoint>;  // empty: nothing runs

  static constexpr std::size_t kPoints = 25;
  static constexpr std::size_t kMostTimes = 8;

  explicit OthersTable(double longest_ms) : step_(longest_ms / (kPoints - 1)) {}

  static Times sum(const Times& a, const Times& b) {
    if (a.empty()) return b;
    if (b.empty()) return a;
    Times both;
    for (const TimePoint& one : a) {
      for (const TimePoint& other : b)
        both.push_back({one.time + other.time, one.probability * other.probability});
    }
    compress(&both, kMostTimes);
    return both;
  }

  [[nodiscard]] std::pair<std::size_t, double> position(double cycle_ms) const {
    const double steps = std::clamp(cycle_ms / step_, 0.0, kPoints - 1.001);
    const auto below = static_cast<std::size_t>(steps);
    return {below, steps - static_cast<double>(below)};
  }

  // A batch of what arrives in the cycle, or a full one where the last one left requests over.
  static Times batch_of(const Lane& lane, double cycle_ms) {
    const double arrivals = lane.rate * cycle_ms;
    const double full = lane.outcome.left_over;
    Times times;
    double probability = std::exp(-arrivals);
    double rest = 1 - probability;
    times.push_back({0, (1 - full) * probability});
    for (std::size_t n = 1; n <= lane.batch(); ++n) {
      probability *= arrivals / static_cast<double>(n);
      rest -= probability;
      const bool last = n == lane.batch();
      const double part =
          last ? full + (1 - full) * std::max(0.0, rest + probability) : (1 - full) * probability;
      if (part < kNegligible) continue;
      const double gap_ms = gap_after(lane, n);
      for (const TimePoint& slow : lane.slowdown[n - 1])
        times.push_back({lane.alone_ms[n - 1] * slow.time + gap_ms, part * slow.probability});
    }
    compress(&times, kMostTimes);
    return times;
  }

  static constexpr double kNegligible = 1e-9;
  double step_;
  std::array<Times, kPoints> times_;
  std::array<double, kPoints> means_{};
};

class DevicePrediction {
 public:
  DevicePrediction(std::vector<LaneGroup>& groups, const profile::InterferenceModel* interference)
      : groups_(groups), interference_(groups_.size() > 1 ? interference : nullptr) {}

  // The outcome of the last pass is in the lanes.
  void run() {
    for (LaneGroup& group : groups_) {
      for (Lane& lane : group.lanes) guess(group, lane);
    }
    const bool independent = groups_.size() == 1 && groups_.front().lanes.size() == 1;
    for (int pass = 0; pass < (independent ? 1 : kPasses); ++pass) {
      for (LaneGroup& group : groups_) {
        for (Lane& lane : group.lanes) set_slowdowns(group, lane);
      }
      for (LaneGroup& group : groups_) {
        if (group.lanes.size() == 1) {
          solve_alone(group);
        } else {
          solve_in_turn(group);
        }
      }
    }
  }

 private:
  // Before the first pass: every batch brings what arrives in a duty cycle.
  static void guess(const LaneGroup& group, Lane& lane) {
    const double arrivals = lane.rate * group.duty_cycle_ms;
    lane.outcome.batches.assign(lane.batch() + 1, 0.0);
    const double size = std::clamp(arrivals, 1.0, static_cast<double>(lane.batch()));
    const auto whole = static_cast<std::size_t>(size);
    lane.outcome.batches[whole] = 1;
    lane.busy = std::min(1.0, lane.rate / size * lane.alone_ms[whole - 1]);
  }

  static void note(Lane& lane, SlotOutcome outcome) {
    lane.outcome = std::move(outcome);
    double sizes = 0;
    double busy_ms = 0;
    for (std::size_t n = 1; n <= lane.batch(); ++n) {
      sizes += static_cast<double>(n) * lane.outcome.batches[n];
      busy_ms += lane.outcome.batches[n] * lane.mean_ms[n - 1];
    }
    lane.busy =
        sizes > 0 ? std::min(1.0, lane.rate * (1 - lane.outcome.late) / sizes * busy_ms) : 0;
  }

  void set_slowdowns(const LaneGroup& group, Lane& lane) const {
    const std::size_t batch = lane.batch();
    lane.slowdown.assign(batch, {{1, 1}});
    if (interference_ != nullptr) {
      std::vector<std::vector<TimePoint>> at_sizes;
      for (const profile::BatchTraits& self : lane.traits)
        at_sizes.push_back(slowdown_beside(group, self));
      for (std::size_t n = 1; n <= batch; ++n) {
        const auto above = std::lower_bound(lane.sizes.begin(), lane.sizes.end(), n);
        const auto at = static_cast<std::size_t>(above - lane.sizes.begin());
        std::vector<TimePoint>& points = lane.slowdown[n - 1];
        points = at_sizes[at];
        if (*above == n) continue;
        const double part = static_cast<double>(n - lane.sizes[at - 1]) /
                            static_cast<double>(lane.sizes[at] - lane.sizes[at - 1]);
        for (TimePoint& one : points) one.probability *= part;
        for (const TimePoint& one : at_sizes[at - 1])
          points.push_back({one.time, one.probability * (1 - part)});
        compress(&points, kSlowdownPoints);
      }
    }
    lane.mean_ms.resize(batch);
    lane.variance.resize(batch);
    lane.most_ms.resize(batch);
    for (std::size_t at = 0; at < batch; ++at) {
      const double alone_ms = lane.alone_ms[at];
      lane.mean_ms[at] = alone_ms * mean_of(lane.slowdown[at]);
      lane.most_ms[at] =
          alone_ms * lane.slowdown[at].back().time * (1 + kMostDeviations * lane.cv[at]);
      lane.variance[at] = alone_ms * alone_ms * variance_of(lane.slowdown[at]) +
                          std::pow(lane.mean_ms[at] * lane.cv[at], 2);
    }
  }

  static constexpr std::size_t kSlowdownPoints = 6;
  static constexpr double kMostDeviations = 3.7;  // points_of_noise, where cv is 0.2

  // The slowdown of a batch by whatever runs in the other gpulets when it starts.
  [[nodiscard]] std::vector<TimePoint> slowdown_beside(const LaneGroup& group,
                                                       const profile::BatchTraits& self) const {
    std::vector<TimePoint> sum{{1, 1}};
    for (const LaneGroup& other : groups_) {
      if (&other == &group) continue;
      std::vector<TimePoint> one;
      double idle = 1;
      for (const Lane& lane : other.lanes) {
        const std::vector<double> parts = running_sizes(lane);
        for (std::size_t at = 0; at < parts.size(); ++at) {
          if (parts[at] <= 0) continue;
          idle -= parts[at];
          one.push_back({interference_->slowdown(self, lane.traits[at]), parts[at]});
        }
      }
      if (idle > 0) {
        one.push_back({1, idle});
      } else {
        for (TimePoint& point : one) point.probability /= 1 - idle;
      }
      std::vector<TimePoint> both;
      for (const TimePoint& a : sum) {
        for (const TimePoint& b : one)
          both.push_back({profile::add_neighbour(a.time, b.time), a.probability * b.probability});
      }
      compress(&both, kSlowdownPoints);
      sum = std::move(both);
    }
    return sum;
  }

  // Parallel to lane.sizes: part of the time that a batch of about that size runs.
  static std::vector<double> running_sizes(const Lane& lane) {
    std::vector<double> parts(lane.sizes.size());
    double all = 0;
    for (std::size_t n = 1; n <= lane.batch(); ++n) {
      const double ms = lane.outcome.batches[n] * lane.alone_ms[n - 1];
      if (ms <= 0) continue;
      all += ms;
      const auto above = std::lower_bound(lane.sizes.begin(), lane.sizes.end(), n);
      const auto at = static_cast<std::size_t>(above - lane.sizes.begin());
      if (*above == n) {
        parts[at] += ms;
        continue;
      }
      const double part = static_cast<double>(n - lane.sizes[at - 1]) /
                          static_cast<double>(lane.sizes[at] - lane.sizes[at - 1]);
      parts[at] += ms * part;
      parts[at - 1] += ms * (1 - part);
    }
    for (double& part : parts) part *= all > 0 ? lane.busy / all : 0;
    return parts;
  }

  // What a slot by itself and one in turn have in common.
  struct Common {
    std::vector<double> oldest;
    SlotQueue queue;
  };

  // `lead_ms`: from the time when the requests of a batch are chosen, at which their age counts, to
  // its start at the device. `early_ms`: how much sooner than predicted it starts.
  static void describe(const Lane& lane, double lead_ms, double early_ms, Common* common) {
    const double slo_ms = lane.assignment->slo_ms;
    for (const double expected_ms : lane.expected_ms)
      common->oldest.push_back(slo_ms - expected_ms - kAllowanceMs + kLinkMs - lead_ms);
    common->queue.rate = lane.rate;
    common->queue.oldest = common->oldest;
    // The dispatcher drops by the predicted end of the batch that runs, which mostly ends earlier.
    common->queue.oldest_kept = common->oldest.front() - early_ms;
    common->queue.oldest_in_backlog = common->oldest.back() - early_ms;
    const bool exact =
        std::all_of(lane.cv.begin(), lane.cv.end(), [](double cv) { return cv == 0; });
    if (exact) return;
    const double start_ms = std::max(0.0, lead_ms - early_ms);
    common->queue.late_in_batch = [&lane, slo_ms, start_ms](std::size_t n, double age) {
      constexpr int kParts = 4;
      const double youngest = std::max(0.0, age - static_cast<double>(n) / lane.rate);
      const auto late = [&](double of_age) {
        double sum = 0;
        for (const TimePoint& slow : lane.slowdown[n - 1]) {
          const double ms = lane.alone_ms[n - 1] * slow.time;
          const double left_ms = slo_ms - of_age - start_ms - kLinkMs;
          sum +=
              slow.probability * (left_ms <= 0 ? 1 : log_normal_tail(left_ms / ms, lane.cv[n - 1]));
        }
        return sum;
      };
      double sum = late(age);
      for (int part = 0; n > 1 && part < kParts; ++part) {
        const double of_age = std::lerp(youngest, age, (part + 0.5) / kParts);
        sum += static_cast<double>(n - 1) / kParts * late(of_age);
      }
      return sum;
    };
  }

  // P(X > x) of a log-normal X with mean 1.
  static double log_normal_tail(double x, double cv) {
    if (cv == 0) return x < 1 ? 1 : 0;
    const double variance = std::log1p(cv * cv);
    return normal_tail((std::log(x) + variance / 2) / std::sqrt(variance));
  }

  // The lane gathers requests: its batch leaves when it is full, when the duty cycle is over, or
  // when the oldest request cannot wait.
  static void solve_alone(LaneGroup& group) {
    Lane& lane = group.lanes.front();
    const std::size_t batch = lane.batch();
    const AtLeast fills(batch);
    const AtLeast fills_up(batch - 1);
    const double full_expected_ms = lane.expected_ms.back();
    const double early_ms = std::max(0.0, full_expected_ms - lane.mean_ms.back()) + kLinkMs;
    Common common;
    describe(lane, 0, 0, &common);
    common.queue.oldest_in_backlog = common.oldest.back() - early_ms;
    common.queue.oldest_kept = common.oldest.front() - early_ms;
    // A full batch is sent while the one before runs, so the queue holds those behind it only.
    common.queue.backlog = 2 * batch;
    const double latest_age = lane.assignment->slo_ms - full_expected_ms - kAllowanceMs;
    common.queue.longest_cycle =
        std::max(group.duty_cycle_ms, lane.most_ms.back() / group.turns) + kLinkMs;
    common.queue.cycle = [&](std::size_t n, double, double left, std::vector<TimePoint>& times) {
      double turn_ms = group.duty_cycle_ms;
      if (left >= 0) turn_ms = std::min(turn_ms, std::max(0.0, latest_age - left));
      turn_ms += kLinkMs;
      const auto full_by = [&](double ms) {
        return left >= 0 ? fills_up(lane.rate * (left + ms)) : fills(lane.rate * ms);
      };
      for (const TimePoint& slow : lane.slowdown[n - 1]) {
        const double ms = lane.alone_ms[n - 1] * slow.time / group.turns;
        const double variance = std::pow(ms * lane.cv[n - 1], 2);
        for (const TimePoint& own : points_of_noise(ms, variance)) {
          const double probability = slow.probability * own.probability;
          if (own.time >= turn_ms) {
            times.push_back({own.time, probability});
            continue;
          }
          constexpr int kParts = 3;
          double before = full_by(own.time);
          times.push_back({own.time, probability * before});
          for (int part = 1; part <= kParts; ++part) {
            const double until = full_by(std::lerp(own.time, turn_ms, part / double{kParts}));
            times.push_back({std::lerp(own.time, turn_ms, (part - 0.5) / kParts),
                             probability * (until - before)});
            before = until;
          }
          times.push_back({turn_ms, probability * (1 - before)});
        }
      }
    };
    const TimePoint at_once{kLinkMs, 1};
    common.queue.idle = {&at_once, 1};
    note(lane, solve_queue(common.queue, kCells));
  }

  // Models that share a gpulet take turns without pause.
  static void solve_in_turn(LaneGroup& group) {
    double all_ms = 0;
    for (const Lane& lane : group.lanes) all_ms += lane.most_ms.back() + 2 * kLinkMs;
    const std::vector<OthersTable> others = OthersTable::of_slots(group, all_ms);
    std::vector<SlotOutcome> outcomes;
    for (std::size_t at = 0; at < group.lanes.size(); ++at)
      outcomes.push_back(solve_beside(group, at, others[at], all_ms));
    for (std::size_t at = 0; at < group.lanes.size(); ++at)
      note(group.lanes[at], std::move(outcomes[at]));
  }

  static SlotOutcome solve_beside(const LaneGroup& group, std::size_t at, const OthersTable& others,
                                  double all_ms) {
    const Lane& lane = group.lanes[at];
    const double others_cv = cv_of_others(group, at);
    Common common;
    describe(lane, kBoundAheadMs + kLinkMs, early_of_others(group, at), &common);
    common.queue.longest_cycle = all_ms;
    common.queue.cycle = [&](std::size_t n, double age, double, std::vector<TimePoint>& times) {
      const double gap_ms = gap_after(lane, n);
      // The requests of the others' batches arrived in this cycle and in the one before.
      const double known_ms = age + 1 / lane.rate + lane.mean_ms[n - 1] + gap_ms;
      double window_ms = known_ms;
      constexpr int kSteps = 4;
      for (int step = 0; step < kSteps; ++step)
        window_ms = std::min((known_ms + others.mean_ms(window_ms)) / 2, all_ms);
      others.each(window_ms, [&](double rest_ms, double probability) {
        for (const TimePoint& slow : lane.slowdown[n - 1]) {
          const double own_ms = lane.alone_ms[n - 1] * slow.time;
          const double noise =
              std::pow(own_ms * lane.cv[n - 1], 2) + std::pow(rest_ms * others_cv, 2);
          for (const TimePoint& one : points_of_noise(own_ms + gap_ms + rest_ms, noise))
            times.push_back({one.time, probability * slow.probability * one.probability});
        }
      });
    };
    const std::vector<TimePoint> idle = idle_beside(group, at);
    common.queue.idle = idle;
    return solve_queue(common.queue, kCells);
  }

  template <typename Visit>
  static void each_other(const LaneGroup& group, std::size_t at, const Visit& visit) {
    for (std::size_t other = 0; other < group.lanes.size(); ++other) {
      if (other != at) visit(group.lanes[other]);
    }
  }

  // The coefficient of variation of the sum of the others' batches.
  static double cv_of_others(const LaneGroup& group, std::size_t at) {
    double sum_ms = 0;
    double variance = 0;
    each_other(group, at, [&](const Lane& lane) {
      sum_ms += lane.mean_ms.back();
      variance += std::pow(lane.mean_ms.back() * lane.cv.back(), 2);
    });
    return std::sqrt(variance) / sum_ms;
  }

  // How much earlier than predicted the others' batches end, on average.
  static double early_of_others(const LaneGroup& group, std::size_t at) {
    double busy = 0;
    double early_ms = 0;
    each_other(group, at, [&](const Lane& lane) {
      for (std::size_t n = 1; n <= lane.batch(); ++n) {
        const double part = lane.busy * lane.outcome.batches[n];
        busy += part;
        early_ms += part * std::max(0.0, lane.expected_ms[n - 1] - lane.mean_ms[n - 1]);
      }
    });
    return busy > 0 ? early_ms / busy : 0;
  }

  // A request at a slot that has none waits until the next batch is chosen: while one of the others
  // runs, for the rest of that, less the time that the choice comes ahead. Where the batch behind
  // it has been chosen already, for that one as well.
  static std::vector<TimePoint> idle_beside(const LaneGroup& group, std::size_t at) {
    std::vector<TimePoint> batches;  // of the others, and what part of their batches has that time
    double busy = 0;
    double mean_ms = 0;
    double others = 0;
    each_other(group, at, [&](const Lane& lane) {
      busy += lane.busy;
      const double lane_ms = mean_batch_ms(lane);
      if (!(lane_ms > 0)) return;
      const double per_ms = lane.busy / lane_ms;  // batches
      others += per_ms;
      for (std::size_t n = 1; n <= lane.batch(); ++n) {
        const double part = per_ms * lane.outcome.batches[n];
        if (part <= 0) continue;
        mean_ms += part * lane.mean_ms[n - 1];
        for (const TimePoint& one : points_of_noise(lane.mean_ms[n - 1], lane.variance[n - 1]))
          batches.push_back({one.time, part * one.probability});
      }
    });
    if (busy <= 0 || mean_ms <= 0) return {{0, 1}};
    compress(&batches, kIdlePoints);
    const double scale = std::min(busy, 1.0) / mean_ms;  // `busy` may exceed 1
    std::vector<TimePoint> idle{{0, std::max(0.0, 1 - busy)}};
    constexpr int kParts = 4;
    for (const TimePoint& running : batches) {
      const double ahead_ms = std::min(kBoundAheadMs, running.time);
      const double open_ms = running.time - ahead_ms;
      for (int part = 0; part < kParts && open_ms > 0; ++part)
        idle.push_back(
            {open_ms * (part + 0.5) / kParts, scale * running.probability * open_ms / kParts});
      const double chosen = scale * running.probability * ahead_ms;
      idle.push_back({0, chosen * (1 - std::min(busy, 1.0))});
      for (const TimePoint& next : batches)
        idle.push_back({std::max(0.0, next.time - ahead_ms / 2),
                        chosen * std::min(busy, 1.0) * next.probability / others});
    }
    compress(&idle, 3 * kIdlePoints);
    return idle;
  }
  static constexpr std::size_t kIdlePoints = 10;

  static double mean_batch_ms(const Lane& lane) {
    double sum = 0;
    for (std::size_t n = 1; n <= lane.batch(); ++n)
      sum += lane.outcome.batches[n] * lane.mean_ms[n - 1];
    return sum;
  }

  std::vector<LaneGroup>& groups_;
  const profile::InterferenceModel* interference_;
};

}  // namespace

void solve_device(std::vector<LaneGroup>& groups, const profile::InterferenceModel* interference) {
  DevicePrediction(groups, interference).run();
}

}  // namespace gpulet::schedule

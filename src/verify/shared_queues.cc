#include "verify/shared_queues.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>
#include <variant>

#include "gpulet/base/random.h"
#include "gpulet/batching/dispatch_policy.h"
#include "gpulet/profile/interference.h"
#include "gpulet/verify/verified_plan.h"

namespace gpulet::verify {
namespace {

// What the engine adds to the times of a profile (docs/scheduling.md, "Random arrivals").
constexpr Duration kLink = std::chrono::microseconds(100);
constexpr Duration kBoundAhead = std::chrono::microseconds(300);
constexpr std::size_t kBatchesInFlight = 2;  // of a gpulet

class Simulation {
 public:
  Simulation(const SharedQueues& setup, std::uint64_t seed) : setup_(setup), random_(seed) {
    for (const SharedQueue& queue : setup.queues) {
      queues_.push_back({.mean_gap_ms = 1000 / queue.rate, .objective = queue.objective});
      next_arrivals_.emplace_back();
      set_next_arrival(queues_.size() - 1);
    }
    gpulets_.resize(setup.gpulets.size());
    for (std::size_t at = 0; at < gpulets_.size(); ++at) {
      for (const SharedSlot& slot : setup.gpulets[at].slots) {
        Queue& queue = queues_[slot.queue];
        queue.candidates.push_back({at, gpulets_[at].slots.size()});
        queue.room += slot.execution.size();
        gpulets_[at].slots.push_back(
            {{}, {slot.rate, 0}, std::vector<LogNormal>(slot.cv.begin(), slot.cv.end())});
      }
    }
    for (Queue& queue : queues_) {
      for (const auto& [gpulet, slot] : queue.candidates)
        queue.split.join(gpulets_[gpulet].slots[slot].part);
    }
  }

  LateParts late_of(const std::vector<AskedQueue>& asked, const std::optional<double>& limit) {
    std::vector<Asked> observed;
    for (const AskedQueue& one : asked)
      observed.push_back({one.queue, one.requests / kParts, one.expected});
    std::size_t arrived = 0;
    for (std::size_t next = next_end(observed); next < kNoEnd; next = next_end(observed)) {
      run(next - arrived);
      arrived = next;
      for (Asked& one : observed) {
        if (!one.ended && one.end() == next) end_part(one, limit);
      }
    }
    LateParts late;
    late.requests = arrived;
    for (const Asked& one : observed) {
      late.parts.push_back({one.sample.mean(), one.sample.bad_minute(of_minute(one))});
    }
    return late;
  }

 private:
  static constexpr std::size_t kParts = 90;
  // With a limit, where the result is clear by then.
  static constexpr std::size_t kPartsWithLimit = 30;
  static constexpr std::size_t kLeastParts = 8;
  static constexpr std::size_t kNoEnd = std::numeric_limits<std::size_t>::max();

  // What a part of late requests with this mean and variance exceeds in one of 30,000 cases: of the
  // gamma distribution, by Wilson and Hilferty. Parts that scatter widely are skewed. Their formula
  // rises with the variance up to a deviation of six times the mean, and is held from there on.
  static double exceeded_rarely(double mean, double variance) {
    constexpr double kDeviations = 4;
    constexpr double kMostNinth = kDeviations * kDeviations / 4;
    const double ninth = std::min(variance / (9 * mean * mean), kMostNinth);
    return mean * std::pow(1 - ninth + kDeviations * std::sqrt(ninth), 3);
  }

  // The part of late requests, and how far it is known.
  class Sample {
   public:
    void add(double offered, double late) {
      offered_ += offered;
      late_ += late;
      offered_squares_ += offered * offered;
      late_squares_ += late * late;
      products_ += offered * late;
    }
    [[nodiscard]] double mean() const { return offered_ > 0 ? late_ / offered_ : 0; }
    // Of late requests, and so of bursts.
    [[nodiscard]] bool has_many() const { return late_ >= kMany; }
    [[nodiscard]] bool is_clearly_below(double limit) const {
      return (limit - mean()) * offered_ > kDeviations * std::sqrt(squares());
    }
    [[nodiscard]] bool is_clearly_above(double limit) const {
      return mean() > 2 * limit && (mean() - limit) * offered_ > kDeviations * std::sqrt(squares());
    }
    // With that many requests in a minute.
    [[nodiscard]] double bad_minute(double requests) const {
      if (!(late_ > 0)) return 0;
      const double independent = mean() * (1 - mean());
      const double variance = std::max(squares() / offered_, independent) / requests;
      constexpr double kMost = kMostLateInBadMinute;
      const double by_chance = exceeded_rarely(kMost, kMost * (1 - kMost) / requests) - kMost;
      return exceeded_rarely(mean(), variance) - by_chance;
    }

   private:
    static constexpr double kDeviations = 3;
    static constexpr double kMany = 100;

    // The sum over the parts of the squares by which their late requests deviate from the mean.
    [[nodiscard]] double squares() const {
      const double part = mean();
      return std::max(0.0, late_squares_ - 2 * part * products_ + part * part * offered_squares_);
    }

    double offered_ = 0;
    double late_ = 0;
    double offered_squares_ = 0;
    double late_squares_ = 0;
    double products_ = 0;
  };

  // A queue whose late requests are observed, part by part.
  struct Asked {
    std::size_t queue = 0;
    std::size_t requests = 0;  // of all queues, in each part
    double expected = 0;
    std::size_t parts = 0;  // that have ended
    std::uint64_t offered = 0;
    std::uint64_t late = 0;
    Sample sample{};
    bool ended = false;

    // Of the part, in arrivals since the start.
    [[nodiscard]] std::size_t end() const { return (parts + 1) * requests; }
  };

  static std::size_t next_end(const std::vector<Asked>& observed) {
    std::size_t next = kNoEnd;
    for (const Asked& one : observed) {
      if (!one.ended) next = std::min(next, one.end());
    }
    return next;
  }

  [[nodiscard]] double of_minute(const Asked& one) const {
    return 60 * setup_.queues[one.queue].rate;
  }

  [[nodiscard]] bool suffices(const Asked& one, double limit) const {
    if (one.parts < kLeastParts) return false;
    if (one.sample.mean() > limit)
      return one.parts >= kPartsWithLimit || one.sample.is_clearly_above(limit);
    // One burst among few parts looks like many.
    if (one.sample.bad_minute(of_minute(one)) > kMostLateInBadMinute) return false;
    // Bursts may be so rare that none has come yet.
    if (one.expected <= limit && one.sample.is_clearly_below(limit / 2)) return true;
    if (one.parts < kPartsWithLimit) return false;
    const bool is_rare = one.expected <= 2 * limit && one.sample.mean() <= limit / 2;
    return is_rare || (one.sample.has_many() && one.sample.is_clearly_below(limit));
  }

  void end_part(Asked& one, const std::optional<double>& limit) const {
    const Queue& queue = queues_[one.queue];
    one.sample.add(static_cast<double>(queue.offered - one.offered),
                   static_cast<double>(queue.late - one.late));
    one.offered = queue.offered;
    one.late = queue.late;
    ++one.parts;
    one.ended = one.parts == kParts || (limit && suffices(one, *limit));
  }

  void run(std::size_t requests) {
    for (std::size_t arrived = 0; arrived < requests;) {
      const auto next = std::min_element(next_arrivals_.begin(), next_arrivals_.end());
      if (!events_.empty() && events_.top().time <= *next) {
        const Event event = events_.top();
        events_.pop();
        now_ = event.time;
        handle(event);
        continue;
      }
      now_ = *next;
      const auto index = static_cast<std::size_t>(next - next_arrivals_.begin());
      Queue& queue = queues_[index];
      queue.waiting.push_back(now_ + queue.objective);
      ++queue.offered;
      ++arrived;
      set_next_arrival(index);
      pump_queue(index);
    }
  }

  struct Queue {
    double mean_gap_ms = 0;
    Duration objective{};
    std::deque<Time> waiting{};  // deadlines, in the order of arrival
    std::vector<std::pair<std::size_t, std::size_t>> candidates{};  // gpulet and slot
    std::size_t room = 0;
    batching::RateSplit split{};
    std::uint64_t offered = 0;
    std::uint64_t late = 0;
  };
  struct Slot {
    Time turn{};
    batching::RateSplit::Slot part;
    std::vector<LogNormal> noise;  // [n - 1]
  };
  struct InFlight {
    RunningBatch batch;
    Duration expected{};
    Time predicted_end{};
    std::vector<Time> deadlines;
    Duration duration{};  // once it arrived at the backend
  };
  struct Gpulet {
    std::vector<Slot> slots;
    Time busy_until{};
    Duration expected{};  // of the batches in flight
    Time wake = kNever;
    Time free{};                     // when its process ends what it holds
    std::deque<InFlight> in_flight;  // the oldest first
    std::size_t arrived = 0;         // of them at the backend
    batching::Allowance allowance;
  };
  enum class Kind : std::uint8_t { arrives, ended, wakes };
  struct Event {
    Time time{};
    std::uint64_t order = 0;
    Kind kind{};
    std::size_t gpulet = 0;

    friend bool operator>(const Event& a, const Event& b) {
      return std::tie(a.time, a.order) > std::tie(b.time, b.order);
    }
  };

  void set_next_arrival(std::size_t queue) {
    next_arrivals_[queue] += from_ms(random_.exponential(queues_[queue].mean_gap_ms));
  }

  void add(Time time, Kind kind, std::size_t gpulet) {
    events_.push({time, next_order_++, kind, gpulet});
  }

  void handle(const Event& event) {
    Gpulet& gpulet = gpulets_[event.gpulet];
    switch (event.kind) {
      case Kind::arrives:
        return start(event.gpulet);
      case Kind::ended:
        complete(gpulet);
        return pump_gpulet(event.gpulet);
      case Kind::wakes:
        if (gpulet.wake != event.time) return;
        gpulet.wake = kNever;
        return pump_gpulet(event.gpulet);
    }
  }

  // ---- the device

  void start(std::size_t index) {
    Gpulet& gpulet = gpulets_[index];
    InFlight& held = gpulet.in_flight[gpulet.arrived++];
    double slowdown = 1;
    for (std::size_t other = 0; setup_.slowdown && other < gpulets_.size(); ++other) {
      if (other == index || setup_.gpulets[other].device != setup_.gpulets[index].device) continue;
      if (gpulets_[other].arrived == 0) continue;
      slowdown = profile::add_neighbour(
          slowdown, setup_.slowdown(held.batch, gpulets_[other].in_flight.front().batch));
    }
    const SharedSlot& slot = setup_.gpulets[index].slots[held.batch.slot];
    const double ms = slot.alone_ms[held.batch.count - 1] * slowdown *
                      random_.log_normal(gpulet.slots[held.batch.slot].noise[held.batch.count - 1]);
    gpulet.free = std::max(gpulet.free, now_) + from_ms(ms);
    add(gpulet.free + kLink, Kind::ended, index);
  }

  void complete(Gpulet& gpulet) {
    const InFlight held = std::move(gpulet.in_flight.front());
    gpulet.in_flight.pop_front();
    --gpulet.arrived;
    gpulet.allowance.observe(now_ - held.predicted_end, held.expected);
    gpulet.expected -= held.expected;
    gpulet.busy_until = now_ + gpulet.expected;
    const SharedSlot& slot = setup_.gpulets[held.batch.gpulet].slots[held.batch.slot];
    queues_[slot.queue].late += static_cast<std::uint64_t>(
        std::count_if(held.deadlines.begin(), held.deadlines.end(),
                      [this](Time deadline) { return deadline < now_; }));
  }

  // ---- the dispatcher (serve/dispatch/round_dispatch.cc)

  [[nodiscard]] const SharedSlot& slot_of(std::size_t gpulet, std::size_t slot) const {
    return setup_.gpulets[gpulet].slots[slot];
  }

  [[nodiscard]] bool backlogged(const Queue& queue) const {
    return queue.waiting.size() > queue.room;
  }

  [[nodiscard]] Time reachable(std::size_t gpulet, std::size_t slot) const {
    const SharedSlot& known = slot_of(gpulet, slot);
    const bool full = queues_[known.queue].waiting.size() > known.execution.size();
    const Duration execution = full ? known.execution.back() : known.execution.front();
    return std::max(now_, gpulets_[gpulet].busy_until) + execution +
           gpulets_[gpulet].allowance.for_execution(execution);
  }

  void drop_hopeless(std::size_t index) {
    Queue& queue = queues_[index];
    if (queue.waiting.empty()) return;
    Time earliest = kNever;
    for (const auto& [gpulet, slot] : queue.candidates) {
      earliest = std::min(earliest, reachable(gpulet, slot));
      if (earliest <= queue.waiting.front()) return;
    }
    while (!queue.waiting.empty() && queue.waiting.front() < earliest) {
      queue.waiting.pop_front();
      ++queue.late;
    }
  }

  struct View {
    batching::SlotView view;
    std::size_t first = 0;  // of the queue's requests that the slot can serve in time
  };
  [[nodiscard]] View view_of(std::size_t gpulet, std::size_t slot) const {
    const Gpulet& state = gpulets_[gpulet];
    const SharedSlot& known = slot_of(gpulet, slot);
    const std::deque<Time>& waiting = queues_[known.queue].waiting;
    View result;
    const Time from = reachable(gpulet, slot);
    while (result.first < waiting.size() && waiting[result.first] < from) ++result.first;
    batching::SlotView& view = result.view;
    view.waiting = waiting.size() - result.first;
    if (view.waiting == 0) return result;
    view.most_urgent = waiting[result.first];
    view.execution = known.execution;
    view.turn = state.slots[slot].turn;
    view.start = std::max(now_, state.busy_until);
    const std::size_t count = std::min(view.waiting, known.execution.size());
    view.allowance = state.allowance.for_execution(known.execution[count - 1]);
    view.bind = state.in_flight.empty() ? now_ : view.start - kBoundAhead;
    return result;
  }

  void wake_at(std::size_t gpulet, Time time) {
    if (time == kNever || time >= gpulets_[gpulet].wake) return;
    gpulets_[gpulet].wake = time;
    add(time, Kind::wakes, gpulet);
  }

  void dispatch(std::size_t gpulet, std::size_t slot, const View& seen, std::uint32_t count) {
    Gpulet& state = gpulets_[gpulet];
    const SharedSlot& known = slot_of(gpulet, slot);
    Queue& queue = queues_[known.queue];
    InFlight held{{gpulet, slot, count}, known.execution[count - 1], {}, {}, {}};
    const auto first = queue.waiting.begin() + static_cast<std::ptrdiff_t>(seen.first);
    held.deadlines.assign(first, first + count);
    queue.waiting.erase(first, first + count);
    state.expected += held.expected;
    state.busy_until = std::max(now_, state.busy_until) + held.expected;
    held.predicted_end = state.busy_until;
    state.slots[slot].turn = now_ + setup_.gpulets[gpulet].duty_cycle;
    queue.split.take(state.slots[slot].part, count, known.execution.size());
    state.in_flight.push_back(std::move(held));
    add(now_ + kLink, Kind::arrives, gpulet);
  }

  // Returns whether a batch left.
  bool pump_alone(std::size_t gpulet) {
    Gpulet& state = gpulets_[gpulet];
    if (state.in_flight.size() >= kBatchesInFlight) return false;
    View seen = view_of(gpulet, 0);
    if (seen.view.waiting == 0) return false;
    const Queue& queue = queues_[slot_of(gpulet, 0).queue];
    seen.view.yields = queue.split.ahead(state.slots.front().part) && !backlogged(queue);
    const batching::Decision decision = batching::decide(seen.view, now_);
    if (const auto* wait = std::get_if<batching::WaitUntil>(&decision)) {
      wake_at(gpulet, wait->time);
      return false;
    }
    dispatch(gpulet, 0, seen, std::get<batching::Dispatch>(decision).count);
    return true;
  }

  // The slot that was served longest ago, of those that do not leave their turn to others.
  [[nodiscard]] std::pair<std::size_t, View> next_in_turn(std::size_t gpulet) const {
    const Gpulet& state = gpulets_[gpulet];
    std::pair<std::size_t, View> next{state.slots.size(), {}};
    for (std::size_t slot = 0; slot < state.slots.size(); ++slot) {
      const Queue& queue = queues_[slot_of(gpulet, slot).queue];
      if (queue.waiting.empty()) continue;
      if (queue.split.ahead(state.slots[slot].part) &&
          !(state.in_flight.empty() && backlogged(queue)))
        continue;
      if (next.first < state.slots.size() && state.slots[next.first].turn <= state.slots[slot].turn)
        continue;
      View seen = view_of(gpulet, slot);
      if (seen.view.waiting > 0) next = {slot, std::move(seen)};
    }
    return next;
  }

  bool pump_in_turn(std::size_t gpulet) {
    const Gpulet& state = gpulets_[gpulet];
    if (state.in_flight.size() >= kBatchesInFlight) return false;
    const Time bind = std::max(now_, state.busy_until) - kBoundAhead;
    if (!state.in_flight.empty() && now_ < bind) {  // whichever slot is next
      wake_at(gpulet, bind);
      return false;
    }
    const auto [slot, seen] = next_in_turn(gpulet);
    if (slot == state.slots.size()) return false;
    const std::vector<Duration>& execution = slot_of(gpulet, slot).execution;
    const auto count = static_cast<std::uint32_t>(std::min(seen.view.waiting, execution.size()));
    dispatch(gpulet, slot, seen,
             batching::largest_batch_by(execution, count, seen.view.start + seen.view.allowance,
                                        seen.view.most_urgent));
    return true;
  }

  bool pump(std::size_t gpulet) {
    return gpulets_[gpulet].slots.size() > 1 ? pump_in_turn(gpulet) : pump_alone(gpulet);
  }

  void pump_queue(std::size_t index) {
    // A batch of one slot may make it the turn of another.
    bool again = true;
    while (std::exchange(again, false)) {
      for (const auto& candidate : queues_[index].candidates) {
        while (pump(candidate.first)) again = queues_[index].candidates.size() > 1;
      }
    }
    drop_hopeless(index);
  }

  void pump_gpulet(std::size_t gpulet) {
    if (gpulets_[gpulet].slots.size() == 1) return pump_queue(slot_of(gpulet, 0).queue);
    while (pump_in_turn(gpulet)) {
    }
    for (const SharedSlot& slot : setup_.gpulets[gpulet].slots) drop_hopeless(slot.queue);
  }

  const SharedQueues& setup_;
  Random random_;
  Time now_{};
  std::vector<Queue> queues_;
  std::vector<Time> next_arrivals_;  // by queue
  std::vector<Gpulet> gpulets_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t next_order_ = 0;
};

}  // namespace

LateParts simulate_late(const SharedQueues& queues, const std::vector<AskedQueue>& asked,
                        std::uint64_t seed, const std::optional<double>& limit) {
  return Simulation(queues, seed).late_of(asked, limit);
}

}  // namespace gpulet::verify

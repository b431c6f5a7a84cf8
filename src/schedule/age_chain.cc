#include "schedule/age_chain.h"

#include <algorithm>
#include <cmath>

namespace gpulet::schedule {
namespace {

// Probabilities of ages on an equidistant grid. A mass between two points is divided between them
// so that its mean stays.
class AgeGrid {
 public:
  // `limit`, where the chain has a jump, becomes a point of the grid.
  AgeGrid(double longest, double limit, std::size_t cells)
      : step_(longest / static_cast<double>(cells - 1)), cells_(cells) {
    if (limit > step_) {
      step_ = limit / std::ceil(limit / step_);
      cells_ = static_cast<std::size_t>(std::ceil(longest / step_)) + 1;
    }
  }

  [[nodiscard]] double age(std::size_t cell) const { return step_ * static_cast<double>(cell); }
  [[nodiscard]] std::size_t cells() const { return cells_; }
  [[nodiscard]] double step() const { return step_; }

  void add(std::span<double> row, double age, double mass) const {
    const double position = std::clamp(age / step_, 0.0, static_cast<double>(cells_ - 1));
    const auto below = std::min(static_cast<std::size_t>(position), cells_ - 2);
    const double part = position - static_cast<double>(below);
    row[below] += mass * (1 - part);
    row[below + 1] += mass * part;
  }

  // Adds `mass` times the distribution of `from` minus an exponential time of that rate. Returns
  // the mass below zero, which it does not add.
  double add_minus_exponential(std::span<double> row, double from, double rate, double mass) const {
    // Cell by cell downwards: the survival of the exponential time at the cell's lower edge.
    double upper = std::min(from, age(cells_ - 1));
    double survival = std::exp(-rate * (from - upper));
    if (survival < 1) add(row, upper, mass * (1 - survival));
    while (upper > 0) {
      const auto cell = static_cast<std::size_t>(std::ceil(upper / step_ - 1e-9)) - 1;
      const double lower = age(cell);
      const double width = upper - lower;
      const double next = survival * std::exp(-rate * width);
      const double inside = survival - next;
      if (inside > 0) {
        // The mean distance from the upper edge of an exponential time within the cell.
        const double distance = 1 / rate - width * next / inside;
        add(row, upper - distance, mass * inside);
      }
      survival = next;
      upper = lower;
    }
    return mass * survival;
  }

 private:
  double step_;
  std::size_t cells_;
};

// P(N = n) and P(N >= n) of Poisson numbers of arrivals, for every age of a grid and n up to a
// limit.
class Arrivals {
 public:
  Arrivals(const AgeGrid& grid, double rate, std::size_t most)
      : count_(most + 1), exactly_(grid.cells() * count_), at_least_(grid.cells() * count_) {
    for (std::size_t cell = 0; cell < grid.cells(); ++cell) {
      const double mean = rate * grid.age(cell);
      double term = std::exp(-mean);
      double tail = 1;
      for (std::size_t n = 0; n < count_; ++n) {
        exactly_[cell * count_ + n] = term;
        at_least_[cell * count_ + n] = std::max(0.0, tail);
        tail -= term;
        term *= mean / static_cast<double>(n + 1);
      }
    }
  }

  [[nodiscard]] double exactly(std::size_t cell, std::size_t n) const {
    return exactly_[cell * count_ + n];
  }
  [[nodiscard]] double at_least(std::size_t cell, std::size_t n) const {
    return at_least_[cell * count_ + n];
  }

 private:
  std::size_t count_;
  std::vector<double> exactly_;
  std::vector<double> at_least_;
};

class Chain {
 public:
  Chain(const SlotQueue& slot, std::size_t cells)
      : slot_(slot),
        batch_(slot.oldest.size()),
        deep_(slot.backlog > 0 ? slot.backlog : batch_),
        kept_(std::min(slot.oldest_kept, slot.oldest.front())),
        backlog_(std::min(slot.oldest_in_backlog, slot.oldest.back())),
        grid_(slot.oldest.front() + slot.longest_cycle, backlog_, cells),
        next_empty_(grid_.cells() * grid_.cells()),
        transition_(grid_.cells() * grid_.cells()),
        after_drops_(grid_.cells() * grid_.cells()),
        weights_(grid_.cells()),
        lost_(grid_.cells()),
        late_(grid_.cells()),
        left_over_(grid_.cells()),
        batches_(grid_.cells() * (batch_ + 1)),
        arrivals_(grid_, slot.rate, std::max(batch_ + 1, deep_)) {}

  SlotOutcome solve() {
    for (std::size_t cell = 0; cell < grid_.cells(); ++cell) set_next_empty(cell);
    for (std::size_t cell = 0; cell < grid_.cells(); ++cell) set_start(cell);
    drop_hopeless();
    return outcome_of(stationary());
  }

 private:
  static constexpr double kNegligible = 1e-15;
  static constexpr double kRounding = 1e-9;

  [[nodiscard]] std::span<double> row(std::vector<double>& matrix, std::size_t at) const {
    return {matrix.data() + at * grid_.cells(), grid_.cells()};
  }

  // The age of the oldest request one cycle of grid_.age(cell) after a batch that left none.
  void set_next_empty(std::size_t cell) {
    const std::span<double> ages = row(next_empty_, cell);
    const double none = grid_.add_minus_exponential(ages, grid_.age(cell), slot_.rate, 1);
    if (slot_.idle.empty()) ages[0] += none;
    for (const TimePoint& point : slot_.idle) grid_.add(ages, point.time, none * point.probability);
  }

  // What a batch that starts with an oldest request of that age takes and leaves.
  void set_start(std::size_t cell) {
    const double age = grid_.age(cell);
    std::size_t most = batch_;
    while (most > 1 && slot_.oldest[most - 1] * (1 + kRounding) < age) --most;
    const std::span<double> next = row(transition_, cell);
    std::fill(weights_.begin(), weights_.end(), 0.0);
    double* const batches = &batches_[cell * (batch_ + 1)];
    for (std::size_t n = 1; n <= most; ++n) {
      const double probability = arrivals_.exactly(cell, n - 1);
      batches[n] = probability;
      if (probability < kNegligible) continue;
      times_.clear();
      slot_.cycle(n, age, SlotQueue::kNone, times_);
      for (const TimePoint& point : times_)
        grid_.add(weights_, point.time, probability * point.probability);
    }
    for (std::size_t cycle = 0; cycle < grid_.cells(); ++cycle) {
      if (weights_[cycle] == 0) continue;
      const std::span<double> from = row(next_empty_, cycle);
      for (std::size_t to = 0; to < grid_.cells(); ++to) next[to] += weights_[cycle] * from[to];
    }
    add_left_over(next, cell, most);
    left_over_[cell] = arrivals_.at_least(cell, most);
    batches[most] += left_over_[cell];
    if (!slot_.late_in_batch) return;
    for (std::size_t n = 1; n <= most; ++n) {
      if (batches[n] > kNegligible) late_[cell] += batches[n] * slot_.late_in_batch(n, age);
    }
  }

  // Adds the next starts where more than `taken` requests wait: the next one arrived an Erlang time
  // after the oldest.
  void add_left_over(std::span<double> to, std::size_t age, std::size_t taken) {
    const double mean = static_cast<double>(taken) / slot_.rate;  // of the Erlang time
    for (std::size_t cell = 1; cell <= age; ++cell) {
      const double mass = arrivals_.at_least(cell, taken) - arrivals_.at_least(cell - 1, taken);
      if (mass < kNegligible) continue;
      const double time =
          mean / mass *
          (arrivals_.at_least(cell, taken + 1) - arrivals_.at_least(cell - 1, taken + 1));
      const double left = grid_.age(age) - std::clamp(time, grid_.age(cell - 1), grid_.age(cell));
      times_.clear();
      slot_.cycle(taken, grid_.age(age), left, times_);
      for (const TimePoint& point : times_)
        grid_.add(to, left + point.time, mass * point.probability);
    }
  }

  // Requests that no batch can serve in time are dropped first: by the largest batch where more
  // wait than it holds, else by one of a single request.
  void drop_hopeless() {
    std::vector<double> next(grid_.cells() * grid_.cells());
    for (std::size_t cell = 0; cell < grid_.cells(); ++cell) {
      const double age = grid_.age(cell);
      const double backlog = arrivals_.at_least(cell, deep_);
      const std::span<double> ages = row(after_drops_, cell);
      double lost = 0;
      for (const auto& [limit, mass] :
           {std::pair(backlog_, backlog), std::pair(kept_, 1 - backlog)}) {
        if (age <= limit * (1 + kRounding)) {
          ages[cell] += mass;
          continue;
        }
        lost += mass * (1 + slot_.rate * (age - std::max(limit, 0.0)));
        const double none =
            limit > 0 ? grid_.add_minus_exponential(ages, limit, slot_.rate, mass) : mass;
        ages[0] += none;
      }
      lost_[cell] = lost;
      const std::span<double> to = row(next, cell);
      for (std::size_t from = 0; from < grid_.cells(); ++from) {
        if (ages[from] == 0) continue;
        const std::span<double> other = row(transition_, from);
        for (std::size_t at = 0; at < grid_.cells(); ++at) to[at] += ages[from] * other[at];
      }
    }
    transition_ = std::move(next);
  }

  SlotOutcome outcome_of(const std::vector<double>& part) {
    std::vector<double> starts(grid_.cells());  // by age, after drops
    double lost = 0;
    for (std::size_t cell = 0; cell < grid_.cells(); ++cell) {
      lost += part[cell] * lost_[cell];
      const std::span<double> ages = row(after_drops_, cell);
      for (std::size_t to = 0; to < grid_.cells(); ++to) starts[to] += part[cell] * ages[to];
    }
    SlotOutcome outcome;
    outcome.batches.resize(batch_ + 1);
    double late = 0;
    for (std::size_t cell = 0; cell < grid_.cells(); ++cell) {
      late += starts[cell] * late_[cell];
      outcome.left_over += starts[cell] * left_over_[cell];
      for (std::size_t n = 1; n <= batch_; ++n)
        outcome.batches[n] += starts[cell] * batches_[cell * (batch_ + 1) + n];
    }
    double taken = 0;
    for (std::size_t n = 1; n <= batch_; ++n) taken += static_cast<double>(n) * outcome.batches[n];
    const double all = lost + taken;
    outcome.late = all > 0 ? std::clamp((lost + late) / all, 0.0, 1.0) : 0;
    return outcome;
  }

  // The stationary distribution, by elimination without subtraction (Grassmann, Taksar, Heyman).
  std::vector<double> stationary() {
    const std::size_t count = grid_.cells();
    for (std::size_t last = count - 1; last > 0; --last) {
      const std::span<double> from = row(transition_, last);
      double leaves = 0;
      for (std::size_t to = 0; to < last; ++to) leaves += from[to];
      if (leaves <= 0) continue;
      for (std::size_t at = 0; at < last; ++at) {
        double& into = row(transition_, at)[last];
        if (into == 0) continue;
        into /= leaves;
        const std::span<double> other = row(transition_, at);
        for (std::size_t to = 0; to < last; ++to) other[to] += into * from[to];
      }
    }
    std::vector<double> part(count, 0.0);
    part[0] = 1;
    double sum = 1;
    for (std::size_t cell = 1; cell < count; ++cell) {
      for (std::size_t before = 0; before < cell; ++before)
        part[cell] += part[before] * row(transition_, before)[cell];
      sum += part[cell];
    }
    for (double& one : part) one /= sum;
    return part;
  }

  const SlotQueue& slot_;
  std::size_t batch_;
  std::size_t deep_;
  double kept_;
  double backlog_;
  AgeGrid grid_;
  std::vector<double> next_empty_;   // [cycle on the grid][age]
  std::vector<double> transition_;   // [age][next age]
  std::vector<double> after_drops_;  // [age][age after the drops]
  std::vector<double> weights_;      // of the cycles on the grid
  std::vector<double> lost_;         // mean number of requests dropped before a batch, by age
  std::vector<double> late_;         // mean number of late requests of a batch, by age
  std::vector<double> left_over_;    // whether a batch leaves requests, by age
  std::vector<double> batches_;      // [age][requests]: probability
  std::vector<TimePoint> times_;
  Arrivals arrivals_;
};

}  // namespace

SlotOutcome solve_queue(const SlotQueue& slot, std::size_t cells) {
  return Chain(slot, cells).solve();
}

}  // namespace gpulet::schedule

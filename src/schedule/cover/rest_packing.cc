#include "schedule/cover/rest_packing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "schedule/cover/relaxation.h"
#include "schedule/duty_cycle.h"

namespace gpulet::schedule {
namespace {

// Of each rest, the pairs with the others that have the fewest are columns.
constexpr std::size_t kMostPartners = 40;
// Rounds of new triples. In each, every rest gets up to kMostTriples of those that it comes first
// in, from kMostTests tests.
constexpr int kTripleRounds = 3;
constexpr std::size_t kMostTriples = 10;
constexpr std::size_t kMostTests = 50;
// The linear program's solution is exact to about this.
constexpr double kSolverPrecision = 1e-6;
// Rounding takes at least so many sets before it solves the rest again, and more where that would
// take more than about kMostSolves times.
constexpr std::size_t kFixedAtOnce = 8;
constexpr std::size_t kMostSolves = 24;

// Sets of rests, by index.
using RestSet = std::vector<std::uint32_t>;

class RestPacking {
 public:
  explicit RestPacking(PlanContext& context)
      : context_(context),
        size_(static_cast<std::uint32_t>(context.classes().front().sizes.size() - 1)) {
    list_rests();
  }

  // Sets that have each rest exactly once.
  [[nodiscard]] std::vector<RestSet> pack() {
    for (std::uint32_t rest = 0; rest < rests_.size(); ++rest) columns_.push_back({rest});
    list_pairs();
    add_triples();
    return rounded();
  }

  // Gives up single rests as long as the others' devices serve everything.
  [[nodiscard]] PlanBuilder build(std::vector<RestSet> sets) {
    // The heaviest first, and at last the lightest single rests.
    std::stable_sort(sets.begin(), sets.end(), [this](const RestSet& a, const RestSet& b) {
      const bool is_single = a.size() == 1;
      if (is_single != (b.size() == 1)) return !is_single;
      return load_of(a) > load_of(b);
    });
    const auto singles = static_cast<std::size_t>(std::count_if(
        sets.begin(), sets.end(), [](const RestSet& set) { return set.size() == 1; }));
    std::size_t given_up = 0;
    std::size_t too_many = singles + 1;
    PlanBuilder best = build_first(sets, sets.size());
    if (!is_whole(best)) return best;
    while (given_up + 1 < too_many) {
      const std::size_t tried = std::midpoint(given_up, too_many);
      PlanBuilder builder = build_first(sets, sets.size() - tried);
      if (is_whole(builder)) {
        given_up = tried;
        best = std::move(builder);
      } else {
        too_many = tried;
      }
    }
    return best;
  }

 private:
  [[nodiscard]] const LatencyCurve& curve(const Portion& rest) const {
    return context_.curve(rest.model, 0, size_);
  }

  void list_rests() {
    for (std::uint32_t model = 0; model < context_.models().size(); ++model) {
      const double most = context_.curve(model, 0, size_).max_rate;
      if (most <= 0) continue;
      double rate = context_.models()[model]->rate;
      const double whole = std::floor(rate / most * (1 + kRoundingSlack));
      full_.insert(full_.end(), static_cast<std::size_t>(whole), {model, most});
      rate -= whole * most;
      if (rate > kRoundingSlack * context_.models()[model]->rate) rests_.push_back({model, rate});
    }
    beside_.assign(rests_.size() * rests_.size(), false);
  }

  [[nodiscard]] bool fit(std::span<const std::uint32_t> set) const {
    std::array<BatchSlot, 3> slots;
    double memory_mb = 0;
    for (std::size_t at = 0; at < set.size(); ++at) {
      const Portion& rest = rests_[set[at]];
      slots.at(at) = {&curve(rest), rest.rate, context_.models()[rest.model]->slo_ms, rest.model};
      memory_mb += context_.on_class(rest.model, 0).memory_mb;
    }
    const double limit_mb = context_.classes().front().example->memory_mb;
    if (limit_mb > 0 && memory_mb > limit_mb) return false;
    return min_duty_cycle_ms(std::span(slots).first(set.size())).has_value();
  }

  [[nodiscard]] bool pair_fits(std::uint32_t a, std::uint32_t b) const {
    return beside_[a * rests_.size() + b];
  }

  void list_pairs() {
    const auto count = static_cast<std::uint32_t>(rests_.size());
    std::vector<std::uint32_t> partners(count, 0);
    for (std::uint32_t a = 0; a < count; ++a) {
      for (std::uint32_t b = a + 1; b < count; ++b) {
        if (!fit(std::array{a, b})) continue;
        beside_[a * count + b] = beside_[b * count + a] = true;
        ++partners[a];
        ++partners[b];
      }
    }
    std::vector<std::uint32_t> order;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
    for (std::uint32_t a = 0; a < count; ++a) {
      order.clear();
      for (std::uint32_t b = 0; b < count; ++b) {
        if (pair_fits(a, b)) order.push_back(b);
      }
      std::stable_sort(order.begin(), order.end(),
                       [&](std::uint32_t x, std::uint32_t y) { return partners[x] < partners[y]; });
      if (order.size() > kMostPartners) order.resize(kMostPartners);
      for (const std::uint32_t b : order) pairs.push_back(std::minmax(a, b));
    }
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    for (const auto& [a, b] : pairs) columns_.push_back({a, b});
  }

  // Those of the remaining rests that the linear program would use.
  void add_triples() {
    const auto count = static_cast<std::uint32_t>(rests_.size());
    for (int round = 0; round < kTripleRounds; ++round) {
      const std::optional<Solution> solution =
          solve(columns_, std::vector<bool>(rests_.size(), false));
      if (!solution) return;
      const std::vector<double>& price = solution->prices;
      const std::size_t before = columns_.size();
      for (std::uint32_t a = 0; a < count; ++a) {
        std::size_t added = 0;
        std::size_t tests = 0;
        for (std::uint32_t b = a + 1; b < count && added < kMostTriples; ++b) {
          if (!pair_fits(a, b)) continue;
          for (std::uint32_t c = b + 1; c < count && added < kMostTriples; ++c) {
            if (price[a] + price[b] + price[c] <= 1 + kSolverPrecision) continue;
            if (!pair_fits(a, c) || !pair_fits(b, c) || tests++ >= kMostTests) continue;
            if (!fit(std::array{a, b, c})) continue;
            columns_.push_back({a, b, c});
            ++added;
          }
        }
      }
      if (columns_.size() == before) return;
    }
  }

  struct Solution {
    std::vector<double> prices;  // of rests
    std::vector<double> parts;   // of columns
  };

  // Without the rests that are taken.
  [[nodiscard]] std::optional<Solution> solve(const std::vector<RestSet>& columns,
                                              const std::vector<bool>& taken) const {
    std::vector<double> once(rests_.size());
    for (std::size_t rest = 0; rest < rests_.size(); ++rest) once[rest] = taken[rest] ? 0 : 1;
    LinearProgram program(once);
    std::vector<LinearProgram::Entry> entries;
    for (const RestSet& set : columns) {
      entries.clear();
      for (const std::uint32_t rest : set) entries.push_back({rest, 1});
      program.add_column(1, entries);
    }
    if (!program.solve()) return std::nullopt;
    return Solution{program.prices(), program.parts()};
  }

  // Takes the sets that the solution has whole, and at least some of those that it has most of,
  // until no rest remains.
  [[nodiscard]] std::vector<RestSet> rounded() const {
    const std::size_t at_once = std::max(kFixedAtOnce, rests_.size() / kMostSolves);
    std::vector<RestSet> chosen;
    std::vector<RestSet> left = columns_;
    std::vector<bool> taken(rests_.size(), false);
    const auto is_free = [&](const RestSet& set) {
      return std::none_of(set.begin(), set.end(), [&](std::uint32_t rest) { return taken[rest]; });
    };
    const auto take = [&](const RestSet& set) {
      for (const std::uint32_t rest : set) taken[rest] = true;
      chosen.push_back(set);
    };
    while (!left.empty()) {
      const std::optional<Solution> solution = solve(left, taken);
      if (!solution) break;
      const std::vector<double>& parts = solution->parts;
      std::vector<std::size_t> order(left.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t x, std::size_t y) { return parts[x] > parts[y]; });
      std::size_t fixed = 0;
      for (const std::size_t at : order) {
        if (fixed >= at_once && parts[at] < 1 - kSolverPrecision) break;
        if (!is_free(left[at])) continue;
        take(left[at]);
        ++fixed;
      }
      std::erase_if(left, [&](const RestSet& set) { return !is_free(set); });
    }
    for (std::uint32_t rest = 0; rest < rests_.size(); ++rest) {
      if (!taken[rest]) take({rest});
    }
    return chosen;
  }

  [[nodiscard]] double load_of(const RestSet& set) const {
    double load = 0;
    for (const std::uint32_t rest : set)
      load += rests_[rest].rate * curve(rests_[rest]).min_request_ms / 1000;
    return load;
  }

  [[nodiscard]] static bool is_whole(const PlanBuilder& builder) {
    for (std::size_t model = 0; model < builder.context().models().size(); ++model) {
      if (builder.unplaced(model) > 0) return false;
    }
    return true;
  }

  // The full devices and the first of the sets; the other rests on spare capacity.
  [[nodiscard]] PlanBuilder build_first(const std::vector<RestSet>& sets, std::size_t count) {
    std::vector<FilledDevice> devices;
    for (const Portion& full : full_) devices.push_back({0, {{size_, {{full.model, full.rate}}}}});
    for (std::size_t at = 0; at < count; ++at) {
      FilledDevice& device = devices.emplace_back();
      FilledGpulet& gpulet = device.gpulets.emplace_back();
      gpulet.size = size_;
      for (const std::uint32_t rest : sets[at])
        gpulet.portions.push_back({rests_[rest].model, rests_[rest].rate});
    }
    return build_from(context_, devices);
  }

  PlanContext& context_;
  std::uint32_t size_;  // of the whole device
  std::vector<Portion> full_;
  std::vector<Portion> rests_;
  std::vector<bool> beside_;
  std::vector<RestSet> columns_;
};

}  // namespace

bool can_pack_rests(const PlanContext& context) {
  return context.classes().size() == 1 && context.classes().front().divisions.empty() &&
         context.classes().front().sizes.back() == kWholeDevice.percent;
}

std::uint64_t tests_of_packing(const PlanContext& context) {
  const std::uint64_t models = context.models().size();
  return models * (models + kTripleRounds * kMostTests);
}

PlanBuilder pack_rests(PlanContext& context) {
  RestPacking packing(context);
  return packing.build(packing.pack());
}

}  // namespace gpulet::schedule

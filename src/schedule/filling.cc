#include "schedule/filling.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "schedule/spot.h"

namespace gpulet::schedule {
namespace {

// A gpulet of the combination, there or still to be made.
struct Slot {
  std::uint32_t host = 0;  // index in the combination
  std::uint32_t size = 0;  // index in the class's sizes
};

struct State {
  Draft draft;
  std::vector<std::optional<std::uint32_t>> opened;  // the draft's device of each host
  std::vector<std::optional<std::size_t>> made;      // the draft's gpulet of each slot
};

struct Option {
  std::size_t slot = 0;
  double rate = 0;
  bool whole = false;  // all that is left of the model
  double merit = 0;    // higher is tried first
};

class Search {
 public:
  Search(Problem& problem, const Combination& combination, std::uint64_t most_steps)
      : problem_(problem),
        combination_(combination),
        most_steps_(most_steps),
        asked_before_(problem.rows_asked()),
        best_(problem) {
    for (std::uint32_t host = 0; host < combination.size(); ++host) {
      for (const std::uint32_t size : *combination[host].layout) slots_.push_back({host, size});
    }
    for (std::size_t model = 0; model < problem.models().size(); ++model) {
      least_work_.push_back(least_work(model));
    }
  }

  Filling run() {
    const State empty{Draft(problem_),
                      std::vector<std::optional<std::uint32_t>>(combination_.size()),
                      std::vector<std::optional<std::size_t>>(slots_.size())};
    bool complete = !may_hold(empty);
    std::uint64_t limit = 0;
    if (!complete) {
      constexpr std::uint64_t kOrders = 4;
      complete = true;
      for (std::uint64_t order = 0; order < kOrders && best_.left_of_all() > 0; ++order) {
        order_models(order);
        limit = most_steps_ * (order + 1) / kOrders;
        limit_ = limit;
        extend(empty, 0, 0);
        complete = complete && steps() < limit;
      }
    }
    return {std::move(best_), steps(), complete};
  }

 private:
  [[nodiscard]] std::uint64_t steps() const {
    return places_ + problem_.rows_asked() - asked_before_;
  }
  [[nodiscard]] std::uint32_t class_of(const Slot& slot) const {
    return combination_[slot.host].device_class;
  }
  [[nodiscard]] int percent(const Slot& slot) const {
    return problem_.classes()[class_of(slot)].sizes[slot.size];
  }
  [[nodiscard]] const Row& row_alone(std::size_t model, const Slot& slot) const {
    return problem_.row(model, class_of(slot), slot.size);
  }

  // Percent * ms of a request in the slot where it takes least.
  [[nodiscard]] double least_work(std::size_t model) const {
    double least = std::numeric_limits<double>::infinity();
    for (const Slot& slot : slots_) {
      const Row& row = row_alone(model, slot);
      if (row.largest > 0) least = std::min(least, row.least_ms * percent(slot));
    }
    return least;
  }

  // Whether what is left of the demands could fit into the time that is left in the gpulets.
  [[nodiscard]] bool may_hold(const State& state) const {
    double work = 0;
    for (std::size_t model = 0; model < least_work_.size(); ++model) {
      if (state.draft.left(model) > 0) work += state.draft.left(model) * least_work_[model];
    }
    double room = 0;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      const double load = state.made[slot] ? state.draft.gpulets()[*state.made[slot]].load : 0;
      room += percent(slots_[slot]) * (1 - load);
    }
    return work <= room * 1000 * (1 + kRoundingSlack);
  }

  // Hardest first, easiest first, longest SLO last and first: what a model can be.
  void order_models(std::uint64_t kind) {
    std::vector<std::pair<double, std::size_t>> keyed;
    for (std::size_t model = 0; model < problem_.models().size(); ++model) {
      const ModelDemand& demand = *problem_.models()[model];
      const double work = demand.rate * least_work_[model];
      const double keys[] = {-work, work, demand.slo_ms, -demand.slo_ms};
      keyed.emplace_back(keys[kind], model);
    }
    order_ = models_by(std::move(keyed));
  }

  // Places the models of the order from `at` on; parts of the one at hand only in slots from
  // `first_part` on, so that no set of parts is tried in two sequences. Whether all are served.
  bool extend(const State& state, std::size_t at, std::size_t first_part) {
    while (at < order_.size() && state.draft.left(order_[at]) <= 0) {
      ++at;
      first_part = 0;
    }
    if (state.draft.left_of_all() < best_.left_of_all()) best_ = state.draft;
    if (at == order_.size()) return best_.left_of_all() == 0;
    if (!may_hold(state)) return false;
    const std::size_t model = order_[at];
    State tried = state;
    for (const Option& option : options(&tried, model, first_part)) {
      if (steps() >= limit_) return false;
      State next = state;
      place(&next, model, option);
      if (extend(next, at, option.whole ? 0 : option.slot + 1)) return true;
    }
    return false;
  }

  [[nodiscard]] std::vector<Option> options(State* state, std::size_t model,
                                            std::size_t first_part) {
    const double left = state->draft.left(model);
    std::vector<Option> found;
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (repeats(*state, slot)) continue;
      ++places_;
      Option option;
      option.slot = slot;
      option.rate = std::min(left, most_rate(state, slot, model));
      option.whole = option.rate >= left;
      if (option.rate <= kRoundingSlack * problem_.models()[model]->rate ||
          (!option.whole && slot < first_part)) {
        continue;
      }
      const double load = state->made[slot] ? state->draft.gpulets()[*state->made[slot]].load : 0;
      const double used = option.rate * row_alone(model, slots_[slot]).least_ms / 1000;
      const double wasted = percent(slots_[slot]) * (1 - load - used);
      // Best fit where it fits; else where a request takes least.
      option.merit = option.whole
                         ? kWholeDevice.percent - wasted
                         : -row_alone(model, slots_[slot]).least_ms * percent(slots_[slot]);
      found.push_back(option);
    }
    std::stable_sort(found.begin(), found.end(), [](const Option& a, const Option& b) {
      return a.whole != b.whole ? a.whole : a.merit > b.merit;
    });
    return found;
  }

  // Whether a slot before it is the same to every model: both empty, of one size, on devices of one
  // class and layout with the same contents, which here means none.
  [[nodiscard]] bool repeats(const State& state, std::size_t slot) const {
    if (state.made[slot]) return false;
    const Slot& own = slots_[slot];
    for (std::size_t before = 0; before < slot; ++before) {
      const Slot& other = slots_[before];
      if (state.made[before] || other.size != own.size || class_of(other) != class_of(own))
        continue;
      if (other.host == own.host) return true;
      const bool untouched = !state.opened[other.host] && !state.opened[own.host];
      if (untouched && combination_[other.host].layout == combination_[own.host].layout)
        return true;
    }
    return false;
  }

  [[nodiscard]] double most_rate(State* state, std::size_t slot, std::size_t model) const {
    const Slot& own = slots_[slot];
    Draft& draft = state->draft;
    if (const auto gpulet = state->made[slot]) {
      const double left = draft.left(model);
      return draft.fits(*gpulet, model, left) ? left : draft.most_rate(*gpulet, model);
    }
    if (const auto device = state->opened[own.host]) {
      return draft.most_rate_of_new(*device, own.size, model);
    }
    const bool opens =
        draft.can_open(class_of(own)) && draft.memory_fits_empty(model, class_of(own));
    return opens ? row_alone(model, own).most_rate : 0;
  }

  void place(State* state, std::size_t model, const Option& option) const {
    const Slot& own = slots_[option.slot];
    if (const auto gpulet = state->made[option.slot]) {
      state->draft.add(*gpulet, model, option.rate);
      return;
    }
    if (!state->opened[own.host]) state->opened[own.host] = state->draft.open(class_of(own));
    state->made[option.slot] =
        state->draft.add_gpulet(*state->opened[own.host], own.size, model, option.rate);
  }

  Problem& problem_;
  const Combination& combination_;
  const std::uint64_t most_steps_;
  std::uint64_t limit_ = 0;  // of the order at hand
  const std::uint64_t asked_before_;
  std::uint64_t places_ = 0;
  std::vector<Slot> slots_;
  std::vector<double> least_work_;  // beside the problem's models
  std::vector<std::size_t> order_;
  Draft best_;
};

}  // namespace

Filling fill(Problem& problem, const Combination& combination, std::uint64_t most_steps) {
  return Search(problem, combination, most_steps).run();
}

}  // namespace gpulet::schedule

#include "schedule/cover/search.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpulet::schedule {
namespace {

// The relaxation's sums carry rounding.
constexpr double kBoundSlack = 1e-7;
// With more devices to go, one that is filled to the brim with what there is plenty of is repeated
// at once.
constexpr std::size_t kFewDevices = 16;

bool whole(const Rest& rest) {
  return std::all_of(rest.rates.begin(), rest.rates.end(), [](double rate) { return rate == 0; });
}

}  // namespace

CoverSearch::CoverSearch(Problem& problem, Relaxation& relaxation)
    : problem_(&problem), relaxation_(&relaxation), chooser_(problem, relaxation) {}

std::optional<Cover> CoverSearch::run(std::size_t devices, bool only_whole,
                                      const SearchEffort& effort) {
  nodes_.clear();
  devices_ = devices;
  const std::uint64_t first_work = chooser_.work();
  std::vector<State> beam{start()};
  std::vector<State> next;
  State furthest = beam.front();
  while (!beam.empty()) {
    next.clear();
    for (const State& state : beam) {
      if (whole(state.rest)) return cover_of(state);
      if (effort.most_work > 0 && chooser_.work() - first_work > effort.most_work) break;
      if (state.used < devices_) expand(state, effort, &next);
    }
    if (only_whole) {
      std::erase_if(next, [&](const State& state) {
        return state.bound > static_cast<double>(devices_) + kBoundSlack;
      });
    }
    std::stable_sort(next.begin(), next.end(),
                     [](const State& a, const State& b) { return a.bound < b.bound; });
    const auto same = [](const State& a, const State& b) {
      return a.bound == b.bound && a.rest.rates == b.rest.rates;
    };
    next.erase(std::unique(next.begin(), next.end(), same), next.end());
    if (next.size() > effort.beam) next.resize(effort.beam);
    if (!next.empty()) furthest = next.front();
    std::swap(beam, next);
  }
  if (only_whole) return std::nullopt;
  return cover_of(furthest);
}

CoverSearch::State CoverSearch::start() const {
  State state;
  for (const DeviceClass& known : problem_->classes())
    state.unopened.push_back(known.devices.size());
  for (std::size_t model = 0; model < problem_->models().size(); ++model) {
    // What no device serves is not for covering.
    const double rate = servable(model) ? problem_->models()[model]->rate : 0;
    const double cost = relaxation_->cost(model, rate);
    state.rest.rates.push_back(rate);
    state.rest.costs.push_back(cost);
  }
  state.bound = bound_of(state);
  return state;
}

bool CoverSearch::servable(std::size_t model) const {
  for (std::size_t index = 0; index < problem_->classes().size(); ++index) {
    const double limit_mb = problem_->classes()[index].example->memory_mb;
    const ModelOnClass& known = problem_->on_class(model, index);
    if (problem_->row(model, index, known.best_size).most_rate > 0 &&
        (limit_mb == 0 || known.memory_mb <= limit_mb)) {
      return true;
    }
  }
  return false;
}

void CoverSearch::expand(const State& state, const SearchEffort& effort, std::vector<State>* next) {
  for (std::uint32_t index = 0; index < state.unopened.size(); ++index) {
    if (state.unopened[index] == 0) continue;
    for (DeviceChoice& choice : chooser_.best(index, state.rest, effort.width, effort.choices)) {
      add(state, std::move(choice), next);
    }
  }
}

void CoverSearch::add(const State& state, DeviceChoice choice, std::vector<State>* next) {
  State& added = next->emplace_back();
  const std::uint32_t index = choice.filled.device_class;
  std::size_t copies = 1;
  if (devices_ - state.used > kFewDevices) {
    double often = static_cast<double>(std::min(state.unopened[index], devices_ - state.used));
    for (std::size_t model = 0; model < state.rest.rates.size(); ++model) {
      const double taken = state.rest.rates[model] - choice.rest.rates[model];
      if (taken > 0) often = std::min(often, std::floor(state.rest.rates[model] / taken));
    }
    copies = std::max<std::size_t>(1, static_cast<std::size_t>(often));
  }
  added.node = state.node;
  added.unopened = state.unopened;
  added.unopened[index] -= copies;
  added.used = state.used + copies;
  added.rest = std::move(choice.rest);
  for (std::size_t copy = 1; copy < copies; ++copy) {
    for (const FilledGpulet& gpulet : choice.filled.gpulets) {
      for (const Portion& portion : gpulet.portions)
        take_from(&added.rest, portion, *problem_, *relaxation_);
    }
  }
  for (std::size_t copy = 0; copy < copies; ++copy) {
    nodes_.push_back({added.node, choice.filled});
    added.node = nodes_.size() - 1;
  }
  added.bound = bound_of(added);
}

double CoverSearch::bound_of(const State& state) const {
  double bound = static_cast<double>(state.used);
  for (const double cost : state.rest.costs) bound += cost;
  for (std::size_t index = 0; index < state.unopened.size(); ++index) {
    bound -= static_cast<double>(state.unopened[index]) * relaxation_->scarcity(index);
  }
  return bound;
}

Cover CoverSearch::cover_of(const State& state) const {
  Cover cover;
  cover.whole = whole(state.rest);
  for (std::optional<std::size_t> at = state.node; at; at = nodes_[*at].parent) {
    cover.devices.push_back(nodes_[*at].filled);
  }
  std::reverse(cover.devices.begin(), cover.devices.end());
  return cover;
}

}  // namespace gpulet::schedule

#include "schedule/slowdown_tables.h"

#include <algorithm>

namespace gpulet::schedule {
namespace {

// Of one place: models and sizes are few enough for half of the bits each.
std::uint64_t number_of(const Problem& problem, const ModelAtSize& place) {
  std::uint64_t number = place.model;
  for (std::uint32_t before = 0; before < place.device_class; ++before)
    number += problem.models().size() * problem.classes()[before].sizes.size();
  return number + place.size * problem.models().size();
}

}  // namespace

std::span<const std::uint32_t> SlowdownTables::knots(const ModelAtSize& place) {
  return knots_of(place).batches;
}

const SlowdownTables::Knots& SlowdownTables::knots_of(const ModelAtSize& place) {
  const auto [found, added] = knots_.try_emplace(number_of(*problem_, place));
  Knots& knots = found->second;
  if (!added) return knots;
  const DeviceClass& device_class = problem_->classes()[place.device_class];
  const Share share{device_class.sizes[place.size]};
  const std::string& name = problem_->models()[place.model]->name;
  const ModelOnClass& there = problem_->on_class(place.model, place.device_class);
  const std::uint32_t largest = problem_->row(place.model, place.device_class, place.size).largest;
  knots.batches.reserve(there.measured.size());
  knots.traits.reserve(there.measured.size());
  for (const std::uint32_t batch : there.measured) {
    if (!there.profile->latency.latency_ms(batch, share)) continue;
    knots.batches.push_back(batch);
    knots.traits.push_back(device_class.interference->traits(name, batch, share));
    if (batch >= largest) break;
  }
  return knots;
}

const SlowdownTable& SlowdownTables::of(const ModelAtSize& self, const ModelAtSize& other) {
  const std::uint64_t key = number_of(*problem_, self) << 32 | number_of(*problem_, other);
  const auto [found, added] = tables_.try_emplace(key);
  SlowdownTable& table = found->second;
  if (!added) return table;
  const profile::InterferenceModel& model = *problem_->classes()[self.device_class].interference;
  const Knots& others = knots_of(other);
  const Knots& selves = knots_of(self);
  table.others = others.traits.size();
  table.worst.reserve(selves.traits.size() * table.others);
  for (const profile::BatchTraits& own : selves.traits) {
    double worst = 1;
    for (const profile::BatchTraits& beside : others.traits) {
      worst = std::max(worst, model.slowdown(own, beside));
      table.worst.push_back(worst);
    }
  }
  return table;
}

}  // namespace gpulet::schedule

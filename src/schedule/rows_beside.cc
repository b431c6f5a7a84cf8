#include "schedule/rows_beside.h"

#include <algorithm>

#include "schedule/problem.h"

namespace gpulet::schedule {
namespace {

// In order, so that the same neighbours add up to the same sum, bit by bit.
std::vector<Neighbour> in_order(std::span<const Neighbour> neighbours) {
  std::vector<Neighbour> ordered(neighbours.begin(), neighbours.end());
  std::sort(ordered.begin(), ordered.end());
  return ordered;
}

void append(const Neighbour& neighbour, std::vector<std::uint32_t>* key) {
  key->push_back(neighbour.size);
  key->push_back(static_cast<std::uint32_t>(neighbour.models.size()));
  key->insert(key->end(), neighbour.models.begin(), neighbour.models.end());
}

}  // namespace

std::size_t RowsBeside::Hash::operator()(const std::vector<std::uint32_t>& key) const {
  std::uint64_t hash = 0;
  for (const std::uint32_t word : key) hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
  return static_cast<std::size_t>(hash ^ hash >> 32);
}

const Row& RowsBeside::row(const Problem& problem, std::size_t model, std::size_t device_class,
                           std::size_t size, std::span<const Neighbour> neighbours) {
  const Row& alone = problem.row(model, device_class, size);
  if (neighbours.empty() || alone.largest == 0 || !problem.interferes(device_class)) return alone;
  std::vector<Neighbour> ordered;
  if (!std::is_sorted(neighbours.begin(), neighbours.end())) {
    ordered = in_order(neighbours);
    neighbours = ordered;
  }
  key_.assign({static_cast<std::uint32_t>(device_class), static_cast<std::uint32_t>(model),
               static_cast<std::uint32_t>(size)});
  for (const Neighbour& neighbour : neighbours) append(neighbour, &key_);
  const auto [found, added] = entries_.try_emplace(key_);
  Entry& entry = found->second;
  if (!added) return entry.row;

  entry.slowdowns = beside(problem, {device_class, model, size}, neighbours);
  const double slo_ms = problem.models()[model]->slo_ms;
  const double limit_ms = longest_useful_ms(slo_ms);
  double longest_ms = 0;
  for (std::uint32_t batch = 1; batch <= alone.largest; ++batch) {
    longest_ms = std::max(longest_ms, alone.latency_ms[batch - 1] * entry.slowdowns[batch - 1]);
    if (!(longest_ms <= limit_ms)) break;
    entry.latencies_ms.push_back(longest_ms);
  }
  entry.row.latency_ms = entry.latencies_ms.data();
  entry.row.slowdown = entry.slowdowns.data();
  entry.row.headroom = alone.headroom;
  entry.row.largest = static_cast<std::uint32_t>(entry.latencies_ms.size());
  rate_row(&entry.row, slo_ms);
  return entry.row;
}

RowsBeside::Slowdowns RowsBeside::beside(const Problem& problem, const Place& self,
                                         std::span<const Neighbour> neighbours) {
  Slowdowns sum(problem.row(self.model, self.device_class, self.size).largest, 1.0);
  Slowdowns worst(sum.size());
  for (const Neighbour& neighbour : neighbours) {
    std::fill(worst.begin(), worst.end(), 1.0);
    for (const std::uint32_t model : neighbour.models) {
      const Slowdowns& one = by_one(problem, self, {self.device_class, model, neighbour.size});
      for (std::size_t at = 0; at < worst.size(); ++at) worst[at] = std::max(worst[at], one[at]);
    }
    for (std::size_t at = 0; at < sum.size(); ++at) {
      sum[at] = profile::add_neighbour(sum[at], worst[at]);
    }
  }
  return sum;
}

const RowsBeside::Slowdowns& RowsBeside::by_one(const Problem& problem, const Place& self,
                                                const Place& other) {
  const auto [found, added] = by_one_.try_emplace({self, other});
  Slowdowns& slowdowns = found->second;
  if (!added) return slowdowns;
  const profile::InterferenceModel& model = *problem.classes()[self.device_class].interference;
  const std::vector<Knot>& others = knots(problem, other);
  double before = 1;
  std::uint32_t before_batch = 0;
  const std::uint32_t largest = problem.row(self.model, self.device_class, self.size).largest;
  slowdowns.reserve(largest);
  for (const Knot& knot : knots(problem, self)) {
    double here = 1;
    for (const Knot& beside : others) {
      here = std::max(here, model.slowdown(knot.traits, beside.traits));
    }
    for (std::uint32_t batch = before_batch + 1; batch <= std::min(knot.batch, largest); ++batch) {
      const double part = before_batch == 0 ? 1.0
                                            : static_cast<double>(batch - before_batch) /
                                                  (knot.batch - before_batch);
      slowdowns.push_back(before + part * (here - before));
    }
    before = here;
    before_batch = knot.batch;
  }
  slowdowns.resize(largest, before);
  return slowdowns;
}

const std::vector<RowsBeside::Knot>& RowsBeside::knots(const Problem& problem, const Place& place) {
  const auto [found, added] = knots_.try_emplace(place);
  std::vector<Knot>& knots = found->second;
  if (!added) return knots;
  const DeviceClass& device_class = problem.classes()[place.device_class];
  const Share share{device_class.sizes[place.size]};
  const ModelDemand& demand = *problem.models()[place.model];
  const ModelOnClass& there = problem.on_class(place.model, place.device_class);
  const std::uint32_t largest =
      std::max(1U, problem.row(place.model, place.device_class, place.size).largest);
  for (const std::uint32_t batch : there.measured) {
    if (!there.profile->latency.latency_ms(batch, share)) continue;
    knots.push_back({batch, device_class.interference->traits(demand.name, batch, share)});
    if (batch >= largest) break;
  }
  return knots;
}

}  // namespace gpulet::schedule

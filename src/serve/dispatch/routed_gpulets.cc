#include "serve/dispatch/routed_gpulets.h"

#include <algorithm>

namespace gpulet::serve {
namespace {

void follow(RoutedGpulet& gpulet, const GpuletRoute& route, Time now) {
  gpulet.backend = route.backend;
  gpulet.duty_cycle = route.duty_cycle;
  gpulet.service = route.service;
  gpulet.processes = route.processes;
  gpulet.instance = route.instance;
  gpulet.longest = {};
  for (const SlotSpec& spec : route.slots) {
    gpulet.slots.push_back({spec.model, spec.execution, now, {spec.rate, 0}});
    gpulet.longest =
        std::max(gpulet.longest, *std::max_element(spec.execution.begin(), spec.execution.end()));
  }
  gpulet.turns.reset(gpulet.slots.size());
  gpulet.yielding.reset(gpulet.slots.size());
  gpulet.latest_starts.reset(gpulet.slots.size());
}

}  // namespace

RoutedGpulet* RoutedGpulets::find(GpuletId id) {
  const auto found = gpulets_.find(id);
  return found == gpulets_.end() ? nullptr : &found->second;
}

const RoutedGpulet* RoutedGpulets::find(GpuletId id) const {
  const auto found = gpulets_.find(id);
  return found == gpulets_.end() ? nullptr : &found->second;
}

std::size_t RoutedGpulets::in_flight(GpuletId id) const {
  const RoutedGpulet* const gpulet = find(id);
  return gpulet == nullptr ? 0 : gpulet->in_flight;
}

std::vector<Duration> RoutedGpulets::execution(GpuletId id, ModelIndex model) const {
  const RoutedGpulet* const gpulet = find(id);
  if (gpulet == nullptr) return {};
  const auto slot = std::find_if(gpulet->slots.begin(), gpulet->slots.end(),
                                 [model](const RoutedSlot& one) { return one.model == model; });
  return slot == gpulet->slots.end() ? std::vector<Duration>() : slot->execution;
}

GpuletStatistics RoutedGpulets::statistics(GpuletId id) const {
  const RoutedGpulet* const gpulet = find(id);
  return gpulet == nullptr ? GpuletStatistics{} : gpulet->statistics;
}

double RoutedGpulets::pace(GpuletId id, Time now) const {
  const RoutedGpulet* const gpulet = find(id);
  return gpulet == nullptr ? 0 : gpulet->pace.pace(now);
}

void RoutedGpulets::set_routes(const std::vector<GpuletRoute>& routes, Time now) {
  for (auto& [id, gpulet] : gpulets_) gpulet.slots.clear();
  slots_.clear();
  for (const GpuletRoute& route : routes) {
    RoutedGpulet& gpulet = gpulets_[route.gpulet];
    follow(gpulet, route, now);
    slots_.join(route.gpulet, gpulet);
    touch(gpulet);
  }
  slots_.settle();
  std::erase_if(gpulets_, [](const auto& entry) {
    return entry.second.slots.empty() && entry.second.in_flight == 0;
  });
}

void RoutedGpulets::remove(GpuletId id) {
  const auto found = gpulets_.find(id);
  if (found == gpulets_.end()) return;
  touch(found->second);
  slots_.change_ready(found->second, false);
  slots_.leave(id, found->second);
  gpulets_.erase(found);
}

void RoutedGpulets::touch(const RoutedGpulet& gpulet) {
  for (const RoutedSlot& slot : gpulet.slots) agenda_.touch(slot.model);
}

void RoutedGpulets::ran(RoutedGpulet& gpulet, const BatchInFlight& batch, Duration executed,
                        Time now) {
  ++gpulet.statistics.batches;
  gpulet.statistics.requests += batch.requests.size();
  gpulet.statistics.executed += executed;
  gpulet.statistics.planned += batch.planned;
  if (gpulet.has_rounds()) gpulet.pace.add(executed, batch.expected, now);
}

void RoutedGpulets::release(const BatchInFlight& batch, bool executed, Time now) {
  const auto found = gpulets_.find(batch.gpulet);
  if (found == gpulets_.end()) return;
  RoutedGpulet& gpulet = found->second;
  if (executed) gpulet.allowance.observe(now - batch.predicted_end, batch.expected);
  const bool was_reserved = gpulet.reserved;
  if (--gpulet.in_flight == 0) gpulet.reserved = false;
  gpulet.expected -= batch.expected;
  gpulet.busy_until = now + gpulet.expected;
  agenda_.touch_instances();
  if (gpulet.takes_turns() && !was_reserved) {
    agenda_.list_due(batch.gpulet, gpulet.mark);
  } else if (gpulet.slots.size() == 1 || was_reserved) {
    touch(gpulet);
  }
  if (gpulet.slots.empty() && gpulet.in_flight == 0) gpulets_.erase(found);
}

}  // namespace gpulet::serve

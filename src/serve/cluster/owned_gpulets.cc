#include "serve/cluster/owned_gpulets.h"

#include <algorithm>
#include <optional>

namespace gpulet::serve {
namespace {

std::optional<ModelIndex> index_of(const NamedModel& known, const std::string& version) {
  if (known.current.id == version) return known.current.index;
  if (known.next && known.next->id == version) return known.next->index;
  return std::nullopt;
}

}  // namespace

// ---- routes

void OwnedGpulets::on_routes(const std::string& from, SetRoutes message, Time now) {
  if (table_.leads() || from.empty() || from != table_.leader()) return;
  // Terms order the messages of one leader: what an earlier one named counts for nothing.
  if (from == told_by_ && message.term < term_) return;
  told_by_ = from;
  term_ = message.term;
  for (NodeRoutes& node : message.nodes) {
    if (node.routes.empty()) {
      routes_.erase(node.node);
    } else {
      routes_.insert_or_assign(node.node, std::move(node.routes));
    }
  }
  refresh(now);
}

void OwnedGpulets::note(BackendId backend, const GpuletReport& report) {
  const bool ended = report.state == GpuletState::gone || report.state == GpuletState::failed;
  if (report.owner != member_ || ended) {
    confirmed_.erase(report.id);
  } else {
    confirmed_.insert_or_assign(report.id, Confirmed{backend, report.state == GpuletState::ready});
  }
}

void OwnedGpulets::on_joined(BackendId backend, const std::vector<GpuletReport>& gpulets,
                             Time now) {
  if (table_.leads()) return;
  for (const GpuletReport& report : gpulets) note(backend, report);
  refresh(now);
}

void OwnedGpulets::on_report(BackendId backend, const GpuletReport& report, Time now) {
  if (table_.leads()) return;
  note(backend, report);
  refresh(now);
}

void OwnedGpulets::on_disconnected(BackendId backend, Time now, DispatchOutput& output) {
  std::erase_if(served_, [&](const auto& one) {
    if (one.second != backend) return false;
    dispatcher_.remove(one.first, now, output);
    return true;
  });
  std::erase_if(confirmed_, [backend](const auto& one) { return one.second.backend == backend; });
  refresh(now);
}

GpuletRoute OwnedGpulets::resolve(const Route& route, BackendId backend) const {
  GpuletRoute resolved{route.gpulet, backend, route.duty_cycle, {}};
  for (const RouteSlot& slot : route.slots) {
    const NamedModel* const known = all_models_.find(slot.model);
    if (known == nullptr) continue;
    if (const auto index = index_of(*known, slot.version))
      resolved.slots.push_back({*index, slot.execution, slot.rate});
  }
  return resolved;
}

void OwnedGpulets::refresh(Time now) {
  if (table_.leads() || (routes_.empty() && in_force_.empty())) return;
  std::vector<GpuletRoute> resolved;
  for (const auto& [id, backend] : backends_.backends()) {
    const auto node = routes_.find(backend.node);
    if (node == routes_.end()) continue;
    for (const Route& route : node->second) {
      const auto confirmed = confirmed_.find(route.gpulet);
      if (confirmed == confirmed_.end() || confirmed->second.backend != id) continue;
      GpuletRoute one = resolve(route, id);
      if (!one.slots.empty()) resolved.push_back(std::move(one));
    }
  }
  if (resolved != in_force_) {
    in_force_ = std::move(resolved);
    dispatcher_.set_routes(in_force_, now);
    std::erase_if(served_, [this](const auto& one) {
      return dispatcher_.gpulets().in_flight(one.first) == 0;
    });
    for (const GpuletRoute& route : in_force_) served_.emplace(route.gpulet, route.backend);
  }
  std::unordered_set<std::string> models;
  for (const GpuletRoute& route : in_force_) {
    dispatcher_.set_ready(route.gpulet, confirmed_.at(route.gpulet).ready, now);
    for (const SlotSpec& slot : route.slots) models.insert(all_models_.name_of(slot.model));
  }
  if (models == models_) return;
  models_ = models;
  table_.set_owned(std::move(models));
  changed_ = true;
}

void OwnedGpulets::hand_in() {
  routes_.clear();
  confirmed_.clear();
  in_force_.clear();
  models_.clear();
  table_.set_owned({});
}

OwnerReport OwnedGpulets::take_report(bool draining) {
  OwnerReport report;
  report.draining = draining;
  for (const auto& [id, backend] : backends_.backends()) report.nodes.push_back(backend.node);
  std::sort(report.nodes.begin(), report.nodes.end());
  std::vector<ModelIndex> models;
  for (const GpuletRoute& route : in_force_) {
    const GpuletStatistics statistics = dispatcher_.gpulets().statistics(route.gpulet);
    report.gpulets.push_back({route.gpulet, statistics.batches, statistics.requests,
                              statistics.executed, statistics.planned,
                              dispatcher_.gpulets().in_flight(route.gpulet)});
    for (const SlotSpec& slot : route.slots) models.push_back(slot.model);
  }
  std::sort(models.begin(), models.end());
  models.erase(std::unique(models.begin(), models.end()), models.end());
  figures_.take(report, models);
  return report;
}

}  // namespace gpulet::serve

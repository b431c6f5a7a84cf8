#include "serve/deploy/serving_plan.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpulet::serve {

// ---- Outages

void Outages::end(GpuletId until) {
  std::erase_if(all_, [until](const PlannedOutage& one) { return one.until == until; });
}

void Outages::drop_others(const BackendRegistry& backends) {
  std::erase_if(all_, [&backends](const PlannedOutage& one) {
    return !one.begun || backends.find(one.until) == nullptr;
  });
}

void Outages::begin(PlannedOutage outage) {
  if (outage.dark.empty()) return;
  outage.begun = true;
  const auto expected = std::find_if(all_.begin(), all_.end(), [&](const PlannedOutage& one) {
    return one.until == outage.until;
  });
  if (expected != all_.end()) {
    *expected = std::move(outage);
  } else {
    all_.push_back(std::move(outage));
  }
}

// ---- ServingPlan

void ServingPlan::set_plan(schedule::Plan plan) {
  plan_ = std::move(plan);
  unserved_.clear();
  for (std::size_t i = 0; i < plan_.unserved.size(); ++i)
    unserved_.try_emplace(plan_.unserved[i].model, i);
}

ServingPlan::Processes ServingPlan::processes_beside(const schedule::PlannedGpulet& gpulet) const {
  if (!gpulet.instance) return {};
  Processes processes{0, {}};
  for (const auto& [id, other] : serving_) {
    if (other.instance != gpulet.instance || other.device != gpulet.device) continue;
    if (processes.count++ == 0 || id < processes.first) processes.first = id;
  }
  return processes;
}

void ServingPlan::advance(schedule::Plan plan) {
  set_plan(std::move(plan));
  ++epoch_.value;
}

void ServingPlan::set_missing(const schedule::WantedParts& wanted, std::set<std::string> lost) {
  missing_.clear();
  stand_ins_.clear();
  lost_models_ = std::move(lost);
  for (const auto& [id, part] : wanted) {
    const auto serves = serving_.find(id);
    if (serves == serving_.end() || serves->second != *part) missing_.emplace(id, *part);
  }
  for (const auto& [id, part] : serving_) {
    if (missing_.contains(id) || !wanted.contains(id)) stand_ins_.insert(id);
  }
}

void ServingPlan::follow(const schedule::MixtureChange& change,
                         const schedule::WantedParts& wanted) {
  for (const GpuletId id : change.begin) {
    serving_[id] = *wanted.at(id);
    missing_.erase(id);
    stand_ins_.erase(id);
    outages_.end(id);
  }
  for (const GpuletId id : change.end) {
    serving_.erase(id);
    stand_ins_.erase(id);
  }
}

const schedule::Unserved* ServingPlan::unserved_part(const std::string& model) const {
  const auto found = unserved_.find(model);
  return found == unserved_.end() ? nullptr : &plan_.unserved[found->second];
}

void ServingPlan::adopt(GpuletId id, schedule::PlannedGpulet part) {
  serving_.insert_or_assign(id, std::move(part));
}

void ServingPlan::stop_serving(const std::vector<GpuletId>& ids) {
  for (const GpuletId id : ids) {
    serving_.erase(id);
    stand_ins_.erase(id);
  }
}

void ServingPlan::drop_ended(const BackendRegistry& backends) {
  std::erase_if(serving_,
                [&backends](const auto& one) { return backends.find(one.first) == nullptr; });
  std::erase_if(stand_ins_, [this](GpuletId id) { return !serving_.contains(id); });
}

void ServingPlan::clear() {
  serving_.clear();
  missing_.clear();
  lost_models_.clear();
  stand_ins_.clear();
  outages_.clear();
  set_routes({});
  set_plan({});
}

bool ServingPlan::lose(GpuletId id) {
  bool needed = serving_.erase(id) > 0;
  stand_ins_.erase(id);
  outages_.end(id);
  if (const auto missing = missing_.find(id); missing != missing_.end()) {
    for (const schedule::Assignment& one : missing->second.assignments)
      lost_models_.insert(one.model);
    missing_.erase(missing);
    needed = true;
  }
  return needed;
}

}  // namespace gpulet::serve

#include "serve/plans/gpulet_starter.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include "serve/adapt/estimates.h"
#include "serve/plans/plan_parts.h"

namespace gpulet::serve {
namespace {

constexpr std::size_t kModelsCreatedAtOnce = 512;  // of the gpulets that are created in one turn

// The batches of the model, with and without spare share.
std::set<std::uint32_t> planned_batches(const schedule::PlannedGpulet& planned,
                                        const schedule::Assignment& assignment) {
  std::set<std::uint32_t> batches{assignment.batch};
  if (planned.policy_choice) {
    for (const schedule::Assignment& one : planned.policy_choice->assignments) {
      if (one.model == assignment.model) batches.insert(one.batch);
    }
  }
  batches.erase(0);
  return batches;
}

}  // namespace

void GpuletStarter::start_some(Time now, FrontendEffects& effects) {
  Rollout& rollout = deployment_.active_rollout();
  std::size_t models = 0;
  while (models < kModelsCreatedAtOnce && rollout.has_to_create()) {
    const GpuletId id = rollout.take_to_create();
    models += rollout.part_of(id).assignments.size();
    start(id, now, effects);
  }
}

void GpuletStarter::start(GpuletId id, Time now, FrontendEffects& effects) {
  Rollout& rollout = deployment_.active_rollout();
  const schedule::PlannedGpulet planned = rollout.part_of(id);
  const std::optional<BackendId> backend = backends_.backend_of(planned.device);
  CreateGpulet create{id, planned.device.device, planned.size, {}, part_for(planned)};
  std::vector<schedule::RunningModel> loaded;
  for (const schedule::Assignment& assignment : planned.assignments) {
    NamedModel* const known = models_.find(assignment.model);
    if (known == nullptr) continue;
    ModelVersion& version = known->wanted();
    if (!version.proven && !version.tried_since) version.tried_since = now;
    const ServedModel& model = models_.served(version.index);
    // Prepared for somewhat larger batches than planned, so that the next plan may keep it.
    std::set<std::uint32_t> batches = planned_batches(planned, assignment);
    const std::uint32_t planned_batch = batches.empty() ? 0 : *batches.rbegin();
    const std::uint32_t probe = batch_to_probe(planned.device, assignment.model, model.max_batch);
    if (probe > 1) batches.insert({1, probe});
    std::uint32_t max_batch = 1;
    while (max_batch < planned_batch) max_batch *= 2;
    max_batch = std::max({planned_batch, std::min(max_batch, model.max_batch), probe});
    create.models.push_back({model.name, model.sha256, model.inputs, model.outputs, max_batch,
                             model.numerics, std::vector(batches.begin(), batches.end())});
    loaded.push_back({model.name, max_batch, version.id});
  }
  // The node or all of the models were removed since the plan was made.
  if (!backend || create.models.empty()) {
    rollout.lost(id);
    journal_.request_plan("nodes or models were removed while a plan came into force");
    return;
  }
  std::sort(loaded.begin(), loaded.end());
  create.memory_mb = memory_needed_mb(planned);
  create.instance = planned.instance;
  create.term = backends_.term_for(*backend);
  backends_.add_gpulet(create, planned.device, std::move(loaded), now);
  effects.emplace_back(SendToBackend{*backend, std::move(create)});
}

bool GpuletStarter::proven(const schedule::PlannedGpulet& planned) const {
  return std::all_of(planned.assignments.begin(), planned.assignments.end(),
                     [this](const auto& one) {
                       const NamedModel* const known = models_.find(one.model);
                       return known != nullptr && known->wanted().proven;
                     });
}

// The largest batch that the gpulet is probed with, if nothing is known of the model's latency.
std::uint32_t GpuletStarter::batch_to_probe(const schedule::DeviceKey& device,
                                            const std::string& model,
                                            std::uint32_t max_batch) const {
  const DeviceOffer* const offer = backends_.offer_of(device);
  const profile::ModelProfile* const known = fleet_.in_force().find(offer, model);
  if (known == nullptr || !known->estimate || known->estimate->probes > 0) return 1;
  return std::min(max_batch, largest_first_probe(offer->device));
}

double GpuletStarter::memory_needed_mb(const schedule::PlannedGpulet& planned) const {
  double sum_mb = 0;
  for (const schedule::Assignment& assignment : planned.assignments) {
    const auto* const measured = fleet_.profile_of(planned.device, assignment.model);
    if (measured == nullptr || !measured->memory_mb) return 0;
    sum_mb += *measured->memory_mb;
  }
  return sum_mb;
}

bool GpuletStarter::unproven(const std::string& model) const {
  const NamedModel* const known = models_.find(model);
  return known != nullptr && !known->wanted().proven;
}

std::optional<Time> GpuletStarter::preparing_since(GpuletId id) const {
  const GpuletRecord* const gpulet = backends_.find(id);
  if (gpulet == nullptr || gpulet->state != GpuletState::preparing) return std::nullopt;
  return gpulet->since;
}

}  // namespace gpulet::serve

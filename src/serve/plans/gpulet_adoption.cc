#include "serve/plans/gpulet_adoption.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "serve/plans/plan_parts.h"

namespace gpulet::serve {

void GpuletAdoption::take_over(BackendId backend, const std::vector<GpuletReport>& gpulets,
                               Time now, FrontendEffects& effects) {
  const std::string node = backends_.backends().at(backend).node;
  for (const GpuletId id : backends_.claim(backend, gpulets, now)) {
    effects.emplace_back(SendToBackend{backend, RetireGpulet{id, backends_.term_for(backend)}});
    journal_.note(
        true,
        fmt::format("{} of node {} is retired: another node claimed it before", name_of(id), node),
        now, effects);
  }
  journal_.request_plan("node " + node + " joined");
  journal_.requests().gather_until(
      std::max(journal_.requests().gather_until(), now + options_.gather));
  for (const GpuletReport& report : gpulets) {
    const GpuletRecord* const known = backends_.find(report.id);
    if (known == nullptr || known->backend != backend) continue;
    if (report.state == GpuletState::ready) models_.setbacks().prove(report.models);
    if (report.state == GpuletState::failed) deployment_.gpulets().retire(report.id, effects);
  }
  adopt(backend, now, effects);
}

void GpuletAdoption::adopt(BackendId backend, Time now, FrontendEffects& effects) {
  if (journal_.requests().begun()) return;
  ServingPlan& in_force = deployment_.in_force();
  std::size_t adopted = 0;
  for (const auto& [id, gpulet] : backends_.gpulets()) {
    if (gpulet.backend != backend || !adoptable(gpulet)) continue;
    in_force.adopt(id,
                   {gpulet.device, gpulet.size, gpulet.part.duty_cycle_ms, gpulet.part.assignments,
                    gpulet.instance, gpulet.part.service, gpulet.part.policy_choice});
    ++adopted;
  }
  if (adopted == 0) return;
  schedule::Plan plan;
  plan.policy = options_.policy;
  std::map<std::string, double> rates;
  for (const auto& [id, planned] : in_force.serving()) {
    plan.gpulets.push_back(planned);
    for (const schedule::Assignment& one : planned.assignments) rates[one.model] += one.rate;
  }
  std::sort(plan.gpulets.begin(), plan.gpulets.end(), schedule::in_plan_order);
  deployment_.in_force().set_plan(std::move(plan));
  for (const auto& [model, rate] : rates) {
    if (rate > 0) models_.adopt_rate(model, rate, now);
  }
  routes_.update(now, effects);
  journal_.requests().gather_until(
      now + (options_.clustered ? options_.gather : options_.gather_after_restart));
  journal_.note(false,
                fmt::format("goes on with {} that node {} runs", counted(adopted, "gpulet"),
                            backends_.backends().at(backend).node),
                now, effects);
}

bool GpuletAdoption::adoptable(const GpuletRecord& gpulet) const {
  if (gpulet.part.assignments.empty()) return false;
  const Share size = measured_size(gpulet.size, gpulet.part.service);
  return std::all_of(
      gpulet.part.assignments.begin(), gpulet.part.assignments.end(), [&](const auto& one) {
        const NamedModel* const model = models_.find(one.model);
        const auto* const measured = fleet_.profile_of(gpulet.device, one.model);
        if (model == nullptr || measured == nullptr) return false;
        const std::string& version = model->current.id;
        const bool loaded = std::any_of(
            gpulet.models.begin(), gpulet.models.end(), [&](const schedule::RunningModel& held) {
              return held.name == one.model && held.version == version &&
                     held.max_batch >= one.batch;
            });
        return loaded && measured->latency.latency_ms(one.batch, size).has_value();
      });
}

void GpuletAdoption::give_up(BackendId backend, Time now, FrontendEffects& effects) {
  for (const GpuletId id : backends_.gpulets_of(backend)) deployment_.lose(id);
  deployment_.abandon(Abandoned::led_elsewhere);
  routes_.update(now, effects);
}

}  // namespace gpulet::serve

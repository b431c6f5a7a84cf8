#include "serve/plans/routes_in_force.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "serve/plans/plan_parts.h"

namespace gpulet::serve {

void RoutesInForce::update(Time now, FrontendEffects& effects) {
  deployment_.in_force().drop_ended(fleet_.backends());
  const ServingPlan::Serving& serving = deployment_.in_force().serving();
  std::vector<GpuletRoute> routes;
  for (const auto& [id, planned] : serving) routes.push_back(route_of(id, planned));
  DispatchOutput output;
  models_.successions().begin(routes, now, output);
  dispatch_.dispatcher().set_routes(routes, now);
  for (const auto& [id, planned] : serving)
    dispatch_.dispatcher().set_ready(id, fleet_.backends().find(id)->state == GpuletState::ready,
                                     now);
  dispatch_.write(std::move(output), effects);
  instances_.follow_routes(now, effects);
  feedback_.follow_routes(now);
  deployment_.in_force().set_routes(std::move(routes));
}

GpuletRoute RoutesInForce::route_of(GpuletId id, const schedule::PlannedGpulet& planned) const {
  GpuletRoute route{
      id, fleet_.backends().find(id)->backend, from_ms(planned.duty_cycle_ms), {}, planned.service};
  const profile::Profile* const profile =
      fleet_.profile_of(fleet_.backends().offer_of(planned.device)->device.type);
  if (planned.instance && profile != nullptr && profile->knows_processes()) {
    const auto [processes, first] = deployment_.in_force().processes_beside(planned);
    route.processes = processes;
    route.instance = first.value;
  }
  for (const schedule::Assignment& assignment : planned.assignments) {
    const std::optional<ModelIndex> model = models_.table().version_in(id, assignment.model);
    if (!model) continue;  // it was removed since the plan was made
    SlotSpec slot{*model, execution_of(planned, assignment), assignment.rate};
    // New profiles may lack the model. Until the next plan, the previous durations count.
    if (slot.execution.empty())
      slot.execution = dispatch_.dispatcher().gpulets().execution(id, *model);
    if (!slot.execution.empty()) route.slots.push_back(std::move(slot));
  }
  return route;
}

std::vector<Duration> RoutesInForce::execution_of(const schedule::PlannedGpulet& planned,
                                                  const schedule::Assignment& assignment) const {
  const auto* const measured = fleet_.profile_of(planned.device, assignment.model);
  if (measured == nullptr) return {};
  const Share size = measured_size(planned.size, planned.service);
  const profile::LatencyTable& table =
      measured->latency_of(deployment_.in_force().processes_beside(planned).count);
  const double factor = profile::factor_of(*feedback_.planned(),
                                           fleet_.backends().offer_of(planned.device)->device.type,
                                           assignment.model, planned.size) *
                        assignment.slowdown * schedule::margin_of(options_.margin, table);
  std::vector<Duration> execution;
  for (std::uint32_t count = 1; count <= assignment.batch; ++count) {
    // The table has every size up to a planned one.
    const std::optional<double> alone_ms = table.latency_ms(count, size);
    if (!alone_ms) return {};
    execution.push_back(from_ms(*alone_ms * factor));
  }
  return execution;
}

}  // namespace gpulet::serve

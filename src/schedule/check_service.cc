#include <algorithm>
#include <cmath>
#include <set>

#include "schedule/check_parts.h"

namespace gpulet::schedule {

std::vector<Violation> check_service(const Device& device, const PlannedGpulet& gpulet,
                                     const profile::Profile* profile,
                                     const std::optional<double>& asked_margin) {
  std::vector<Violation> wrong;
  const bool controlled = gpulet.service == Service::controlled;
  if (controlled != is_cpu(device))
    wrong.push_back(violation_of(
        gpulet, controlled ? ViolationCause::controlled_device : ViolationCause::cpu_service));
  if (controlled && gpulet.assignments.size() != 1)
    wrong.push_back(violation_of(gpulet, ViolationCause::controlled_models,
                                 {.found = static_cast<double>(gpulet.assignments.size())}));
  const Share expected = controlled ? kControlledShare : kWholeDevice;
  if (gpulet.size != expected)
    wrong.push_back(violation_of(gpulet, ViolationCause::service_size,
                                 {.found = static_cast<double>(gpulet.size.percent),
                                  .expected = static_cast<double>(expected.percent)}));
  if (gpulet.instance || device.mig)
    wrong.push_back(violation_of(gpulet, ViolationCause::service_under_mig));
  if (gpulet.duty_cycle_ms != 0)
    wrong.push_back(
        violation_of(gpulet, ViolationCause::service_duty_cycle, {.found = gpulet.duty_cycle_ms}));
  for (const Assignment& one : gpulet.assignments) {
    if (one.rate != 0)
      wrong.push_back(violation_of(gpulet, one, ViolationCause::service_rate, {.found = one.rate}));
    if (one.batch != 1)
      wrong.push_back(violation_of(gpulet, one, ViolationCause::service_batch,
                                   {.found = static_cast<double>(one.batch), .batch = one.batch}));
    const profile::ModelProfile* const model =
        profile == nullptr ? nullptr : profile->find(one.model);
    const std::optional<double> alone_ms =
        model == nullptr ? std::nullopt : model->latency.latency_ms(1, kWholeDevice);
    const double margin = model == nullptr ? 1 : margin_of(asked_margin, model->latency);
    // NaN must fail the comparison.
    if (!alone_ms ||
        !(std::abs(one.latency_ms - *alone_ms * margin) <= kCheckTolerance * *alone_ms * margin))
      wrong.push_back(violation_of(gpulet, one, ViolationCause::service_latency,
                                   {.found = one.latency_ms, .type = device.type}));
  }
  return wrong;
}

std::vector<Violation> check_services(const Device& device,
                                      const std::vector<const PlannedGpulet*>& gpulets) {
  std::vector<Violation> wrong;
  const auto without_rounds = [](const PlannedGpulet* gpulet) {
    return gpulet->service != Service::rounds;
  };
  const auto count = std::count_if(gpulets.begin(), gpulets.end(), without_rounds);
  if (count == 0) return wrong;
  if (static_cast<std::size_t>(count) != gpulets.size())
    wrong.push_back({.cause = ViolationCause::mixed_services, .device = device.key});
  std::set<std::string> models;
  for (const PlannedGpulet* gpulet : gpulets) {
    for (const Assignment& one : gpulet->assignments) {
      if (!models.insert(one.model).second)
        wrong.push_back(
            {.cause = ViolationCause::two_instances, .device = device.key, .model = one.model});
    }
  }
  return wrong;
}

}  // namespace gpulet::schedule

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "schedule/check_parts.h"

namespace gpulet::schedule {

std::vector<std::string> check_service(const Device& device, const PlannedGpulet& gpulet,
                                       const profile::Profile* profile,
                                       const std::optional<double>& asked_margin) {
  std::vector<std::string> wrong;
  const bool controlled = gpulet.service == Service::controlled;
  if (controlled != is_cpu(device))
    wrong.emplace_back(controlled ? "only a CPU's cores can be controlled"
                                  : "a CPU requires one controlled instance per model");
  if (controlled && gpulet.assignments.size() != 1)
    wrong.push_back(fmt::format("a controlled instance must have one model, but has {}",
                                gpulet.assignments.size()));
  const Share expected = controlled ? kControlledShare : kWholeDevice;
  if (gpulet.size != expected)
    wrong.push_back(fmt::format("the size of such an instance must be {} %", expected.percent));
  if (gpulet.instance || device.mig)
    wrong.emplace_back("MIG divides the device, which requires rounds");
  if (gpulet.duty_cycle_ms != 0)
    wrong.emplace_back("an instance without rounds must have a duty cycle of 0");
  for (const Assignment& one : gpulet.assignments) {
    const std::string where = "model '" + one.model + "': ";
    if (one.rate != 0) wrong.push_back(where + "an instance without rounds must have a rate of 0");
    if (one.batch != 1)
      wrong.push_back(where + "an instance without rounds must have a batch of 1");
    const profile::ModelProfile* const model =
        profile == nullptr ? nullptr : profile->find(one.model);
    const std::optional<double> alone_ms =
        model == nullptr ? std::nullopt : model->latency.latency_ms(1, kWholeDevice);
    const double margin = model == nullptr ? 1 : margin_of(asked_margin, model->latency);
    // NaN must fail the comparison.
    if (!alone_ms ||
        !(std::abs(one.latency_ms - *alone_ms * margin) <= kCheckTolerance * *alone_ms * margin))
      wrong.push_back(fmt::format(
          "{}its latency is not that of one request on the whole device in the profile of '{}'",
          where, device.type));
  }
  return wrong;
}

std::vector<std::string> check_services(const std::vector<const PlannedGpulet*>& gpulets) {
  std::vector<std::string> wrong;
  const auto without_rounds = [](const PlannedGpulet* gpulet) {
    return gpulet->service != Service::rounds;
  };
  const auto count = std::count_if(gpulets.begin(), gpulets.end(), without_rounds);
  if (count == 0) return wrong;
  if (static_cast<std::size_t>(count) != gpulets.size())
    wrong.emplace_back("has gpulets with rounds and instances without");
  std::set<std::string> models;
  for (const PlannedGpulet* gpulet : gpulets) {
    for (const Assignment& one : gpulet->assignments) {
      if (!models.insert(one.model).second)
        wrong.push_back("has two instances of '" + one.model + "'");
    }
  }
  return wrong;
}

}  // namespace gpulet::schedule

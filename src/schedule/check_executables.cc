#include "schedule/check_executables.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "gpulet/schedule/check.h"
#include "gpulet/schedule/executables.h"

namespace gpulet::schedule {

std::vector<std::string> check_executable(const Device& device, const PlannedGpulet& gpulet,
                                          const profile::Profile* profile, double margin) {
  std::vector<std::string> wrong;
  const bool controlled = gpulet.service == Service::controlled;
  if (controlled != is_cpu(device))
    wrong.emplace_back(controlled ? "only a CPU's cores can be controlled"
                                  : "a CPU has an executable for each model, not one for all");
  if (controlled && gpulet.assignments.size() != 1)
    wrong.emplace_back("a controlled executable has one model, this one " +
                       std::to_string(gpulet.assignments.size()));
  if (gpulet.size != (controlled ? kControlledShare : kWholeDevice))
    wrong.emplace_back("an executable of its kind does not have that size");
  if (gpulet.instance || device.mig)
    wrong.emplace_back("a device that MIG divides has no executables");
  if (gpulet.duty_cycle_ms != 0) wrong.emplace_back("an executable has no rounds");
  for (const Assignment& one : gpulet.assignments) {
    const std::string where = "model '" + one.model + "': ";
    if (one.rate != 0) wrong.push_back(where + "an executable promises no rate");
    if (one.batch != 1) wrong.push_back(where + "an executable takes one request at a time");
    const profile::ModelProfile* const model =
        profile == nullptr ? nullptr : profile->find(one.model);
    const std::optional<double> alone_ms =
        model == nullptr ? std::nullopt : model->latency.latency_ms(1, kWholeDevice);
    // Written so that NaN fails it.
    if (!alone_ms ||
        !(std::abs(one.latency_ms - *alone_ms * margin) <= kCheckTolerance * *alone_ms * margin))
      wrong.push_back(where + "its latency is not what the profile of '" + device.type +
                      "' says of one request on the whole device");
  }
  return wrong;
}

std::vector<std::string> check_executables_together(
    const std::vector<const PlannedGpulet*>& gpulets) {
  std::vector<std::string> wrong;
  const auto is_executable = [](const PlannedGpulet* gpulet) {
    return gpulet->service != Service::rounds;
  };
  const auto executables = std::count_if(gpulets.begin(), gpulets.end(), is_executable);
  if (executables == 0) return wrong;
  if (static_cast<std::size_t>(executables) != gpulets.size())
    wrong.emplace_back("has executables and gpulets with rounds");
  std::set<std::string> models;
  for (const PlannedGpulet* gpulet : gpulets) {
    for (const Assignment& one : gpulet->assignments) {
      if (!models.insert(one.model).second)
        wrong.push_back("has two executables of '" + one.model + "'");
    }
  }
  return wrong;
}

}  // namespace gpulet::schedule

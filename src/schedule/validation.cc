// What the input of a policy must be (policy.h).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/text.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {
namespace {

template <typename... Values>
Status invalid(fmt::format_string<const Values&...> format, const Values&... values) {
  return {StatusCode::invalid, fmt::format(format, values...)};
}

std::string device_name(const DeviceKey& key) {
  return fmt::format("device {}/{}", key.node, key.device);
}

bool is_non_negative(double value) { return std::isfinite(value) && value >= 0; }

Status validate_options(const PlanOptions& options) {
  if (options.margin && (!std::isfinite(*options.margin) || *options.margin < 1)) {
    return invalid("margin must be a number of at least 1; was {:f}", *options.margin);
  }
  if (!(options.budget_ms >= 0 && options.budget_ms <= kMostBudgetMs)) {
    return invalid("budget_ms must be a number between 0 and {:f}; was {:f}", kMostBudgetMs,
                   options.budget_ms);
  }
  return {};
}

Status validate_sizes(const Device& device) {
  const std::string where = device_name(device.key);
  if (device.sizes.empty())
    return invalid("{}: sizes is empty: list the sizes that a gpulet may have", where);
  for (std::size_t index = 0; index < device.sizes.size(); ++index) {
    const Share size = device.sizes[index];
    if (!size.valid())
      return invalid("{}: sizes must be within 1..100; was {}", where, size.percent);
    if (index > 0 && size <= device.sizes[index - 1]) {
      return invalid("{}: sizes must ascend without duplicates; {} follows {}", where, size.percent,
                     device.sizes[index - 1].percent);
    }
  }
  return {};
}

Status validate_mig(const Device& device) {
  const std::string where = device_name(device.key);
  if (device.processes_per_instance == 0)
    return invalid("{}: processes_per_instance must be at least 1; was 0", where);
  if (!device.mig) {
    if (device.processes_per_instance == 1) return {};
    return invalid("{}: processes_per_instance requires MIG; remove it, or set the geometry",
                   where);
  }
  std::vector<Share> sizes;
  for (const partition::MigProfile& profile : device.mig->profiles())
    sizes.push_back(device.mig->share_of(profile.slices));
  if (device.max_partitions < device.mig->compute_slices() * device.processes_per_instance)
    return invalid("{}: max_partitions is too small for the layouts of its geometry", where);
  if (device.sizes == sizes) return {};
  return invalid("{}: sizes must be those of the profiles of {}", where, device.mig->name());
}

Status validate_type(const Device& device, const profile::ProfileSet& profiles) {
  if (profiles.find(device.type) != profiles.end()) return {};
  std::vector<std::string> known;
  for (const auto& [name, profile] : profiles) known.push_back(name);
  return invalid(
      "{}: there is no profile for device type '{}', only for: {}; create it with `gpulet profile "
      "run` or `gpulet profile import`",
      device_name(device.key), device.type, known.empty() ? "none" : joined(known));
}

Status validate_demand(const ModelDemand& demand) {
  if (demand.name.empty()) return invalid("a demand has no model name: name every demand");
  const std::string where = "demand of '" + demand.name + "'";
  if (!is_non_negative(demand.rate))
    return invalid("{}: rate must be a number of at least 0; was {:f}", where, demand.rate);
  if (!is_non_negative(demand.slo_ms))
    return invalid("{}: slo_ms must be a number of at least 0; was {:f}", where, demand.slo_ms);
  if (demand.max_batch == 0) return invalid("{}: max_batch must be at least 1; was 0", where);
  return {};
}

}  // namespace

Status validate_device(const Device& device) {
  const std::string where = device_name(device.key);
  if (device.max_partitions == 0)
    return invalid("{}: max_partitions must be at least 1; was 0", where);
  if (!is_non_negative(device.memory_mb)) {
    return invalid("{}: memory_mb must be a number of at least 0 (0: unlimited); was {:f}", where,
                   device.memory_mb);
  }
  if (!is_non_negative(device.cores)) {
    return invalid("{}: cores must be a number of at least 0 (0: not a CPU); was {:f}", where,
                   device.cores);
  }
  if (Status status = validate_sizes(device); !status.ok()) return status;
  return validate_mig(device);
}

Status validate(const PlanInput& input) {
  if (input.profiles == nullptr) return invalid("planning requires profiles, and there are none");
  if (Status status = validate_options(input.options); !status.ok()) return status;
  std::vector<DeviceKey> keys;
  keys.reserve(input.cluster.devices.size());
  for (const Device& device : input.cluster.devices) {
    if (Status status = validate_type(device, *input.profiles); !status.ok()) return status;
    if (Status status = validate_device(device); !status.ok()) return status;
    keys.push_back(device.key);
  }
  std::sort(keys.begin(), keys.end());
  if (const auto twice = std::adjacent_find(keys.begin(), keys.end()); twice != keys.end()) {
    return invalid("the cluster lists {} twice: give each device of a node its own number",
                   device_name(*twice));
  }
  std::vector<std::string_view> names;
  names.reserve(input.demands.size());
  for (const ModelDemand& demand : input.demands) {
    if (Status status = validate_demand(demand); !status.ok()) return status;
    names.push_back(demand.name);
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    return invalid("model '{}' is demanded twice: combine the entries into one", *twice);
  }
  return {};
}

}  // namespace gpulet::schedule

#include <algorithm>
#include <cmath>
#include <string>

#include "gpulet/schedule/policy.h"
#include "gpulet/schedule/validate_device.h"

namespace gpulet::schedule {
namespace {

Status invalid(const std::string& message) { return {StatusCode::invalid, message}; }

std::string name_of(const DeviceKey& key) {
  return "device " + key.node + "/" + std::to_string(key.device);
}

bool plain_number(double value) { return std::isfinite(value) && value >= 0; }

Status validate_options(const PlanOptions& options) {
  if (!std::isfinite(options.margin) || options.margin < 1) {
    return invalid("margin must be a number of at least 1; was " + std::to_string(options.margin));
  }
  return {};
}

Status validate_sizes(const Device& device) {
  const std::string where = name_of(device.key);
  if (device.sizes.empty()) return invalid(where + ": lists no size that a gpulet may have");
  for (std::size_t index = 0; index < device.sizes.size(); ++index) {
    const Share size = device.sizes[index];
    if (!size.valid()) {
      return invalid(where + ": sizes must be within 1..100; one was " +
                     std::to_string(size.percent));
    }
    if (index > 0 && size <= device.sizes[index - 1]) {
      return invalid(where + ": sizes must ascend without repeating; " +
                     std::to_string(size.percent) + " stands after " +
                     std::to_string(device.sizes[index - 1].percent));
    }
  }
  return {};
}

Status validate_mig(const Device& device) {
  const std::string where = name_of(device.key);
  if (device.processes_per_instance == 0)
    return invalid(where + ": processes_per_instance must be at least 1; was 0");
  if (!device.mig) {
    if (device.processes_per_instance == 1) return {};
    return invalid(where + ": only a device that is divided by MIG has processes_per_instance");
  }
  std::vector<Share> sizes;
  for (const partition::MigProfile& profile : device.mig->profiles())
    sizes.push_back(device.mig->share_of(profile.slices));
  if (device.max_partitions < device.mig->compute_slices() * device.processes_per_instance)
    return invalid(where + ": max_partitions must leave room for every layout of its geometry");
  if (device.sizes == sizes) return {};
  return invalid(where + ": its sizes must be the shares of the profiles of " +
                 std::string(device.mig->name()));
}

Status validate_type(const Device& device, const profile::ProfileSet& profiles) {
  if (profiles.find(device.type) != profiles.end()) return {};
  std::string known;
  for (const auto& [name, profile] : profiles) known += (known.empty() ? "" : ", ") + name;
  return invalid(name_of(device.key) + ": there is no profile of device type '" + device.type +
                 "'; there is " + (known.empty() ? "none" : known) +
                 ": make it with `gpulet profile run` or `profile import`");
}

Status validate_demand(const ModelDemand& demand) {
  if (demand.name.empty()) return invalid("a demand has no model name");
  const std::string where = "demand of '" + demand.name + "'";
  if (!plain_number(demand.rate)) {
    return invalid(where + ": rate must be a number of at least 0; was " +
                   std::to_string(demand.rate));
  }
  if (!plain_number(demand.slo_ms)) {
    return invalid(where + ": slo_ms must be a number of at least 0; was " +
                   std::to_string(demand.slo_ms));
  }
  if (demand.max_batch == 0) return invalid(where + ": max_batch must be at least 1; was 0");
  return {};
}

}  // namespace

Status validate_device(const Device& device) {
  const std::string where = name_of(device.key);
  if (device.max_partitions == 0)
    return invalid(where + ": max_partitions must be at least 1; was 0");
  if (!plain_number(device.memory_mb)) {
    return invalid(where + ": memory_mb must be a number of at least 0 (0: not limited); was " +
                   std::to_string(device.memory_mb));
  }
  if (!plain_number(device.cores)) {
    return invalid(where + ": cores must be a number of at least 0 (0: it is no CPU); was " +
                   std::to_string(device.cores));
  }
  if (Status status = validate_sizes(device); !status.ok()) return status;
  return validate_mig(device);
}

Status validate(const PlanInput& input) {
  if (input.profiles == nullptr) return invalid("a plan needs profiles; there were none");
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
    return invalid("the cluster has " + name_of(*twice) +
                   " twice: number the devices of a node apart");
  }
  std::vector<std::string_view> names;
  names.reserve(input.demands.size());
  for (const ModelDemand& demand : input.demands) {
    if (Status status = validate_demand(demand); !status.ok()) return status;
    names.push_back(demand.name);
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    return invalid("the demand names '" + std::string(*twice) +
                   "' twice: add the rates up into one entry");
  }
  return {};
}

}  // namespace gpulet::schedule

// Policies by name, validation of their input, and conversion of the configuration into it.
#include "gpulet/schedule/policy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <set>
#include <string>

#include "gpulet/base/text.h"
#include "gpulet/schedule/from_config.h"
#include "gpulet/schedule/plan.h"
#include "schedule/duty_cycle.h"
#include "schedule/ideal.h"
#include "schedule/mig/mig_policy.h"
#include "schedule/policies.h"

namespace gpulet::schedule {
namespace {

struct Maker {
  std::string_view name;
  std::unique_ptr<Policy> (*make)();
};

template <typename Made>
std::unique_ptr<Policy> make() {
  return std::make_unique<Made>();
}

// Sorted by name.
constexpr std::array kMakers{Maker{"cover", make<CoverPolicy>},
                             Maker{"elastic", make<ElasticPartitioning>},
                             Maker{"elastic-batch-search", make<ElasticBatchSearch>},
                             Maker{"elastic-preprint", make<ElasticPreprint>},
                             Maker{"greedy-best-fit", make<GreedyBestFit>},
                             Maker{"guided-self-tuning", make<GuidedSelfTuning>},
                             Maker{"ideal", make<Ideal>},
                             Maker{"igniter", make<Igniter>},
                             Maker{"mig-7x1", make<MigSmall>},
                             Maker{"mig-greedy", make<MigGreedy>},
                             Maker{"mig-mix", make<MigMix>},
                             Maker{"mig-two-phase", make<MigTwoPhase>},
                             Maker{"mig-whole", make<MigWhole>},
                             Maker{"roma", make<Roma>},
                             Maker{"sbp", make<SquishyBinPacking>},
                             Maker{"sbp-split", make<SplitSquishyBinPacking>}};

}  // namespace

Result<std::unique_ptr<Policy>> make_policy(std::string_view name) {
  // Computed once per program: here, so that the first plan takes no longer than the others.
  static_cast<void>(headroom_table(Headroom::poisson));
  for (const Maker& maker : kMakers) {
    if (maker.name == name) return maker.make();
  }
  return Status(StatusCode::not_found, "there is no policy '" + std::string(name) +
                                           "': choose one of " + joined(policy_names()));
}

std::vector<std::string_view> policy_names() {
  std::vector<std::string_view> names;
  names.reserve(kMakers.size());
  for (const Maker& maker : kMakers) names.push_back(maker.name);
  return names;
}

namespace {

Status invalid(const std::string& message) { return {StatusCode::invalid, message}; }

std::string device_name(const DeviceKey& key) {
  return "device " + key.node + "/" + std::to_string(key.device);
}

bool is_non_negative(double value) { return std::isfinite(value) && value >= 0; }

Status validate_options(const PlanOptions& options) {
  if (!std::isfinite(options.margin) || options.margin < 1) {
    return invalid("margin must be a number of at least 1; was " + std::to_string(options.margin));
  }
  return {};
}

Status validate_sizes(const Device& device) {
  const std::string where = device_name(device.key);
  if (device.sizes.empty())
    return invalid(where + ": sizes is empty: list the sizes that a gpulet may have");
  for (std::size_t index = 0; index < device.sizes.size(); ++index) {
    const Share size = device.sizes[index];
    if (!size.valid()) {
      return invalid(where + ": sizes must be within 1..100; was " + std::to_string(size.percent));
    }
    if (index > 0 && size <= device.sizes[index - 1]) {
      return invalid(where + ": sizes must ascend without duplicates; " +
                     std::to_string(size.percent) + " follows " +
                     std::to_string(device.sizes[index - 1].percent));
    }
  }
  return {};
}

Status validate_mig(const Device& device) {
  const std::string where = device_name(device.key);
  if (device.processes_per_instance == 0)
    return invalid(where + ": processes_per_instance must be at least 1; was 0");
  if (!device.mig) {
    if (device.processes_per_instance == 1) return {};
    return invalid(where + ": processes_per_instance requires MIG; remove it, or set the geometry");
  }
  std::vector<Share> sizes;
  for (const partition::MigProfile& profile : device.mig->profiles())
    sizes.push_back(device.mig->share_of(profile.slices));
  if (device.max_partitions < device.mig->compute_slices() * device.processes_per_instance)
    return invalid(where + ": max_partitions is too small for the layouts of its geometry");
  if (device.sizes == sizes) return {};
  return invalid(where + ": sizes must be those of the profiles of " +
                 std::string(device.mig->name()));
}

Status validate_type(const Device& device, const profile::ProfileSet& profiles) {
  if (profiles.find(device.type) != profiles.end()) return {};
  std::vector<std::string> known;
  for (const auto& [name, profile] : profiles) known.push_back(name);
  return invalid(device_name(device.key) + ": there is no profile for device type '" + device.type +
                 "', only for: " + (known.empty() ? "none" : joined(known)) +
                 "; create it with `gpulet profile run` or `gpulet profile import`");
}

Status validate_demand(const ModelDemand& demand) {
  if (demand.name.empty()) return invalid("a demand has no model name: name every demand");
  const std::string where = "demand of '" + demand.name + "'";
  if (!is_non_negative(demand.rate)) {
    return invalid(where + ": rate must be a number of at least 0; was " +
                   std::to_string(demand.rate));
  }
  if (!is_non_negative(demand.slo_ms)) {
    return invalid(where + ": slo_ms must be a number of at least 0; was " +
                   std::to_string(demand.slo_ms));
  }
  if (demand.max_batch == 0) return invalid(where + ": max_batch must be at least 1; was 0");
  return {};
}

}  // namespace

Status validate_device(const Device& device) {
  const std::string where = device_name(device.key);
  if (device.max_partitions == 0)
    return invalid(where + ": max_partitions must be at least 1; was 0");
  if (!is_non_negative(device.memory_mb)) {
    return invalid(where + ": memory_mb must be a number of at least 0 (0: unlimited); was " +
                   std::to_string(device.memory_mb));
  }
  if (!is_non_negative(device.cores)) {
    return invalid(where + ": cores must be a number of at least 0 (0: not a CPU); was " +
                   std::to_string(device.cores));
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
    return invalid("the cluster lists " + device_name(*twice) +
                   " twice: give each device of a node its own number");
  }
  std::vector<std::string_view> names;
  names.reserve(input.demands.size());
  for (const ModelDemand& demand : input.demands) {
    if (Status status = validate_demand(demand); !status.ok()) return status;
    names.push_back(demand.name);
  }
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end()) {
    return invalid("model '" + std::string(*twice) +
                   "' is demanded twice: combine the entries into one");
  }
  return {};
}

std::uint32_t Plan::devices_used() const {
  std::set<DeviceKey> devices;
  for (const PlannedGpulet& gpulet : gpulets) devices.insert(gpulet.device);
  return static_cast<std::uint32_t>(devices.size());
}

namespace {

// The cores of each device of the entry.
double cores_of(const config::DeviceConfig& described) {
  if (described.core_count > 0) return described.core_count;
  return static_cast<double>(described.cores.size()) / described.count;
}

}  // namespace

std::vector<Device> devices_from(const config::NodeConfig& node) {
  std::vector<Device> devices;
  std::uint32_t number = 0;
  for (const config::DeviceConfig& described : node.devices) {
    for (std::uint32_t copy = 0; copy < described.count; ++copy) {
      Device& device = devices.emplace_back();
      device.key = {node.name, number++};
      device.type = described.type;
      device.partitioning = described.partitioning;
      device.sizes = described.sizes;
      device.max_partitions = described.max_partitions;
      device.memory_mb = described.memory_mb;
      device.mig = described.geometry;
      device.processes_per_instance = described.processes_per_instance;
      device.cores = cores_of(described);
    }
  }
  return devices;
}

Cluster cluster_from(const std::vector<config::NodeConfig>& nodes) {
  Cluster cluster;
  for (const config::NodeConfig& node : nodes) {
    std::vector<Device> devices = devices_from(node);
    cluster.devices.insert(cluster.devices.end(), std::make_move_iterator(devices.begin()),
                           std::make_move_iterator(devices.end()));
  }
  std::sort(cluster.devices.begin(), cluster.devices.end(),
            [](const Device& a, const Device& b) { return a.key < b.key; });
  return cluster;
}

std::vector<ModelDemand> demands_from(const std::vector<config::DemandConfig>& configured) {
  std::vector<ModelDemand> demands;
  demands.reserve(configured.size());
  for (const config::DemandConfig& demand : configured) {
    demands.push_back({demand.name, demand.rate, demand.slo_ms, demand.max_batch});
  }
  return demands;
}

}  // namespace gpulet::schedule

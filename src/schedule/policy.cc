// Policies by name, validation of their input, and conversion of the configuration into it.
#include "gpulet/schedule/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/schedule/check.h"
#include "gpulet/schedule/from_config.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/spare.h"
#include "schedule/duty_cycle.h"
#include "schedule/policies.h"

namespace gpulet::schedule {
namespace {

struct KnownPolicy {
  std::string_view name;
  Plan (*plan)(const PlanInput& input);
  bool scales = true;
  bool keeps_budget = false;
};

template <auto kAlgorithm>
Plan plan_mig_by(const PlanInput& input) {
  return plan_mig(input, kAlgorithm);
}

// Sorted by name.
constexpr std::array kPolicies{KnownPolicy{"auto", plan_auto, true, true},
                               KnownPolicy{"cover", plan_cover},
                               KnownPolicy{"elastic", plan_elastic},
                               KnownPolicy{"elastic-batch-search", plan_elastic_batch_search},
                               KnownPolicy{"elastic-preprint", plan_elastic_preprint},
                               KnownPolicy{"elastic-published", plan_elastic_published},
                               KnownPolicy{"greedy-best-fit", plan_greedy_best_fit},
                               KnownPolicy{"guided-self-tuning", plan_guided_self_tuning},
                               KnownPolicy{"ideal", plan_ideal},
                               KnownPolicy{"igniter", plan_igniter},
                               KnownPolicy{"mig-7x1", plan_mig_by<mig::small_instances>},
                               KnownPolicy{"mig-greedy", plan_mig_by<mig::greedy>},
                               KnownPolicy{"mig-mix", plan_mig_by<mig::fixed_mix>},
                               KnownPolicy{"mig-two-phase", plan_mig_two_phase},
                               KnownPolicy{"mig-whole", plan_mig_by<mig::whole_devices>},
                               KnownPolicy{"roma", plan_roma, false},
                               KnownPolicy{"sbp", plan_sbp},
                               KnownPolicy{"sbp-split", plan_sbp_split},
                               KnownPolicy{"static-equal", plan_static_equal}};

// A change has to pay: the plan in force stays where it fits the same demand no worse.
void stay_in_force(const PlanInput& input, Plan& made) {
  if (input.current == nullptr || input.current->policy != made.policy) return;
  Plan current = without_spare(*input.current);
  if (current.gpulets == made.gpulets && current.unserved == made.unserved) return;
  if (serves_better(made, current) || !check(current, input).empty()) return;
  made.gpulets = std::move(current.gpulets);
  made.unserved = std::move(current.unserved);
}

class FunctionPolicy final : public Policy {
 public:
  // `name` must be a string literal.
  FunctionPolicy(std::string_view name, std::function<Plan(const PlanInput& input)> make_plan)
      : name_(name), make_plan_(std::move(make_plan)) {}
  explicit FunctionPolicy(const KnownPolicy& known)
      : name_(known.name),
        make_plan_(known.plan),
        scales_(known.scales),
        keeps_budget_(known.keeps_budget) {}

  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] bool scales() const override { return scales_; }
  [[nodiscard]] bool keeps_budget() const override { return keeps_budget_; }
  [[nodiscard]] Plan plan(const PlanInput& input) const override {
    Plan made = make_plan_(input);
    made.policy = name_;
    stay_in_force(input, made);
    return made;
  }

 private:
  std::string_view name_;
  std::function<Plan(const PlanInput& input)> make_plan_;
  bool scales_ = true;
  bool keeps_budget_ = false;
};

}  // namespace

Result<std::unique_ptr<Policy>> make_policy(std::string_view name) {
  // Computed once per program: here, so that the first plan takes no longer than the others.
  for (const KnownPolicy& known : kPolicies) {
    if (known.name != name) continue;
    return std::unique_ptr<Policy>(std::make_unique<FunctionPolicy>(known));
  }
  return Status(StatusCode::not_found, fmt::format("there is no policy '{}': choose one of {}",
                                                   name, joined(policy_names())));
}

std::vector<std::string_view> policy_names() {
  std::vector<std::string_view> names;
  names.reserve(kPolicies.size());
  for (const KnownPolicy& known : kPolicies) names.push_back(known.name);
  return names;
}

std::unique_ptr<Policy> make_mig_two_phase(mig::TwoPhaseOptions options) {
  const MigAlgorithm algorithm = [options = std::move(options)](const mig::DeploymentTask& task) {
    return mig::two_phase(task, options);
  };
  return std::make_unique<FunctionPolicy>(
      "mig-two-phase", [algorithm](const PlanInput& input) { return plan_mig(input, algorithm); });
}

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

double Plan::unserved_rate() const {
  return std::accumulate(unserved.begin(), unserved.end(), 0.0,
                         [](double sum, const Unserved& one) { return sum + one.rate; });
}

std::uint32_t Plan::devices_used() const {
  std::set<DeviceKey> devices;
  for (const PlannedGpulet& gpulet : gpulets) devices.insert(gpulet.device);
  return static_cast<std::uint32_t>(devices.size());
}

bool serves_better(const Plan& made, const Plan& in_force) {
  constexpr double kNegligible = 1e-6;  // requests per second
  const double gained = in_force.unserved_rate() - made.unserved_rate();
  if (gained > kNegligible) return true;
  return gained > -kNegligible && made.devices_used() < in_force.devices_used();
}

std::uint32_t processes_beside(std::span<const PlannedGpulet> gpulets,
                               const PlannedGpulet& gpulet) {
  if (!gpulet.instance) return 1;
  return static_cast<std::uint32_t>(
      std::count_if(gpulets.begin(), gpulets.end(), [&gpulet](const PlannedGpulet& other) {
        return other.instance == gpulet.instance && other.device == gpulet.device;
      }));
}

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
      device.cores = described.core_count > 0
                         ? described.core_count
                         : static_cast<double>(described.cores.size()) / described.count;
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

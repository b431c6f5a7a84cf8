// Planning: the input of a policy, the policies by name, and the checks that their input must pass.
// Another library adds policies of its own to the table (PolicyTable); nothing registers itself.
//
// A policy is a pure function from a PlanInput to a Plan: no clock, randomness, log or I/O. It
// iterates in sorted order and breaks ties by name, so the same input always gives the same plan,
// byte for byte. Every plan is verified by check() before anyone acts on it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::config {
struct DemandConfig;
struct NodeConfig;
}  // namespace gpulet::config

namespace gpulet::schedule {

// How much capacity a round needs beyond its mean arrivals (docs/scheduling.md, "Random arrivals").
enum class Headroom {
  none,     // none: for arrivals at fixed intervals
  poisson,  // enough for 99 % of Poisson arrivals to meet their SLO
};

// With Headroom::poisson, the fraction of a model's requests that may be late by chance: half of
// the 1 % that a plan allows. The other half covers what the prediction neglects.
inline constexpr double kMostLateByChance = 0.005;

// A minute.
inline constexpr double kMostBudgetMs = 60'000;

struct PlanOptions {
  // Multiplies every latency; at least 1. Empty: as margin_of() says.
  std::optional<double> margin;
  std::optional<std::uint32_t> max_devices;  // the plan uses at most this many devices
  Headroom headroom = Headroom::poisson;
  // Gives gpulets the share of their devices that no gpulet needs (scaling.h). Policies ignore it.
  bool use_spare = true;
  // Plans again where a model's queue, simulated, breaks the promise (verify/verified_plan.h).
  // Policies ignore it.
  bool verify = true;
  // How long `auto` may search for a plan with fewer devices than elastic's; the pipeline's
  // verification of its plans counts as well. Counted as work at a fixed speed
  // (src/schedule/cover/cover.cc), so that the plan does not depend on the machine.
  // 0: elastic's plan; at most kMostBudgetMs.
  double budget_ms = 200;
};

// In place of a spread that was not measured.
inline constexpr double kDefaultMargin = 1.03;

// The factor by which plans multiply the latencies of a model, and by which the dispatcher expects
// them. Where the profile has the spread of every cell (cv), the rules for random arrivals reckon
// with it, and the means need no margin.
[[nodiscard]] inline double margin_of(const std::optional<double>& asked,
                                      const profile::LatencyTable& latency) {
  return asked.value_or(latency.knows_spread() ? 1 : kDefaultMargin);
}

// Everything that a policy may read. The objects that it refers to outlive the call.
struct PlanInput {
  Cluster cluster;
  std::vector<ModelDemand> demands;
  const profile::ProfileSet* profiles = nullptr;  // REQUIRES: not null
  // By device type; null: gpulets do not slow each other down.
  const profile::InterferenceSet* interference = nullptr;
  const Plan* current = nullptr;  // the plan in force, or null; unchanged gpulets stay in place
  PlanOptions options;
};

class Policy {
 public:
  virtual ~Policy() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  // Whether the policy can plan for fewer devices, so that the scaling loop applies (scaling.h).
  [[nodiscard]] virtual bool scales() const { return true; }
  // Whether the policy searches for as long as PlanOptions::budget_ms allows.
  [[nodiscard]] virtual bool keeps_budget() const { return false; }
  // Whether the plans of a published algorithm are judged by its own rules of time: they may break
  // those of check() about slowdowns, arrivals and objectives (is_about_time, check.h), and get no
  // spare share, which would change their rounds. For studies: such a plan promises nothing.
  [[nodiscard]] virtual bool has_own_timing() const { return false; }
  // Never throws for valid input. Demand that it cannot serve is in Plan::unserved, with a reason.
  // REQUIRES: validate(input) is ok.
  [[nodiscard]] virtual Plan plan(const PlanInput& input) const = 0;
  // Fails with invalid, and the reason, where the policy was made for other models or devices. It
  // plans for them all the same, perhaps worse than another policy.
  [[nodiscard]] virtual Status fits(const PlanInput& /*input*/) const { return {}; }
};

// What the functions of Policy return.
struct PolicyTraits {
  bool scales = true;
  bool keeps_budget = false;
  bool own_timing = false;
};

using PlanFunction = std::function<Plan(const PlanInput& input)>;

// A policy made of a function. It keeps the plan in force where the new one serves no better.
// `name` refers to text that outlives the policy; Plan::policy is set to it.
[[nodiscard]] std::unique_ptr<Policy> policy_of(std::string_view name, PlanFunction plan,
                                                PolicyTraits traits = {});

// Policies by name. A value; any thread.
class PolicyTable {
 public:
  using Made = Result<std::unique_ptr<Policy>>;
  // `argument`: what follows "NAME:". Empty where the name stands alone.
  using Make = std::function<Made(std::string_view argument)>;

  // All names are literals, and none is added twice.
  void add(std::string_view name, PlanFunction plan, PolicyTraits traits = {});
  // A policy that needs an argument. `usage` is how users write it: "inss:FILE".
  void add_with_argument(std::string_view name, std::string_view usage, Make make);
  // A policy that this program lacks: make() fails with `why`.
  void refuse(std::string_view name, Status why);

  // The policy with that name, or with the name before the colon. Fails with not_found, and lists
  // the choices, where there is none; otherwise as the policy says.
  [[nodiscard]] Made make(std::string_view name) const;
  // Of the policies that need no argument, sorted.
  [[nodiscard]] std::vector<std::string_view> names() const;
  // What make() takes: "auto, cover, or inss:FILE".
  [[nodiscard]] std::string choices() const;

 private:
  struct Entry {
    std::string_view usage;  // equal to the name: needs no argument; empty: is refused
    Make make;
  };
  std::map<std::string_view, Entry> entries_;  // by name
};

// The policies of this library.
[[nodiscard]] PolicyTable own_policies();
// own_policies().make(name), and its names.
[[nodiscard]] Result<std::unique_ptr<Policy>> make_policy(std::string_view name);
[[nodiscard]] std::vector<std::string_view> policy_names();

// Fails with invalid where a policy must not see the input: a number that is negative or not
// finite, a demand without a name, two demands or devices with one identity, a max_batch of 0, a
// margin below 1, a budget out of range, a device type without a profile, or a device that
// validate_device() rejects. A model without a profile or with an unreachable SLO is valid input: a
// plan reports it as unserved.
[[nodiscard]] Status validate(const PlanInput& input);

// Fails with invalid, naming the device: a max_partitions of 0; memory or cores that are negative
// or not finite; sizes that are missing, outside 1..100, not ascending or, under MIG, not those of
// its profiles; processes_per_instance without MIG. Does not check for a profile of the type.
[[nodiscard]] Status validate_device(const Device& device);

// CPU instances (ROMA, section 2.2): gpulets without guarantees, whose cores a controller sets
// second by second (docs/control.md).
//
// Adds to the plan one instance per CPU and demanded model that the CPU's profile knows and its
// memory holds, models in the order of their names. The plan's gpulets are by device afterwards.
void add_cpu_instances(const PlanInput& input, Plan& plan);

[[nodiscard]] Cluster without_cpus(const Cluster& cluster);

// ---- from the configuration

// The devices of one node, numbered from 0 in the order of the configuration; a device with `count`
// becomes that many in a row. A cpu_quota device without configured cores has 0: only its backend
// knows how many there are.
[[nodiscard]] std::vector<Device> devices_from(const config::NodeConfig& node);

// The devices of all nodes, sorted by key.
[[nodiscard]] Cluster cluster_from(const std::vector<config::NodeConfig>& nodes);

// In the order of the configuration.
[[nodiscard]] std::vector<ModelDemand> demands_from(
    const std::vector<config::DemandConfig>& configured);

}  // namespace gpulet::schedule

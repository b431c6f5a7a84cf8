// Verifies a plan against the rules of docs/scheduling.md. Shares no code with the policies beyond
// the profile's lookup, so that an error in one does not hide in the other. The daemon rejects a
// plan that fails. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/partition/mig_geometry.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

// Numbers whose relative difference is below this are equal: it covers rounding and nothing else.
inline constexpr double kCheckTolerance = 1e-6;
// With random arrivals, a batch may get so many times more than it holds: planners estimate that.
inline constexpr double kArrivalsTolerance = 1.1;

// Which rule a plan breaks. In parentheses: what Violation::found and Violation::expected are.
enum class ViolationCause : std::uint8_t {
  // Of the plan.
  no_profiles,       // the input has none
  invalid_input,     // validate() refuses it, as `type` says
  too_many_devices,  // (devices, at most)
  // Of a node, which `device` names.
  too_many_gpulets_of_node,  // (gpulets, at most)
  // Of a model.
  unserved_twice,
  unserved_not_demanded,
  unserved_rate,  // (requests/s)
  not_covered,    // (requests/s assigned or unserved, demanded)
  // Of a device.
  share_exceeded,    // (percent)
  too_many_gpulets,  // (gpulets, at most)
  memory_exceeded,   // (MB needed, of the device)
  mixed_services,    // gpulets with rounds and instances without
  two_instances,     // without rounds, of `model`
  // Of a device, by MIG's rules.
  no_instance,             // a gpulet names none
  instance_without_mig,    // a gpulet names one where MIG does not divide the device
  unknown_instance,        // of the geometry `type`
  shared_memory_slice,     // by `instance` and `other`
  three_beside_four,       // instances of three and of four slices
  too_many_processes,      // in `instance` (gpulets, at most)
  instance_size,           // of a gpulet in `instance` (percent)
  different_models,        // in `instance`
  processes_of_models,     // several in `instance` were not measured (processes, models)
  processes_not_measured,  // so many of `model` in `instance` (processes)
  instance_memory,         // (MB needed, of the instance)
  // Of a gpulet.
  unknown_device,
  no_model,
  too_many_models,  // (models, at most)
  shares_alone,     // `model` must not share it
  model_twice,
  unlisted_size,
  duty_cycle,          // (ms)
  round_too_long,      // (ms, of the duty cycle)
  choice_lacks_model,  // PolicyChoice
  // Of a gpulet without rounds (Service).
  controlled_device,  // a controlled instance on a device that is no CPU
  cpu_service,        // a CPU whose gpulet is not controlled
  controlled_models,  // (models)
  service_size,       // (percent, percent)
  service_under_mig,
  service_duty_cycle,  // is not 0 (ms)
  service_rate,        // of `model` is not 0 (requests/s)
  service_batch,       // of `model` is not 1 (requests)
  service_latency,     // of `model` is not that of the profile `type` (ms)
  // Of a model in a gpulet.
  rate,  // (requests/s)
  not_demanded,
  other_objective,        // (ms of the plan, of the demand)
  batch_out_of_range,     // `batch` (of the demand: expected)
  slowdown_below_one,     // (factor)
  not_in_profile,         // of the device's `type`
  batch_not_measured,     // `batch`, at that size, in the profile of `type`
  latency,                // of `batch` (ms, by profile, slowdown and margin)
  batch_below_arrivals,   // (requests of a round, of the batch)
  objective_missed,       // (ms that a request may take, SLO)
  late_by_chance,         // (requests of `cycle_ms`, that `batch` holds)
  slowdown_by_neighbours  // (factor of the plan, that the neighbours cause)
};

// Values count as far as the cause has them.
struct Violation {
  ViolationCause cause{};
  bool without_spare = false;         // the rule is kept with spare share, and broken without
  std::optional<DeviceKey> device{};  // also that of the gpulet
  std::optional<Share> size{};        // of the gpulet
  std::string model{};
  std::optional<partition::MigInstance> instance{};
  std::optional<partition::MigInstance> other{};
  double found = 0;
  double expected = 0;
  std::uint32_t batch = 0;
  double cycle_ms = 0;
  std::string type{};  // of the device; its geometry; or why an input is invalid

  friend bool operator==(const Violation&, const Violation&) = default;
};

// Whether the rule is about how long rounds and requests take and how many requests a batch holds.
// The others are about devices, shares, memory and models.
[[nodiscard]] bool is_about_time(ViolationCause cause);

// A sentence that names the gpulet, the model and the two numbers compared.
[[nodiscard]] std::string to_string(const Violation& violation);

// Empty where the plan keeps every rule:
//  - every gpulet is on a device of the cluster and has one of its sizes; the sizes of a device add
//    up to at most 100 and their number to at most max_partitions; the plan uses at most
//    options.max_devices devices
//  - under MIG: every gpulet names an instance that the device can have, of its size; instances
//    share no memory slice; an instance has at most processes_per_instance gpulets, all of the same
//    models, holds their memory, and counts once as a share
//  - latency_ms = L(batch, size) * slowdown * margin, slowdown >= 1
//  - where input.interference has a model of the device type: the slowdown is at least its
//    prediction for the planned batches, the worst of each neighbouring gpulet, added up over the
//    neighbours
//  - sum of latency_ms <= duty_cycle_ms; duty_cycle_ms + latency_ms <= slo_ms
//  - with Headroom::none: rate * duty_cycle_ms / 1000 <= batch
//  - with Headroom::poisson: at most kMostLateByChance of the requests are late by chance
//  - at most kMostModelsOfGpulet models per gpulet and kMostGpuletsOfNode gpulets per node
//  - batch <= max_batch of the demand; every gpulet has a model, and none twice; a demand with
//    `alone` shares no gpulet
//  - the models on a device fit its memory, where both are known; each gpulet loads its own copy
//  - assigned + unserved = demanded for every model, and nothing else is assigned
//  - the plan without spare share (scaling.h) keeps every rule as well
//  - instances without rounds (Service) have no rate and a batch of 1
[[nodiscard]] std::vector<Violation> check(const Plan& plan, const PlanInput& input);

}  // namespace gpulet::schedule

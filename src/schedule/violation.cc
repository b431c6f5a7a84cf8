// The texts of violations.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "gpulet/schedule/check.h"
#include "schedule/check_parts.h"

namespace gpulet::schedule {
namespace {

// What the text names first.
enum class Scope : std::uint8_t { plan, node, device, gpulet, assignment };

struct Wording {
  ViolationCause cause;
  Scope scope;
  std::string_view text;  // with the members of a Violation
};

constexpr std::array kWordings = {
    Wording{ViolationCause::no_profiles, Scope::plan, "a plan cannot be checked without profiles"},
    Wording{ViolationCause::invalid_input, Scope::plan, "{type}"},
    Wording{ViolationCause::too_many_devices, Scope::plan,
            "the plan uses {found:.9g} devices, at most {expected:.9g} are allowed"},
    Wording{ViolationCause::too_many_gpulets_of_node, Scope::node,
            "holds {found:.9g} gpulets, at most {expected:.9g} are possible"},

    Wording{ViolationCause::unserved_twice, Scope::plan, "'{model}' is reported as unserved twice"},
    Wording{ViolationCause::unserved_not_demanded, Scope::plan,
            "'{model}' is reported as unserved, but there is no demand for it"},
    Wording{ViolationCause::unserved_rate, Scope::plan,
            "'{model}' is reported as unserved with a rate of {found:.9g} requests/s"},
    Wording{ViolationCause::not_covered, Scope::plan,
            "'{model}': {expected:.9g} requests/s are demanded, the plan assigns or reports "
            "{found:.9g}"},

    Wording{ViolationCause::share_exceeded, Scope::device,
            "its gpulets add up to {found:.9g} %, more than 100"},
    Wording{ViolationCause::too_many_gpulets, Scope::device,
            "holds {found:.9g} gpulets, at most {expected:.9g} are possible"},
    Wording{ViolationCause::memory_exceeded, Scope::device,
            "its models need {found:.9g} MB, it has {expected:.9g} MB"},
    Wording{ViolationCause::mixed_services, Scope::device,
            "has gpulets with rounds and instances without"},
    Wording{ViolationCause::two_instances, Scope::device, "has two instances of '{model}'"},

    Wording{ViolationCause::no_instance, Scope::device, "a gpulet names no instance"},
    Wording{ViolationCause::instance_without_mig, Scope::device,
            "a gpulet names a MIG instance, but MIG does not divide the device"},
    Wording{ViolationCause::unknown_instance, Scope::device,
            "{instance} is not an instance of {type}"},
    Wording{ViolationCause::shared_memory_slice, Scope::device,
            "{instance} and {other} share a memory slice"},
    Wording{ViolationCause::three_beside_four, Scope::device,
            "a 3g and a 4g cannot exist together"},
    Wording{ViolationCause::too_many_processes, Scope::device,
            "{instance} holds {found:.9g} gpulets, at most {expected:.9g} are possible"},
    Wording{ViolationCause::instance_size, Scope::device,
            "{instance} is not {found:.9g} % of the device"},
    Wording{ViolationCause::different_models, Scope::device,
            "{instance} holds gpulets of different models"},
    Wording{ViolationCause::processes_of_models, Scope::device,
            "{instance} holds {found:.9g} processes of {expected:.9g} models, which was not "
            "measured"},
    Wording{ViolationCause::processes_not_measured, Scope::device,
            "{instance} holds {found:.9g} processes of '{model}', which was not measured"},
    Wording{ViolationCause::instance_memory, Scope::device,
            "the models in {instance} need {found:f} MB, it has {expected:f} MB"},

    Wording{ViolationCause::unknown_device, Scope::gpulet, "the cluster has no such device"},
    Wording{ViolationCause::no_model, Scope::gpulet, "has no model"},
    Wording{ViolationCause::too_many_models, Scope::gpulet,
            "has {found:.9g} models, at most {expected:.9g} are possible"},
    Wording{ViolationCause::shares_alone, Scope::gpulet,
            "'{model}' must not share a gpulet, but shares this one"},
    Wording{ViolationCause::model_twice, Scope::gpulet, "has '{model}' twice"},
    Wording{ViolationCause::unlisted_size, Scope::gpulet, "the device does not list that size"},
    Wording{ViolationCause::duty_cycle, Scope::gpulet,
            "a duty cycle of {found:.9g} ms is not valid"},
    Wording{ViolationCause::round_too_long, Scope::gpulet,
            "its round takes {found:.9g} ms, longer than the duty cycle of {expected:.9g} ms"},
    Wording{ViolationCause::choice_lacks_model, Scope::gpulet,
            "has a model that its policy_choice lacks"},

    Wording{ViolationCause::controlled_device, Scope::gpulet,
            "only a CPU's cores can be controlled"},
    Wording{ViolationCause::cpu_service, Scope::gpulet,
            "a CPU requires one controlled instance per model"},
    Wording{ViolationCause::controlled_models, Scope::gpulet,
            "a controlled instance must have one model, but has {found:.9g}"},
    Wording{ViolationCause::service_size, Scope::gpulet,
            "the size of such an instance must be {expected:.9g} %"},
    Wording{ViolationCause::service_under_mig, Scope::gpulet,
            "MIG divides the device, which requires rounds"},
    Wording{ViolationCause::service_duty_cycle, Scope::gpulet,
            "an instance without rounds must have a duty cycle of 0"},
    Wording{ViolationCause::service_rate, Scope::gpulet,
            "model '{model}': an instance without rounds must have a rate of 0"},
    Wording{ViolationCause::service_batch, Scope::gpulet,
            "model '{model}': an instance without rounds must have a batch of 1"},
    Wording{ViolationCause::service_latency, Scope::gpulet,
            "model '{model}': its latency is not that of one request on the whole device in the "
            "profile of '{type}'"},

    Wording{ViolationCause::rate, Scope::assignment,
            "a rate of {found:.9g} requests/s is not valid"},
    Wording{ViolationCause::not_demanded, Scope::assignment, "there is no demand for it"},
    Wording{ViolationCause::other_objective, Scope::assignment,
            "planned for an SLO of {found:.9g} ms, but the demand has {expected:.9g} ms"},
    Wording{ViolationCause::batch_out_of_range, Scope::assignment,
            "a batch of {batch} is outside 1..{expected:.9g}, the demand's max_batch"},
    Wording{ViolationCause::slowdown_below_one, Scope::assignment,
            "a slowdown of {found:.9g} is less than 1"},
    Wording{ViolationCause::not_in_profile, Scope::assignment,
            "the profile of '{type}' does not have it"},
    Wording{ViolationCause::batch_not_measured, Scope::assignment,
            "the profile of '{type}' has no latency of batch {batch} at that size"},
    Wording{ViolationCause::latency, Scope::assignment,
            "states a latency of {found:.9g} ms for batch {batch}, the profile with slowdown and "
            "margin says {expected:.9g} ms"},
    Wording{ViolationCause::batch_below_arrivals, Scope::assignment,
            "{found:.9g} requests arrive in a round, its batch holds {expected:.9g}"},
    Wording{ViolationCause::objective_missed, Scope::assignment,
            "a request may take {found:.9g} ms, its SLO is {expected:.9g} ms"},
    Wording{ViolationCause::late_by_chance, Scope::assignment,
            "{found:.9g} requests arrive in a cycle of {cycle_ms:.9g} ms, of which its batch of "
            "{batch} holds {expected:.9g}: more than {most_late} % are late by chance"},
    Wording{ViolationCause::slowdown_by_neighbours, Scope::assignment,
            "assumes a slowdown of {found:.9g}, but its neighbours cause {expected:.9g}"},
};

const Wording& wording_of(ViolationCause cause) {
  return *std::find_if(kWordings.begin(), kWordings.end(),
                       [cause](const Wording& one) { return one.cause == cause; });
}

std::string place_of(const Violation& violation, Scope scope) {
  const DeviceKey device = violation.device.value_or(DeviceKey{});
  const std::string gpulet = fmt::format("gpulet {}/{} at {} %", device.node, device.device,
                                         violation.size.value_or(Share{}).percent);
  switch (scope) {
    case Scope::plan:
      return {};
    case Scope::node:
      return "node " + device.node + ": ";
    case Scope::device:
      return fmt::format("device {}/{}: ", device.node, device.device);
    case Scope::gpulet:
      return gpulet + ": ";
    case Scope::assignment:
      return gpulet + ", model '" + violation.model + "': ";
  }
  return {};
}

std::string name_of(const std::optional<partition::MigInstance>& instance) {
  return instance ? to_string(*instance) : std::string();
}

}  // namespace

Violation violation_of(const PlannedGpulet& gpulet, ViolationCause cause, Violation values) {
  values.cause = cause;
  values.device = gpulet.device;
  values.size = gpulet.size;
  return values;
}

Violation violation_of(const PlannedGpulet& gpulet, const Assignment& assignment,
                       ViolationCause cause, Violation values) {
  values.model = assignment.model;
  return violation_of(gpulet, cause, std::move(values));
}

bool is_about_time(ViolationCause cause) {
  switch (cause) {
    case ViolationCause::round_too_long:
    case ViolationCause::batch_below_arrivals:
    case ViolationCause::objective_missed:
    case ViolationCause::late_by_chance:
    case ViolationCause::slowdown_by_neighbours:
      return true;
    default:
      return false;
  }
}

std::string to_string(const Violation& violation) {
  const Wording& wording = wording_of(violation.cause);
  const std::string says =
      fmt::format(fmt::runtime(wording.text), fmt::arg("model", violation.model),
                  fmt::arg("instance", name_of(violation.instance)),
                  fmt::arg("other", name_of(violation.other)), fmt::arg("found", violation.found),
                  fmt::arg("expected", violation.expected), fmt::arg("batch", violation.batch),
                  fmt::arg("cycle_ms", violation.cycle_ms), fmt::arg("type", violation.type),
                  fmt::arg("most_late", 100 * kMostLateByChance));
  return (violation.without_spare ? "without spare share: " : "") +
         place_of(violation, wording.scope) + says;
}

}  // namespace gpulet::schedule

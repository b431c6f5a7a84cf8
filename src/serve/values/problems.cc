#include "gpulet/serve/values/problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "gpulet/base/text.h"
#include "serve/values/event_log.h"

namespace gpulet::serve {
namespace {

// A single violation says nothing about the rate.
constexpr std::uint64_t kLeastViolations = 2;
// Batches that run longer than planned by this factor explain violations.
constexpr double kSlowPace = 1.15;
// Batches that run shorter than profiled by this factor hold devices for nothing.
constexpr double kFastPace = 0.85;
// A neighbour that is less busy slows others down too little.
constexpr double kBusyNeighbour = 0.05;
constexpr std::size_t kNeighboursNamed = 3;

// "56 %"
std::string percent(double part) {
  const double value = 100 * part;
  return value < 10 ? fmt::format("{:.1f} %", value) : fmt::format("{:.0f} %", value);
}

// "694/s"
std::string rate(double value) {
  return value < 100 ? fmt::format("{:.1f}/s", value) : fmt::format("{:.0f}/s", value);
}

std::string sentence(std::string text) {
  if (text.empty() || text.back() != '.') text += '.';
  return text;
}

bool violates(const ModelStatus& model) {
  return model.last_minute.violations() >= kLeastViolations &&
         model.last_minute.violated() > kViolationTarget;
}

std::string violations_of(const ModelStatus& model) {
  const Outcomes& outcomes = model.last_minute;
  return fmt::format(
      "{} of its requests in the last minute had no answer in time ({} dropped, {} late, {} "
      "failed).",
      percent(outcomes.violated()), outcomes.dropped, outcomes.late, outcomes.failed);
}

struct Cause {
  ProblemCause cause = ProblemCause::queue;
  std::string text;
  std::string fix;
};

class Diagnosis {
 public:
  explicit Diagnosis(const FrontendStatus& status) : status_(status) {
    for (const ModelStatus& model : status.models) models_.emplace(model.name, &model);
    for (const GpuletStatus& gpulet : status.gpulets) {
      if (gpulet.planned) on_device_[device_of(gpulet)].push_back(&gpulet);
      for (const schedule::RunningModel& model : gpulet.gpulet.models)
        of_model_[model.name].push_back(&gpulet);
    }
    for (const ModelStatus& model : status.models) {
      if (!model.missing || model.missing->cause != schedule::UnservedCause::devices) continue;
      devices_missing_ += model.missing->devices;
      ++models_short_;
    }
  }

  std::vector<Problem> run() {
    add_frontend();
    add_nodes();
    // Another frontend knows about them, if this one does not lead.
    if (status_.leadership.leads) {
      for (const ModelStatus& model : status_.models) add_model(model);
      for (const GpuletStatus& gpulet : status_.gpulets) add_gpulet(gpulet);
    } else {
      add_leader();
    }
    const auto order = [](const Problem& problem) {
      const int section = problem.gpulet ? 2 : problem.model.empty() ? 0 : 1;
      return std::tuple(!problem.grave, section, -problem.last_minute.violated());
    };
    std::stable_sort(found_.begin(), found_.end(),
                     [&order](const Problem& a, const Problem& b) { return order(a) < order(b); });
    return std::move(found_);
  }

 private:
  using DeviceOfBackend = std::pair<BackendId, schedule::DeviceKey>;
  using Gpulets = std::vector<const GpuletStatus*>;

  static DeviceOfBackend device_of(const GpuletStatus& gpulet) {
    return {gpulet.gpulet.backend, gpulet.gpulet.device};
  }

  // ---- the frontend, nodes and devices

  void add_frontend() {
    if (status_.state == "draining") {
      Problem& problem = add(ProblemCause::draining);
      problem.text = "The frontend is stopping: it takes no new requests.";
    }
    for (const std::string& fault : status_.file_problems) {
      Problem& problem = add(ProblemCause::files);
      problem.text =
          sentence("A file is not used as it is; what was read before it stays: " + fault);
      problem.fix = "Correct the file: it is read again when it changes.";
    }
    const bool has_backend =
        std::any_of(status_.backends.begin(), status_.backends.end(),
                    [](const auto& entry) { return !entry.second.node.empty(); });
    if (has_backend) return;
    Problem& problem = add(ProblemCause::no_backend);
    problem.text = "No backend is connected, so there is no device to serve on.";
    problem.fix = "Start gpulet-backend on a machine with devices, with this frontend's address.";
  }

  // REQUIRES: this frontend does not lead.
  void add_leader() {
    const std::string& leader = status_.leadership.leader;
    if (status_.state == "forwarding") {
      Problem& problem = add(ProblemCause::forwarding, false);
      problem.text =
          fmt::format("This frontend forwards requests to {}, which leads the cluster.", leader);
      problem.fix = "Look there for models, gpulets and rates.";
      return;
    }
    Problem& problem = add(ProblemCause::no_leader);
    if (leader.empty()) {
      problem.text = "No frontend of the cluster leads: requests wait.";
      problem.fix = "One is elected within the lease time; if not, look at etcd.";
    } else if (!status_.forwarding.connected) {
      problem.text = fmt::format("The leader, {}, is not connected: requests wait.", leader);
      problem.fix = "Check cluster.peer_address of the leader, and the network between the two.";
    } else {
      problem.text = fmt::format("The leader, {}, does not serve.", leader);
      problem.fix = "Its own status names the cause.";
    }
  }

  void add_nodes() {
    for (const auto& [id, backend] : status_.backends) {
      if (backend.node.empty()) continue;
      if (backend.leaving) {
        Problem& problem = add(ProblemCause::node_leaving, false);
        problem.node = backend.node;
        problem.text = fmt::format("Node {} is stopping: its models move to others.", backend.node);
      }
      for (const DeviceOffer& offer : backend.devices) {
        if (offer.fault.ok()) continue;
        Problem& problem = add(ProblemCause::device_lost);
        problem.node = backend.node;
        problem.device = offer.device.key.device;
        problem.text = sentence(fmt::format("Device {} cannot be used: {}",
                                            device_name(offer.device.key), offer.fault.message()));
        problem.fix = "It is used again by itself when its fault is gone.";
      }
    }
    for (const DeviceStatus& device : status_.devices) {
      if (device.slowness <= 1) continue;
      Problem& problem = add(ProblemCause::slow_device, false);
      problem.node = device.key.node;
      problem.device = device.key.device;
      problem.text = fmt::format(
          "Device {} runs {:.1f} times slower than others of type {}; plans take that into "
          "account.",
          device_name(device.key), device.slowness, device.type);
      problem.fix = "Look for thermal or power limits, and for other load on the machine.";
    }
    for (const Exclusion& exclusion : status_.exclusions) {
      Problem& problem = add(ProblemCause::excluded);
      problem.node = exclusion.node;
      problem.device = exclusion.device;
      std::string name = excluded_name(exclusion);
      name.front() = exclusion.device ? 'D' : 'N';  // it begins a sentence
      problem.text = sentence(fmt::format("{} takes no new gpulets for a while ({}): {}", name,
                                          to_string(exclusion.cause), exclusion.error.message()));
      problem.fix = "It is tried again by itself; the error names the cause.";
    }
  }

  void add_gpulet(const GpuletStatus& gpulet) {
    const bool failed = gpulet.gpulet.state == GpuletState::failed;
    if (!failed && gpulet.gpulet.state != GpuletState::restarting) return;
    Problem& problem =
        add(failed ? ProblemCause::gpulet_failed : ProblemCause::gpulet_restarting, failed);
    problem.node = gpulet.gpulet.device.node;
    problem.device = gpulet.gpulet.device.device;
    problem.gpulet = gpulet.id;
    problem.text = fmt::format("The gpulet of {} on {}, device {}, {}", names_of({&gpulet}),
                               problem.node, *problem.device, failed ? "failed" : "is restarting");
    if (!gpulet.gpulet.status.ok()) problem.text += ": " + gpulet.gpulet.status.message();
    problem.text = sentence(std::move(problem.text));
  }

  // ---- models

  void add_model(const ModelStatus& model) {
    const bool violated = violates(model);
    Cause cause = cause_of(model, violated);
    if (cause.text.empty()) return;
    const bool mild =
        cause.cause == ProblemCause::passed ||
        (!violated && (cause.cause == ProblemCause::version ||
                       cause.cause == ProblemCause::loading || is_drift(cause.cause)));
    Problem& problem = add(cause.cause, !mild);
    problem.model = model.name;
    problem.last_minute = model.last_minute;
    problem.text = std::move(cause.text);
    if (violated) problem.text += ' ' + violations_of(model);
    problem.fix = std::move(cause.fix);
  }

  // An empty text: there is no problem.
  Cause cause_of(const ModelStatus& model, bool violated) const {
    if (std::optional<Cause> cause = absence_of(model)) return *std::move(cause);
    if (model.rate_unserved > 0 && !model.application) return shortage_of(model);
    if (!violated) {
      if (!model.reason.empty())
        return {ProblemCause::version, sentence(model.name + ": " + model.reason), {}};
      return drift_cause_of(model).value_or(Cause{});
    }
    if (model.latest.violations() == 0 && model.disturbs.empty()) {
      return {ProblemCause::passed,
              model.name +
                  " serves in time again: nothing was late or dropped in the last ten seconds.",
              {}};
    }
    if (2 * model.latest.failed > model.latest.violations()) {
      return {ProblemCause::errors, model.name + ": most of its violations are errors.",
              "The replies and the log name the errors; `gpulet status --json` counts them."};
    }
    if (model.application) return stage_of(model);
    if (!model.disturbs.empty()) return *drift_cause_of(model);
    if (std::optional<Cause> cause = slowness_of(model)) return *std::move(cause);
    if (std::optional<Cause> cause = want_of_cores(model)) return *std::move(cause);
    return wait_of(model);
  }

  static bool is_drift(ProblemCause cause) {
    return cause == ProblemCause::disturbs || cause == ProblemCause::slower_than_profile ||
           cause == ProblemCause::faster_than_profile;
  }

  // The profile does not describe the model any more. Plans take that into account.
  std::optional<Cause> drift_cause_of(const ModelStatus& model) const {
    const std::string drift = drift_of(model);
    if (drift.empty()) return std::nullopt;
    const std::string measure = fmt::format(
        "Measure it{} with `{}`", model.estimated ? "" : " again", measure_command(model.name));
    if (!model.disturbs.empty()) {
      return Cause{ProblemCause::disturbs,
                   fmt::format("{} {}; it gets gpulets of its own.", model.name, drift),
                   measure +
                       " and inputs like those served, or serve the slow inputs as a model "
                       "of its own."};
    }
    if (model.correction < 1) {
      return Cause{ProblemCause::faster_than_profile,
                   fmt::format("{} {}; plans take that into account.", model.name, drift),
                   measure + '.'};
    }
    return Cause{ProblemCause::slower_than_profile,
                 fmt::format("{} {} on {}; plans take that into account.", model.name, drift,
                             where_slow(model)),
                 measure + ", and look for other load on the machine."};
  }

  // The device of its largest correction.
  std::string where_slow(const ModelStatus& model) const {
    const CorrectionStatus* slowest = nullptr;
    for (const CorrectionStatus& one : status_.corrections) {
      if (one.model == model.name && (slowest == nullptr || one.factor > slowest->factor))
        slowest = &one;
    }
    return slowest == nullptr ? "its device" : device_name(slowest->slowest);
  }

  std::optional<Cause> absence_of(const ModelStatus& model) const {
    if (model.state == ModelState::idle) return std::nullopt;
    const auto gpulets = of_model_.find(model.name);
    const bool has_gpulet = model.application || gpulets != of_model_.end();
    if (model.state == ModelState::unavailable || !has_gpulet) {
      if (model.missing && model.missing->cause == schedule::UnservedCause::devices)
        return shortage_of(model);
      const std::string why = !model.reason.empty() ? model.reason
                              : has_gpulet          ? "the frontend does not say why"
                                                    : "no gpulet has it";
      return Cause{ProblemCause::not_served, sentence("Nothing serves " + model.name + ": " + why),
                   fix_of(model)};
    }
    if (model.state == ModelState::loading && model.last_minute.violations() > 0) {
      return Cause{ProblemCause::loading,
                   model.name + " is being loaded: nothing serves it before its gpulet is ready.",
                   {}};
    }
    return std::nullopt;
  }

  Cause shortage_of(const ModelStatus& model) const {
    const bool full = model.missing && model.missing->cause == schedule::UnservedCause::devices;
    if (!full) {
      const std::string part = fmt::format("Cannot place {} of {} of {}", rate(model.rate_unserved),
                                           rate(model.rate_planned), model.name);
      return {ProblemCause::no_place,
              sentence(part + (model.reason.empty() ? "" : ": " + model.reason)), fix_of(model)};
    }
    const double served = std::max(0.0, model.rate_planned - model.rate_unserved);
    return {ProblemCause::too_few_devices,
            fmt::format("Too few devices for {}: they can serve {} of {}.", model.name,
                        rate(served), rate(model.rate_planned)),
            fix_of(model)};
  }

  // The fix for unserved demand; empty where the plan does not state what is missing.
  std::string fix_of(const ModelStatus& model) const {
    if (!model.missing) return {};
    switch (model.missing->cause) {
      case schedule::UnservedCause::devices: {
        const auto whole = [](double devices) {
          return static_cast<std::uint64_t>(std::max(1.0, std::ceil(devices)));
        };
        std::string devices = counted(whole(model.missing->devices), "device");
        if (models_short_ > 1)
          devices += fmt::format(" ({} for all models)", whole(devices_missing_));
        return fmt::format("Add {}, lower the rate, or raise the SLO.", devices);
      }
      case schedule::UnservedCause::any_device:
        return "Bring back a device that takes gpulets, or add one.";
      case schedule::UnservedCause::profile:
        return fmt::format("Measure it with `{}`, or import its latencies.",
                           measure_command(model.name));
      case schedule::UnservedCause::latency:
        if (model.missing->least_slo_ms > 0)
          return fmt::format("Raise its slo_ms to {:.4g} ms at least.",
                             model.missing->least_slo_ms);
        return "Measure it at the sizes that the devices have.";
      case schedule::UnservedCause::memory:
        return fmt::format("Use a device with more memory: it needs {:.0f} MB.",
                           model.missing->memory_mb);
      case schedule::UnservedCause::kept_apart:
        return "Add a device for it alone, or repair the model that may not share a gpulet.";
      case schedule::UnservedCause::chance:
        return "Raise its slo_ms.";
    }
    return {};
  }

  Cause stage_of(const ModelStatus& application) const {
    const ModelStatus* worst = nullptr;
    for (const std::string& name : application.calls) {
      const auto found = models_.find(name);
      if (found == models_.end()) continue;
      const ModelStatus& model = *found->second;
      if (worst == nullptr || model.last_minute.violated() > worst->last_minute.violated())
        worst = &model;
    }
    if (worst == nullptr || worst->last_minute.violations() == 0) {
      return {ProblemCause::queue,
              application.name + " exceeds its objective although its models meet theirs.",
              "Raise its slo_ms."};
    }
    return {ProblemCause::stage,
            fmt::format("{} waits for its model {}, which misses {} of its deadlines.",
                        application.name, worst->name, percent(worst->last_minute.violated())),
            "See the problem of " + worst->name + "."};
  }

  std::optional<Cause> slowness_of(const ModelStatus& model) const {
    const auto held = of_model_.find(model.name);
    if (held == of_model_.end()) return std::nullopt;
    if (model.pace < kSlowPace) {
      if (model.correction >= kSlowPace) return drift_cause_of(model);
      return slow_companion_of(model, held->second);
    }
    const std::string slow = fmt::format("The batches of {} take {} longer than planned",
                                         model.name, percent(model.pace - 1));
    Gpulets neighbours;
    bool slow_alone = false;
    for (const GpuletStatus* const gpulet : held->second) {
      if (gpulet->pace < kSlowPace) continue;
      const Gpulets beside = busy_neighbours_of(*gpulet);
      slow_alone = slow_alone || beside.empty();
      neighbours.insert(neighbours.end(), beside.begin(), beside.end());
    }
    if (slow_alone || neighbours.empty()) {
      return Cause{
          ProblemCause::slower_than_profile,
          slow + (slow_alone ? ", also without neighbours." : "."),
          fmt::format("Measure it again with `{}`, and look for other load on the machine.",
                      measure_command(model.name))};
    }
    return Cause{
        ProblemCause::neighbour, slow + ", beside " + names_of(neighbours) + ".",
        fmt::format("Measure their interference with `{}`: later plans take it into account.",
                    measure_interference_command())};
  }

  // The model takes turns with another whose batches are slow.
  std::optional<Cause> slow_companion_of(const ModelStatus& model, const Gpulets& held) const {
    for (const GpuletStatus* const gpulet : held) {
      for (const schedule::RunningModel& other : gpulet->gpulet.models) {
        const auto found = models_.find(other.name);
        if (other.name == model.name || found == models_.end()) continue;
        if (!found->second->disturbs.empty()) {
          return Cause{ProblemCause::neighbour,
                       fmt::format("{} takes turns with {}: {}.", model.name, other.name,
                                   found->second->disturbs),
                       other.name + " gets gpulets of its own with the next plan."};
        }
        if (found->second->pace < kSlowPace) continue;
        return Cause{
            ProblemCause::neighbour,
            fmt::format("{} takes turns with {}, whose batches take {} longer than planned.",
                        model.name, other.name, percent(found->second->pace - 1)),
            fmt::format("Measure it again with `{}`.", measure_command(other.name))};
      }
    }
    return std::nullopt;
  }

  std::optional<Cause> want_of_cores(const ModelStatus& model) const {
    if (!model.control) return std::nullopt;
    const bool scarce = std::any_of(
        status_.controlled_nodes.begin(), status_.controlled_nodes.end(),
        [](const NodeControlStatus& node) { return node.contention > 0 && node.contention < 1; });
    if (!scarce) return std::nullopt;
    return Cause{ProblemCause::too_few_cores,
                 fmt::format("{} requests {:.1f} cores and gets {:.1f}.", model.name,
                             model.control->cores_requested, model.control->cores_granted),
                 "Add cores or nodes, lower the rate, or raise the SLO."};
  }

  Cause wait_of(const ModelStatus& model) const {
    if (model.rate_planned > 0 && model.rate_seen > model.rate_planned) {
      return {ProblemCause::above_plan,
              fmt::format("{} gets {}, but {} were planned{}", model.name, rate(model.rate_seen),
                          rate(model.rate_planned),
                          status_.reorganising ? ": a new plan is on its way." : "."),
              "The frontend plans anew by itself. Raise the load more slowly, or raise the SLO."};
    }
    return {
        ProblemCause::queue,
        "The batches of " + model.name +
            " run as planned, but its requests wait too long in its queue: they come in bursts.",
        "Spread the requests evenly, raise the SLO, or plan with a larger \"margin\"."};
  }

  // ---- helpers

  // Busy gpulets of the plan in force on its device.
  Gpulets busy_neighbours_of(const GpuletStatus& gpulet) const {
    Gpulets busy;
    const auto found = on_device_.find(device_of(gpulet));
    if (found == on_device_.end()) return busy;
    std::copy_if(found->second.begin(), found->second.end(), std::back_inserter(busy),
                 [&](const GpuletStatus* other) {
                   return other != &gpulet && other->busy >= kBusyNeighbour;
                 });
    return busy;
  }

  static std::string names_of(const Gpulets& gpulets) {
    std::vector<std::string> names;
    for (const GpuletStatus* const gpulet : gpulets) {
      for (const schedule::RunningModel& model : gpulet->gpulet.models) {
        if (std::find(names.begin(), names.end(), model.name) == names.end())
          names.push_back(model.name);
      }
    }
    if (names.empty()) return "no model";
    if (names.size() > kNeighboursNamed) {
      std::string more = fmt::format("{} more", names.size() - kNeighboursNamed);
      names.resize(kNeighboursNamed);
      names.push_back(std::move(more));
    }
    return joined(names, ", ");
  }

  Problem& add(ProblemCause cause, bool grave = true) {
    Problem& problem = found_.emplace_back();
    problem.cause = cause;
    problem.grave = grave;
    return problem;
  }

  const FrontendStatus& status_;
  std::unordered_map<std::string, const ModelStatus*> models_;
  std::map<DeviceOfBackend, Gpulets> on_device_;       // of the plan in force
  std::unordered_map<std::string, Gpulets> of_model_;  // in any state
  double devices_missing_ = 0;
  std::size_t models_short_ = 0;  // of devices
  std::vector<Problem> found_;
};

}  // namespace

std::string_view to_string(ProblemCause cause) {
  constexpr std::array<std::string_view, 27> kNames = {"draining",
                                                       "no_leader",
                                                       "forwarding",
                                                       "no_backend",
                                                       "files",
                                                       "node_leaving",
                                                       "excluded",
                                                       "device_lost",
                                                       "slow_device",
                                                       "gpulet_failed",
                                                       "gpulet_restarting",
                                                       "audit_log",
                                                       "not_served",
                                                       "loading",
                                                       "too_few_devices",
                                                       "no_place",
                                                       "errors",
                                                       "slower_than_profile",
                                                       "faster_than_profile",
                                                       "neighbour",
                                                       "disturbs",
                                                       "too_few_cores",
                                                       "above_plan",
                                                       "queue",
                                                       "stage",
                                                       "passed",
                                                       "version"};
  static_assert(static_cast<std::size_t>(ProblemCause::version) + 1 == kNames.size());
  return kNames[static_cast<std::size_t>(cause)];
}

std::string drift_of(const ModelStatus& model) {
  if (!model.disturbs.empty()) return "blocks other models: " + model.disturbs;
  const std::string_view basis = model.estimated ? "estimated" : "its profile";
  if (model.correction >= kSlowPace)
    return fmt::format("runs {:.1f} times slower than {}", model.correction, basis);
  if (model.correction <= kFastPace)
    return fmt::format("runs {:.1f} times faster than {}", 1 / model.correction, basis);
  return {};
}

std::vector<Problem> find_problems(const FrontendStatus& status) { return Diagnosis(status).run(); }

}  // namespace gpulet::serve

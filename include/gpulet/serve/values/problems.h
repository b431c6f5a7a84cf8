// Problems of a frontend, each with its cause and a fix, derived from one status: so every page and
// program that shows the status shows the same problems. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/serve/values/frontend_status.h"

namespace gpulet::serve {

// The fraction of a model's requests that may miss their deadline (docs/scheduling.md).
inline constexpr double kViolationTarget = 0.01;

enum class ProblemCause : std::uint8_t {
  // Of the frontend, of nodes and devices.
  draining = 0,  // the frontend is stopping
  no_leader,     // no frontend of the cluster leads, or it cannot be reached
  forwarding,    // another frontend serves
  no_backend,    // none is connected
  files,         // a file of models or profiles is rejected, in whole or in part
  node_leaving,  // a node is stopping
  excluded,      // a node or device takes no new gpulets for a while
  device_lost,   // a device has a fault
  slow_device,   // a device is slower than others of its type
  gpulet_failed,
  gpulet_restarting,
  audit_log,  // of the daemon: the audit log is not being written
  // Of a model. If several apply, the first one is reported.
  not_served,           // nothing serves it
  loading,              // its gpulets are being prepared
  too_few_devices,      // part of its rate is unserved: the devices are full
  no_place,             // part of its rate is unserved for another reason
  errors,               // most violations are errors
  slower_than_profile,  // its batches run longer than profiled, also without neighbours
  faster_than_profile,  // its batches run shorter than profiled: it holds more than it needs
  neighbour,            // models on its device or in its gpulet slow it down
  disturbs,             // some of its batches block the other models of a gpulet
  too_few_cores,        // its instances request more cores than there are
  above_plan,           // its rate exceeds the planned rate
  queue,                // batches run as planned, but requests wait too long for them
  stage,                // of an application: one of its models has a problem
  passed,               // there were violations, but not in the last seconds
  version,              // its next version is refused or being warmed
};
// The enumerator's name.
[[nodiscard]] std::string_view to_string(ProblemCause cause);

struct Problem {
  ProblemCause cause = ProblemCause::draining;
  bool grave = true;                      // false: for information only
  std::string model;                      // empty: not specific to a model
  std::string node;                       // empty: not specific to a node
  std::optional<std::uint32_t> device{};  // of the node
  std::optional<GpuletId> gpulet{};
  Outcomes last_minute{};  // of the model
  std::string text;        // the problem and its reason
  std::string fix;         // empty: there is nothing to do, or the text says it

  friend bool operator==(const Problem&, const Problem&) = default;
};

// What the model does that its profile does not say: it blocks others, or runs slower or faster.
// Empty where it runs as profiled.
[[nodiscard]] std::string drift_of(const ModelStatus& model);

// Problems of the frontend, nodes and devices come first, then those of models by descending
// fraction of violations, then those of gpulets; those that are not grave come last. Every model
// that exceeds the violation target in the last minute is included.
[[nodiscard]] std::vector<Problem> find_problems(const FrontendStatus& status);

}  // namespace gpulet::serve

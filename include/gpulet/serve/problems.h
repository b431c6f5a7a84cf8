// What is wrong in a frontend, with its cause and what to do about it: found in one status, so that
// every page and program that shows the status shows the same problems. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/serve/frontend_status.h"

namespace gpulet::serve {

// The part of a model's requests that may stay without an answer in time: what plans promise
// (docs/scheduling.md).
inline constexpr double kViolationTarget = 0.01;

enum class ProblemCause : std::uint8_t {
  // Of the whole, of nodes and devices.
  draining = 0,  // the frontend is stopping
  no_backend,    // none is connected
  node_leaving,  // a node is stopping
  excluded,      // a node or device takes no new gpulets for a while
  device_lost,   // it cannot be used now
  gpulet_failed,
  gpulet_restarting,
  // Of a model. Where several hold, the first of these is told.
  not_served,           // nothing serves it
  loading,              // its gpulets are on their way
  too_few_devices,      // part of its rate has no place: the devices are full
  no_place,             // part of its rate has no place for another reason
  errors,               // most of what has no answer in time has an error
  slower_than_profile,  // its batches run longer than the plan has them, also without neighbours
  neighbour,            // what runs beside it, or in its gpulet, slows it down
  too_few_cores,        // executables whose cores are controlled want more than there are
  above_plan,           // it gets more than was planned for
  queue,                // batches run as planned, requests wait too long for them
  stage,                // of an application: one of its models has a problem
  passed,               // there were violations, and there are none any more
  version,              // its next version is refused, or being warmed
};
// As written above.
[[nodiscard]] std::string_view to_string(ProblemCause cause);

struct Problem {
  ProblemCause cause = ProblemCause::draining;
  bool grave = true;                      // false: worth knowing, and nobody has to act
  std::string model;                      // empty: it is not of one model
  std::string node;                       // empty: of none
  std::optional<std::uint32_t> device{};  // of the node
  std::optional<GpuletId> gpulet{};
  // Of the model's requests of the last minute, those without an answer in time.
  Outcomes last_minute{};
  std::string text;  // what is wrong, and why
  std::string fix;   // what to do; empty: nothing, or the text says it

  friend bool operator==(const Problem&, const Problem&) = default;
};

// The more of its requests a model violates, the further up; problems of the whole come first, what
// is not grave last. Every model that violates more than the target in the last minute is among
// them.
[[nodiscard]] std::vector<Problem> find_problems(const FrontendStatus& status);

}  // namespace gpulet::serve

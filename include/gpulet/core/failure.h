// Why a gpulet failed, and how its process ended. The component that finds a failure sets the
// cause; no cause is derived from a message. A failure of a node or device excludes it from plans
// for a backoff; only a failure of the model's file refuses a version. Values; any thread. The
// numbers of the causes are on the wire.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gpulet {
enum class FailureCause : std::uint8_t {
  unknown = 0,
  node_disk = 1,    // writing a model file failed: no space, quota, input/output error
  node_store = 2,   // a file of the model store is missing or unreadable
  node_spawn = 3,   // no process could be started
  node_memory = 4,  // not enough memory on the node
  node_cgroup = 5,  // the share could not be enforced by a cgroup
  device = 6,       // the device or its partitioning failed
  model_file = 7,   // the file does not load, or differs from its declaration
  model_crash = 8,  // the process ended on its own
  hung = 9,         // the process did not answer in time
  input = 10,       // the model cannot compute a value in a request: the client's fault
};
inline constexpr FailureCause kLastFailureCause = FailureCause::input;

// The enumerator's name.
[[nodiscard]] constexpr std::string_view to_string(FailureCause cause) {
  constexpr std::array<std::string_view, 11> kNames{
      "unknown", "node_disk",  "node_store",  "node_spawn", "node_memory", "node_cgroup",
      "device",  "model_file", "model_crash", "hung",       "input"};
  static_assert(kNames.size() == static_cast<std::size_t>(kLastFailureCause) + 1);
  const auto at = static_cast<std::size_t>(cause);
  return at < kNames.size() ? kNames[at] : kNames[0];
}

// True where the node is the cause, so that other models would fail on each of its devices, too.
[[nodiscard]] constexpr bool is_node_cause(FailureCause cause) {
  return cause >= FailureCause::node_disk && cause <= FailureCause::node_cgroup;
}

// True where the node or a device is the cause, not the model.
[[nodiscard]] constexpr bool is_machine_cause(FailureCause cause) {
  return is_node_cause(cause) || cause == FailureCause::device;
}

// How a process ended, as reported by waitpid.
struct ProcessEnd {
  std::uint8_t signal = 0;       // the signal that ended it; 0: it exited
  std::uint8_t exit_status = 0;  // where it exited without a signal

  friend bool operator==(const ProcessEnd&, const ProcessEnd&) = default;
};

}  // namespace gpulet

// FailureCause: what a gpulet's failure counts against. Whoever knows sets it where the failure is
// found; it is never derived from a message. A node's and a device's failures exclude the node or
// the device from plans for a while, and only a failure of the model's file refuses a version.
// Values; any thread. The numbers are on the wire.
#pragma once

#include <cstdint>
#include <string_view>

namespace gpulet {

enum class FailureCause : std::uint8_t {
  unknown = 0,
  node_disk = 1,    // writing a model file failed: no space, quota, input/output error
  node_store = 2,   // a file of the model store cannot be read or is missing
  node_spawn = 3,   // no process could be started
  node_memory = 4,  // not enough memory on the node
  node_cgroup = 5,  // the share could not be enforced by a cgroup
  device = 6,       // the device, or what divides it, failed
  model_file = 7,   // the file does not load or does not do what its entry declares
  model_crash = 8,  // the process ended by itself
  hung = 9,         // the process did not answer in time
  input = 10,       // of a batch: the model cannot compute values of its input; the client's fault
};
inline constexpr FailureCause kLastFailureCause = FailureCause::input;

// The cause's name as written above.
[[nodiscard]] std::string_view to_string(FailureCause cause);

// The node is to blame: the same would happen to other models there, on each of its devices.
[[nodiscard]] constexpr bool is_node_cause(FailureCause cause) {
  return cause >= FailureCause::node_disk && cause <= FailureCause::node_cgroup;
}

// Of the node or of a device: no fault of the model.
[[nodiscard]] constexpr bool is_machine_cause(FailureCause cause) {
  return is_node_cause(cause) || cause == FailureCause::device;
}

}  // namespace gpulet

// The abilities of a partitioning mechanism, and the findings of a process about its device. Plain
// values; any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "gpulet/base/time.h"

namespace gpulet::partition {

// How the share of a gpulet changes.
enum class ChangeOfSize : std::uint8_t {
  new_process = 0,  // starts beside the old process and replaces it once it has loaded
  in_place = 1,     // the same process goes on with the new share
};

// The scope of a fatal fault in one gpulet's process.
enum class FaultReach : std::uint8_t {
  process = 0,
  device = 1,  // all gpulets of the device
};

struct Traits {
  double step_percent = 1;  // the smallest difference in share that has an effect
  ChangeOfSize change = ChangeOfSize::new_process;
  FaultReach fault = FaultReach::process;
  bool limits_memory = false;  // a gpulet cannot take its neighbours' memory

  friend bool operator==(const Traits&, const Traits&) = default;
};

// The names above: "new_process", "in_place"; "process", "device".
[[nodiscard]] constexpr std::string_view to_string(ChangeOfSize change) {
  return change == ChangeOfSize::in_place ? "in_place" : "new_process";
}
[[nodiscard]] constexpr std::string_view to_string(FaultReach reach) {
  return reach == FaultReach::device ? "device" : "process";
}

// The share that a process finds on its device, according to the device itself.
struct FoundShare {
  bool held = false;             // enforced from outside the process, which cannot exceed it
  std::uint32_t sms = 0;         // SMs that it may use; 0: the device does not report it
  std::uint32_t device_sms = 0;  // of the whole device; 0: unknown

  friend bool operator==(const FoundShare&, const FoundShare&) = default;
};

// How long each stage of loading the models of a process took; zero: not measured, or not needed.
struct LoadStages {
  Duration read{};     // reading the files
  Duration copy{};     // building the networks, with their weights on the device
  Duration warm{};     // running batches, and choosing a variant of the network by running it
  Duration capture{};  // capturing batches as CUDA graphs

  LoadStages& operator+=(const LoadStages& other) {
    read += other.read;
    copy += other.copy;
    warm += other.warm;
    capture += other.capture;
    return *this;
  }
  friend bool operator==(const LoadStages&, const LoadStages&) = default;
};

// The properties of a process that change while it serves.
struct ProcessCondition {
  std::uint32_t sms = 0;               // as FoundShare::sms, but the present number
  std::uint32_t shared_sms = 0;        // of these, the SMs that other gpulets may use as well
  std::uint32_t sizes_to_capture = 0;  // batch sizes that it will still capture, between batches

  friend bool operator==(const ProcessCondition&, const ProcessCondition&) = default;
};

enum class DeviceHealth : std::uint8_t {
  works = 0,
  not_ready = 1,  // accepts no processes now, but may accept a new one later
  lost = 2,       // a fatal fault: this process cannot use the device any more
};

}  // namespace gpulet::partition

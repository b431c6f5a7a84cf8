// Which devices of this machine `gpulet serve` uses, and their entries in a backend's file. Pure,
// except that device_entries() reads the size of the machine's memory.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "gpulet/base/status.h"
#include "tools/measure/machine.h"
#include "tools/serve/proxy_formats.h"

namespace gpulet::tools {

struct ServedDevices {
  MachineDevices machine;  // with the GPUs that serve; without any, the cores do
  // Why the cores serve although no device was named, in one line; otherwise empty.
  std::string why_cores{};
};

// The devices that "cpu" (all cores), "cpu:0,1", "gpu" (all GPUs) or "cuda:0" names; "auto" or
// empty: the GPUs, or the cores where no GPU can serve. GPUs serve through MPS, and only where a
// program runs one of these formats there; where there are none, formats do not matter. Fails with
// invalid for another name, and with not_found or unavailable where a named device is not there or
// cannot serve.
[[nodiscard]] Result<ServedDevices> choose_devices(MachineDevices machine, const std::string& name,
                                                   std::span<const FormatSupport> formats);
// The same without GPUs.
[[nodiscard]] MachineDevices without_gpus(MachineDevices machine);

// ---- REQUIRES: the machine is that of choose_devices()

// The device on which the models are measured: the first GPU of the machine or, without one, the
// first core.
[[nodiscard]] std::string device_to_measure(const MachineDevices& machine);
// The entries of "devices" in a backend's file for the GPUs of the machine or, without one, for its
// cores. `type`: of the profile, as type_of().
[[nodiscard]] nlohmann::ordered_json device_entries(const MachineDevices& machine,
                                                    const std::string& type);
// "2 CPU cores", "4 GPUs"
[[nodiscard]] std::string devices_text(const MachineDevices& machine);

}  // namespace gpulet::tools

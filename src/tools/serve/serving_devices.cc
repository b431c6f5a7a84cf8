#include "tools/serve/serving_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "gpulet/gpu/nvml.h"
#include "tools/measure/measured_device.h"
#include "tools/serve/measured_models.h"

namespace gpulet::tools {
namespace {

using Json = nlohmann::ordered_json;

// Of the gpulets of one device at the same time.
constexpr int kMostPartitions = 4;

Json sizes() {
  Json sizes = Json::array();
  for (const Share size : served_sizes()) sizes.push_back(size.percent);
  return sizes;
}

// Why a GPU cannot be divided by MPS.
Status divisible(const MachineGpu& gpu) {
  if (!gpu.info.fault.empty()) return {StatusCode::unavailable, gpu.info.fault};
  if (gpu.info.mig_enabled) {
    return {StatusCode::unavailable,
            fmt::format("GPU {} is in MIG mode; write a backend's file for it (docs/gpu.md)",
                        gpu.info.number)};
  }
  if (!gpu.info.shareable) {
    return {StatusCode::unavailable,
            fmt::format("GPU {}: its compute mode admits no other process; change it with "
                        "nvidia-smi -c 0",
                        gpu.info.number)};
  }
  return {};
}

// Why no model of these formats runs on a GPU.
Status runs_on_gpu(std::span<const FormatSupport> formats) {
  Status first;
  for (const FormatSupport& one : formats) {
    if (one.on_gpu.ok()) return {};
    if (first.ok()) first = one.on_gpu.within(std::string(name_of(one.format)) + " models");
  }
  return first;
}

// Keeps the GPUs that serve. Fails with unavailable where none does.
Status keep_serving_gpus(MachineDevices& machine, std::span<const FormatSupport> formats) {
  if (machine.gpus.empty()) {
    return {StatusCode::unavailable,
            machine.no_gpus.empty() ? "this machine has no GPU" : machine.no_gpus};
  }
  const Status first = divisible(machine.gpus.front());
  std::erase_if(machine.gpus, [](const MachineGpu& gpu) { return !divisible(gpu).ok(); });
  if (machine.gpus.empty()) return {StatusCode::unavailable, first.message()};
  if (!machine.mps_control.ok())
    return {StatusCode::unavailable, machine.mps_control.status().message()};
  return runs_on_gpu(formats);
}

Result<ServedDevices> choose_cores(MachineDevices machine, const DeviceName& named,
                                   const std::string& name) {
  for (const std::uint32_t core : named.cores) {
    if (std::find(machine.cores.begin(), machine.cores.end(), core) != machine.cores.end())
      continue;
    return Status(StatusCode::not_found,
                  fmt::format("--device {}: this machine has no core {}; use some of {}", name,
                              core, fmt::join(machine.cores, ",")));
  }
  machine.cores = named.cores;
  return ServedDevices{without_gpus(std::move(machine))};
}

// Leaves the GPU of that name.
Status keep_named(MachineDevices& machine, const DeviceName& named) {
  if (machine.gpus.empty() && !machine.no_gpus.empty())
    return {StatusCode::not_found, machine.no_gpus};
  std::vector<gpu::GpuInfo> infos;
  for (const MachineGpu& gpu : machine.gpus) infos.push_back(gpu.info);
  const auto chosen = gpu::choose_gpu(infos, named.gpu);
  if (!chosen.ok()) return chosen.status();
  std::erase_if(machine.gpus,
                [&chosen](const MachineGpu& gpu) { return gpu.info.uuid != chosen.value().uuid; });
  return {};
}

}  // namespace

MachineDevices without_gpus(MachineDevices machine) {
  machine.gpus.clear();
  return machine;
}

Result<ServedDevices> choose_devices(MachineDevices machine, const std::string& name,
                                     std::span<const FormatSupport> formats) {
  if (name == "cpu") return ServedDevices{without_gpus(std::move(machine))};
  const bool any = name.empty() || name == "auto";
  if (!any && name != "gpu") {
    GPULET_TRY(const auto named, parse_device(name));
    if (!named.is_gpu()) return choose_cores(std::move(machine), named, name);
    if (Status kept = keep_named(machine, named); !kept.ok())
      return kept.within("--device " + name);
  }
  const Status serves = keep_serving_gpus(machine, formats);
  if (serves.ok()) return ServedDevices{std::move(machine)};
  if (!any) return serves.within("--device " + name);
  return ServedDevices{without_gpus(std::move(machine)), serves.message()};
}

std::string device_to_measure(const MachineDevices& machine) {
  if (!machine.gpus.empty()) return "cuda:" + machine.gpus.front().info.uuid;
  return fmt::format("cpu:{}", machine.cores.front());
}

std::string devices_text(const MachineDevices& machine) {
  const bool gpus = !machine.gpus.empty();
  const std::size_t count = gpus ? machine.gpus.size() : machine.cores.size();
  return fmt::format("{} {}{}", count, gpus ? "GPU" : "CPU core", count == 1 ? "" : "s");
}

Json device_entries(const MachineDevices& machine, const std::string& type) {
  Json devices = Json::array();
  for (const MachineGpu& gpu : machine.gpus) {
    devices.push_back({{"type", type},
                       {"partitioning", "mps"},
                       {"gpu", gpu.info.uuid},
                       {"sizes", sizes()},
                       {"max_partitions", kMostPartitions}});
  }
  if (!devices.empty()) return devices;
  // Half of the memory, because the tensors of requests and the daemons need some, too.
  const double memory_mb = machine_memory_mb() / 2;
  Json device = {{"type", type},
                 {"count", machine.cores.size()},
                 {"partitioning", "cpu_quota"},
                 {"cores", machine.cores},
                 {"sizes", sizes()},
                 {"max_partitions", kMostPartitions}};
  if (memory_mb > 0)
    device["memory_mb"] = static_cast<int>(memory_mb / static_cast<double>(machine.cores.size()));
  devices.push_back(std::move(device));
  return devices;
}

}  // namespace gpulet::tools

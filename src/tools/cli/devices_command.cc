// gpulet devices: the devices of this machine, and what serves models on them.
#include <fmt/format.h>

#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/text.h"
#include "tools/cli/command.h"
#include "tools/measure/machine.h"
#include "tools/measure/measured_device.h"
#include "tools/report/format.h"
#include "tools/serve/proxy_formats.h"
#include "tools/serve/serving_devices.h"

namespace gpulet::tools {
namespace {

constexpr const char* kUnknown = "-";

struct DevicesOptions {
  bool json = false;
};

std::uint64_t memory_mb(const MachineGpu& gpu) { return gpu.info.memory_bytes >> 20U; }

std::string compute_capability(const MachineGpu& gpu) {
  return fmt::format("{}.{}", gpu.info.compute_major, gpu.info.compute_minor);
}

// "0-3, 6" for 0, 1, 2, 3, 6.
std::string number_ranges(const std::vector<std::uint32_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", numbers[i]);
    if (last > i) text += fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

// "off", "on", "on: 3g@0, 2g@4"
std::string mig_text(const MachineGpu& gpu) {
  std::string text = gpu.info.mig_enabled ? "on" : "off";
  for (const gpu::MigDeviceInstance& instance : gpu.instances)
    text += (&instance == gpu.instances.data() ? ": " : ", ") + to_string(instance);
  return text;
}

nlohmann::ordered_json to_json(const MachineGpu& gpu) {
  nlohmann::ordered_json document = {{"number", gpu.info.number}};
  if (!gpu.info.fault.empty()) document["fault"] = gpu.info.fault;
  document["uuid"] = gpu.info.uuid;
  document["name"] = gpu.info.name;
  document["memory_mb"] = memory_mb(gpu);
  document["compute_capability"] = compute_capability(gpu);
  document["mig"] = gpu.info.mig_enabled;
  for (const gpu::MigDeviceInstance& instance : gpu.instances)
    document["mig_instances"].push_back(
        {{"instance", to_string(instance)}, {"uuid", instance.uuid}, {"sms", instance.sms}});
  document["shareable"] = gpu.info.shareable;
  if (gpu.sms) document["sms"] = *gpu.sms;
  if (gpu.green.ok()) {
    document["green"] = {{"possible", true},
                         {"step_sms", gpu.green.value().step},
                         {"divisible_sms", gpu.green.value().divisible}};
  } else {
    document["green"] = {{"possible", false}, {"reason", gpu.green.status().message()}};
  }
  return document;
}

// What `gpulet serve` would use.
struct Serving {
  ServedDevices devices;
  std::vector<FormatSupport> formats;
  Status programs;  // why there are no formats
};

Serving find_serving(const MachineDevices& machine) {
  const auto programs = find_proxies();
  Serving found{{machine}, {}, programs.status()};
  if (programs.ok()) found.formats = supported_formats(programs.value());
  auto devices = choose_devices(machine, "auto", found.formats);
  if (devices.ok()) found.devices = std::move(devices).value();
  return found;
}

// What `gpulet serve` would write into a backend's file.
nlohmann::ordered_json backend_entries(const MachineDevices& machine) {
  const auto device = parse_device(device_to_measure(machine));
  const auto type = device.ok() ? type_of(device.value()) : Result<std::string>(device.status());
  return device_entries(machine, type.ok() ? type.value() : "device");
}

nlohmann::ordered_json to_json(const FormatSupport& format, bool on_gpu) {
  const Status& here = on_gpu ? format.on_gpu : format.on_cpu;
  nlohmann::ordered_json document = {{"format", name_of(format.format)}, {"possible", here.ok()}};
  if (here.ok()) {
    document["program"] = format.program.string();
  } else {
    document["reason"] = here.message();
  }
  document["cpu"] = format.on_cpu.ok();
  document["gpu"] = format.on_gpu.ok();
  if (!format.on_gpu.ok()) document["gpu_reason"] = format.on_gpu.message();
  return document;
}

nlohmann::ordered_json serving(const MachineDevices& all) {
  const Serving found = find_serving(all);
  const MachineDevices& machine = found.devices.machine;
  nlohmann::ordered_json document = {{"devices", devices_text(machine)}};
  if (!found.devices.why_cores.empty()) document["reason"] = found.devices.why_cores;
  document["formats"] = nlohmann::ordered_json::array();
  for (const FormatSupport& format : found.formats)
    document["formats"].push_back(to_json(format, !machine.gpus.empty()));
  if (!found.programs.ok()) document["no_formats"] = found.programs.message();
  document["backend_devices"] = backend_entries(machine);
  return document;
}

void print_format(const FormatSupport& format) {
  const auto answer = [](const Status& runs) {
    return runs.ok() ? std::string("yes") : "no: " + runs.message();
  };
  if (format.on_cpu.ok() || format.on_cpu.message() != format.on_gpu.message()) {
    std::cout << fmt::format("  {} on the CPU: {}\n  {} on a GPU: {}\n", name_of(format.format),
                             answer(format.on_cpu), name_of(format.format), answer(format.on_gpu));
  } else {
    std::cout << fmt::format("  {}: {}\n", name_of(format.format), answer(format.on_cpu));
  }
}

void print_serving(const MachineDevices& all) {
  const Serving found = find_serving(all);
  std::cout << "\ngpulet serve takes: " << devices_text(found.devices.machine) << '\n';
  if (!found.devices.why_cores.empty())
    std::cout << "  no GPU: " << found.devices.why_cores << '\n';
  std::cout << "\nFormats of model files:\n";
  for (const FormatSupport& format : found.formats) print_format(format);
  if (!found.programs.ok()) std::cout << "  none: " << found.programs.message() << '\n';
  std::cout << "\nEntries of \"devices\" in a backend's file:\n";
  for (const auto& entry : backend_entries(found.devices.machine))
    std::cout << entry.dump() << '\n';
}

void print_json(const MachineDevices& machine) {
  nlohmann::ordered_json document = {{"cpu", {{"cores", machine.cores}}}};
  document["gpus"] = nlohmann::ordered_json::array();
  for (const MachineGpu& gpu : machine.gpus) document["gpus"].push_back(to_json(gpu));
  if (!machine.no_gpus.empty()) document["no_gpus"] = machine.no_gpus;
  if (!machine.driver_version.empty()) document["driver"] = machine.driver_version;
  if (machine.cuda_version) document["cuda"] = gpu::cuda_version_text(*machine.cuda_version);
  if (machine.mps_control.ok()) {
    document["mps"] = {{"found", true}, {"program", machine.mps_control.value().string()}};
  } else {
    document["mps"] = {{"found", false}, {"reason", machine.mps_control.status().message()}};
  }
  document["serving"] = serving(machine);
  std::cout << json_page(document);
}

void print_gpus(const std::vector<MachineGpu>& gpus) {
  Table table({{"GPU"},
               {"name", Table::Align::left},
               {"UUID", Table::Align::left},
               {"memory MB"},
               {"compute"},
               {"SMs"},
               {"MIG", Table::Align::left},
               {"green contexts", Table::Align::left}});
  for (const MachineGpu& gpu : gpus) {
    const std::string number = std::to_string(gpu.info.number);
    if (!gpu.info.fault.empty()) {
      table.add_row({number, gpu.info.name.empty() ? kUnknown : gpu.info.name,
                     gpu.info.uuid.empty() ? kUnknown : gpu.info.uuid, kUnknown, kUnknown, kUnknown,
                     kUnknown, "no"});
      continue;
    }
    std::string green = "no";
    if (gpu.green.ok()) {
      green = fmt::format("up to {} SMs in steps of {}", gpu.green.value().divisible,
                          gpu.green.value().step);
    }
    table.add_row({number, gpu.info.name, gpu.info.uuid, std::to_string(memory_mb(gpu)),
                   compute_capability(gpu), gpu.sms ? std::to_string(*gpu.sms) : kUnknown,
                   mig_text(gpu), green});
  }
  std::cout << table.to_string();
}

// One line for each reason why a GPU cannot be used or divided.
void print_reasons(const std::vector<MachineGpu>& gpus) {
  std::map<std::string, std::vector<std::uint32_t>> not_divisible;
  for (const MachineGpu& gpu : gpus) {
    if (!gpu.info.fault.empty()) {
      std::cout << gpu.info.fault << '\n';
    } else {
      if (!gpu.info.shareable)
        std::cout << "GPU " << gpu.info.number << ": its compute mode admits no other process\n";
      if (!gpu.green.ok()) not_divisible[gpu.green.status().message()].push_back(gpu.info.number);
    }
  }
  for (const auto& [reason, numbers] : not_divisible)
    std::cout << "no green contexts on GPU " << number_ranges(numbers) << ": " << reason << '\n';
}

void print_machine(const MachineDevices& machine) {
  std::cout << "CPU: " << machine.cores.size() << (machine.cores.size() == 1 ? " core" : " cores")
            << " usable (" << number_ranges(machine.cores) << ")\n";
  if (!machine.no_gpus.empty()) {
    std::cout << "GPU: none: " << machine.no_gpus << '\n';
    return;
  }
  std::cout << "GPU: driver " << machine.driver_version;
  if (machine.cuda_version) std::cout << ", CUDA " << gpu::cuda_version_text(*machine.cuda_version);
  std::cout << "\nMPS: "
            << (machine.mps_control.ok() ? machine.mps_control.value().string()
                                         : machine.mps_control.status().message())
            << "\n\n";
  print_gpus(machine.gpus);
  print_reasons(machine.gpus);
}

void print_text(const MachineDevices& machine) {
  print_machine(machine);
  print_serving(machine);
}

int devices(const DevicesOptions& options) {
  const MachineDevices machine = find_machine_devices();
  options.json ? print_json(machine) : print_text(machine);
  return kSucceeded;
}

}  // namespace

void add_devices_command(CLI::App& app, Action& chosen) {
  const auto [command, options] =
      add_command(app, chosen, "devices",
                  "print the devices of this machine, what serves models on them, and their "
                  "entries for a backend's file",
                  devices);
  command->add_flag("--json", options->json, "print one JSON document");
}

}  // namespace gpulet::tools

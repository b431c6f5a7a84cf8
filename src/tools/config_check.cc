#include "tools/config_check.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "gpulet/config/cluster_config.h"
#include "gpulet/config/full_batches.h"
#include "gpulet/config/torchscript_file.h"
#include "gpulet/learn/inss_policy.h"
#include "gpulet/partition/drivers/cpu_quota.h"
#include "gpulet/profile/store.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/serve/application.h"
#include "gpulet/serve/planning.h"
#include "tools/machine_devices.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

constexpr double kBytesPerMegabyte = 1024.0 * 1024.0;

bool is_on_gpu(const config::DeviceConfig& device) {
  return device.partitioning == "mps" || device.partitioning == "green" ||
         device.partitioning == "mig";
}

// Of /proc/meminfo; 0: not known.
double memory_of_this_machine() {
  std::ifstream stream("/proc/meminfo");
  for (std::string line; std::getline(stream, line);) {
    constexpr double kKilobytesPerMegabyte = 1024;
    std::istringstream fields(line);
    std::string name;
    double kilobytes = 0;
    if (fields >> name >> kilobytes && name == "MemTotal:")
      return kilobytes / kKilobytesPerMegabyte;
  }
  return 0;
}

std::string numbers(const std::vector<std::uint32_t>& values) {
  std::string text;
  for (const std::uint32_t value : values)
    text += (text.empty() ? "" : ", ") + std::to_string(value);
  return text;
}

// Holds one backend's devices against the machine.
class DeviceCheck {
 public:
  DeviceCheck(const Machine& machine, std::string file, ConfigReport& report)
      : machine_(machine), file_(std::move(file)), report_(report) {}

  void add(const config::DeviceConfig& device, std::size_t index) {
    place_ = file_ + ": /devices/" + std::to_string(index);
    if (device.partitioning == "cpu_quota") check_cores(device);
    if (is_on_gpu(device)) check_gpu(device);
  }

  // Once all devices were added.
  void check_sums() const {
    if (machine_.memory_mb > 0 && cpu_memory_mb_ > machine_.memory_mb) {
      report_.errors.push_back(file_ + ": /devices: the devices on CPU cores are given " +
                               fixed(cpu_memory_mb_, 0) +
                               " MB of memory together, and this machine has " +
                               fixed(machine_.memory_mb, 0) + "; lower their memory_mb");
    }
    if (machine_.no_gpus.empty() && unnamed_gpus_ > machine_.gpus.size()) {
      report_.errors.push_back(file_ + ": /devices: " + std::to_string(unnamed_gpus_) +
                               " GPUs are described, and this machine has " +
                               std::to_string(machine_.gpus.size()) + "; lower the count");
    }
  }

 private:
  void check_cores(const config::DeviceConfig& device) {
    cpu_memory_mb_ += device.memory_mb * device.count;
    const auto is_there = [this](std::uint32_t core) {
      return std::binary_search(machine_.cores.begin(), machine_.cores.end(), core);
    };
    std::vector<std::uint32_t> missing;
    std::remove_copy_if(device.cores.begin(), device.cores.end(), std::back_inserter(missing),
                        is_there);
    if (!missing.empty()) {
      report_.errors.push_back(place_ + "/cores: this machine has no core " + numbers(missing) +
                               " for it; name some of " + numbers(machine_.cores));
    } else if (device.cores.empty() && device.count > machine_.cores.size()) {
      report_.errors.push_back(place_ + "/count: " + std::to_string(device.count) +
                               " devices need a core each, and this machine has " +
                               std::to_string(machine_.cores.size()) + "; lower the count");
    }
  }

  void check_gpu(const config::DeviceConfig& device) {
    if (!machine_.no_gpus.empty()) {
      report_.errors.push_back(place_ + "/partitioning: " + device.partitioning +
                               " divides GPUs, and there are none: " + machine_.no_gpus);
      return;
    }
    if (device.partitioning == "mps" && !machine_.no_mps.empty())
      report_.errors.push_back(place_ + "/partitioning: " + machine_.no_mps);
    if (device.gpu.empty()) unnamed_gpus_ += device.count;
    const Result<gpu::GpuInfo> found = gpu::choose_gpu(machine_.gpus, device.gpu);
    if (!found.ok()) {
      report_.errors.push_back(place_ + "/gpu: " + found.status().message());
      return;
    }
    const double memory_mb = static_cast<double>(found.value().memory_bytes) / kBytesPerMegabyte;
    if (memory_mb > 0 && device.memory_mb > memory_mb) {
      report_.errors.push_back(place_ + "/memory_mb: " + shortest(device.memory_mb, 0) +
                               " MB are more than the " + fixed(memory_mb, 0) +
                               " that the GPU has; lower it, or take it out");
    }
  }

  const Machine& machine_;
  const std::string file_;
  ConfigReport& report_;
  std::string place_;
  double cpu_memory_mb_ = 0;
  std::size_t unnamed_gpus_ = 0;
};

void check_model_file(const std::filesystem::path& model, const std::string& place,
                      ConfigReport& report) {
  const int descriptor = ::open(model.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    std::error_code error;
    if (!std::filesystem::exists(model, error)) return;  // told already
    report.errors.push_back(place + ": " + model.string() +
                            " cannot be opened; check its permissions");
    return;
  }
  if (Status status = config::check_torchscript(descriptor); !status.ok())
    report.errors.push_back(place + ": " + model.string() + ": " + status.message());
  ::close(descriptor);
}

void check_model_files(const config::CheckedFile& checked, ConfigReport& report) {
  for (std::size_t i = 0; i < checked.serving->models.size(); ++i) {
    check_model_file(checked.serving->models[i].file,
                     checked.models_file.string() + ": /models/" + std::to_string(i) + "/file",
                     report);
  }
}

// The fastest that a request of the model can be answered anywhere.
struct Quickest {
  double latency_ms = std::numeric_limits<double>::infinity();
  Share share;
  std::string type;
};
Quickest quickest_of(const std::string& model, const profile::ProfileSet& profiles) {
  Quickest quickest;
  for (const auto& [type, profile] : profiles) {
    const profile::ModelProfile* const measured = profile.find(model);
    if (measured == nullptr) continue;
    for (const profile::LatencySample& sample : measured->latency.samples()) {
      const double latency_ms =
          measured->latency.latency_ms(1, sample.share).value_or(sample.latency_ms);
      if (latency_ms < quickest.latency_ms) quickest = {latency_ms, sample.share, type};
    }
  }
  return quickest;
}

// A request that just missed a batch waits for it, and then for its own; where a policy makes no
// rounds, for its own alone.
void check_objectives(const config::CheckedFile& checked, const profile::ProfileSet& profiles,
                      const schedule::Policy& policy, ConfigReport& report) {
  const double factor = (policy.scales() ? 2 : 1) * checked.frontend->margin;
  for (std::size_t i = 0; i < checked.serving->models.size(); ++i) {
    const config::ModelConfig& model = checked.serving->models[i];
    const std::string place = checked.models_file.string() + ": /models/" + std::to_string(i);
    const Quickest quickest = quickest_of(model.name, profiles);
    if (quickest.type.empty()) {
      report.warnings.push_back(place + ": " + model.name +
                                " is in no profile, so no plan has a place for it; measure it "
                                "with `gpulet profile run --only " +
                                model.name + "`");
    } else if (quickest.latency_ms * factor > model.slo_ms) {
      report.errors.push_back(place + "/slo_ms: no batch of " + model.name + " meets " +
                              shortest(model.slo_ms, 3) + " ms at any share: one request takes " +
                              shortest(quickest.latency_ms, 3) + " ms on " +
                              std::to_string(quickest.share.percent) + " % of a " + quickest.type +
                              ", the fastest there is, and may wait for the batch before it; raise "
                              "slo_ms to " +
                              shortest(quickest.latency_ms * factor, 3) + " at least");
    }
  }
}

void check_applications(const config::CheckedFile& checked, const profile::ProfileSet& profiles,
                        ConfigReport& report) {
  std::vector<serve::ServedModel> models;
  for (const config::ModelConfig& model : checked.serving->models) {
    serve::ServedModel served;
    served.name = model.name;
    served.inputs = model.inputs;
    served.outputs = model.outputs;
    served.slo_ms = model.slo_ms;
    served.max_batch = model.max_batch;
    Result<serve::ServedModel> sized = serve::with_sizes(std::move(served));
    if (!sized.ok()) {
      report.errors.push_back(checked.models_file.string() + ": " + sized.status().message());
      return;
    }
    models.push_back(std::move(sized).value());
  }
  for (const config::ApplicationConfig& graph : checked.serving->applications) {
    const auto application = serve::make_application(graph, models, profiles);
    if (!application.ok()) {
      report.errors.push_back(checked.models_file.string() + ": " + application.status().message());
    }
  }
}

// What was read of the folder; nothing where it tells nothing at all.
std::optional<profile::ProfileSet> check_profiles(const std::filesystem::path& folder,
                                                  const std::string& place, ConfigReport& report) {
  std::error_code error;
  if (folder.empty() || !std::filesystem::exists(folder, error))
    return std::nullopt;  // told already
  Result<profile::ReadProfiles> read = profile::read_each_profile(folder);
  if (!read.ok()) {
    report.errors.push_back(place + ": " + read.status().message());
    return std::nullopt;
  }
  for (const auto& [name, why] : read.value().faults) report.errors.push_back(why.message());
  return std::move(read.value().profiles);
}

void check_frontend(const config::CheckedFile& checked, const std::string& file,
                    ConfigReport& report) {
  const config::FrontendConfig& frontend = *checked.frontend;
  const Result<std::unique_ptr<schedule::Policy>> policy = learn::make_policy(frontend.policy);
  if (!policy.ok() && !frontend.policy.empty())
    report.errors.push_back(file + ": /policy: " + policy.status().message());
  const auto profiles = check_profiles(frontend.profiles, file + ": /profiles", report);
  if (profiles) {
    std::vector<std::string> types;
    for (const auto& [name, profile] : *profiles) types.push_back(name);
    const auto chosen = serve::choose_interference(*profiles, types, frontend.interference);
    if (!chosen.ok())
      report.errors.push_back(file + ": /interference: " + chosen.status().message());
  }
  if (!checked.serving) return;
  if (checked.errors.empty()) {
    for (const std::string& warning : config::full_batches_too_long(frontend, *checked.serving))
      report.warnings.push_back(file + ": " + warning);
  }
  if (frontend.model_format == config::ModelFormat::torchscript) check_model_files(checked, report);
  if (!profiles) return;
  if (policy.ok()) check_objectives(checked, *profiles, *policy.value(), report);
  check_applications(checked, *profiles, report);
}

// The folder, or the one in which it would be made, may be written to.
void check_writable(const std::filesystem::path& folder, const std::string& place,
                    ConfigReport& report) {
  std::error_code error;
  std::filesystem::path there = folder;
  while (!std::filesystem::exists(there, error) && there.has_relative_path())
    there = there.parent_path();
  if (!std::filesystem::is_directory(there, error)) {
    report.errors.push_back(place + ": " + there.string() +
                            " is no folder; correct the path, or move that file away");
  } else if (::access(there.c_str(), W_OK | X_OK) != 0) {
    report.errors.push_back(place + ": " + there.string() +
                            " may not be written to; change its owner, or name another folder");
  }
}

void check_backend(const config::BackendConfig& backend, const std::filesystem::path& file,
                   const std::optional<Machine>& machine, ConfigReport& report) {
  if (!backend.profiles.empty()) {
    const auto profiles = check_profiles(backend.profiles, file.string() + ": /profiles", report);
    for (std::size_t i = 0; profiles && i < backend.devices.size(); ++i) {
      const config::DeviceConfig& device = backend.devices[i];
      if (device.partitioning != "simulated" || profiles->contains(device.type)) continue;
      report.errors.push_back(file.string() + ": /devices/" + std::to_string(i) +
                              "/type: " + backend.profiles.string() + " holds no profile " +
                              device.type + " to answer from; import one, or correct the type");
    }
  }
  if (!machine) return;
  check_writable(backend.model_store, file.string() + ": /model_store", report);
  std::error_code error;
  if (!backend.proxy.empty() && std::filesystem::exists(backend.proxy, error) &&
      ::access(backend.proxy.c_str(), X_OK) != 0) {
    report.errors.push_back(file.string() + ": /proxy: " + backend.proxy.string() +
                            " is no program; correct the path, or chmod +x it");
  }
  check_devices(backend, *machine, file, report);
}

}  // namespace

Machine find_machine(const config::BackendConfig& backend) {
  Machine machine;
  machine.memory_mb = memory_of_this_machine();
  if (std::none_of(backend.devices.begin(), backend.devices.end(), is_on_gpu)) {
    machine.cores = partition::usable_cores();
    return machine;
  }
  MachineDevices found = find_machine_devices();
  machine.cores = std::move(found.cores);
  machine.no_gpus = std::move(found.no_gpus);
  for (MachineGpu& gpu : found.gpus) machine.gpus.push_back(std::move(gpu.info));
  if (!found.mps_control.ok()) machine.no_mps = found.mps_control.status().message();
  return machine;
}

void check_devices(const config::BackendConfig& backend, const Machine& machine,
                   const std::filesystem::path& file, ConfigReport& report) {
  DeviceCheck check(machine, file.string(), report);
  for (std::size_t i = 0; i < backend.devices.size(); ++i) check.add(backend.devices[i], i);
  check.check_sums();
}

ConfigReport check_config(const config::CheckedFile& checked, const std::filesystem::path& file,
                          const std::optional<Machine>& machine) {
  ConfigReport report;
  for (const Status& error : checked.errors) report.errors.push_back(error.message());
  if (checked.frontend) {
    check_frontend(checked, file.string(), report);
  } else if (checked.serving) {
    check_model_files(checked, report);
  }
  if (checked.backend) check_backend(*checked.backend, file, machine, report);
  return report;
}

}  // namespace gpulet::tools

#include "tools/cli/config_check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>  // mkdtemp
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "gpulet/base/bytes.h"
#include "gpulet/base/files.h"
#include "gpulet/base/text.h"
#include "gpulet/config/check_file.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/config/model_config.h"
#include "gpulet/config/onnx_signature.h"
#include "gpulet/core/tensor.h"
#include "gpulet/partition/drivers/drivers.h"
#include "gpulet/planning/pipeline.h"
#include "gpulet/profile/estimate.h"
#include "gpulet/profile/store.h"
#include "gpulet/research/research.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/serve/values/application.h"
#include "tools/cli/command.h"
#include "tools/measure/machine.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

bool is_on_gpu(const config::DeviceConfig& device) {
  return device.partitioning == "mps" || device.partitioning == "green" ||
         device.partitioning == "mig";
}

// Checks the devices of one backend against its machine.
class DeviceCheck {
 public:
  DeviceCheck(const Machine& machine, std::string file, ConfigReport& report)
      : machine_(machine), file_(std::move(file)), report_(report) {}

  void add(const config::DeviceConfig& device, std::size_t index) {
    place_ = fmt::format("{}: /devices/{}", file_, index);
    if (device.partitioning == "cpu_quota") check_cores(device);
    if (is_on_gpu(device)) check_gpu(device);
  }

  // Checks the sums over all devices. REQUIRES: every device was added.
  void check_sums() const {
    if (machine_.memory_mb > 0 && cpu_memory_mb_ > machine_.memory_mb) {
      report_.errors.push_back(
          fmt::format("{}: /devices: the devices on CPU cores have {} MB of memory together, but "
                      "this machine has {}; lower their memory_mb",
                      file_, fixed(cpu_memory_mb_, 0), fixed(machine_.memory_mb, 0)));
    }
    if (machine_.no_gpus.empty() && unnamed_gpus_ > machine_.gpus.size()) {
      report_.errors.push_back(fmt::format(
          "{}: /devices: {} GPUs are configured, but this machine has {}; lower the count", file_,
          unnamed_gpus_, machine_.gpus.size()));
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
      error("cores", "this machine has no core {}; use some of {}", number_list(missing),
            number_list(machine_.cores));
    } else if (device.cores.empty() && device.count > machine_.cores.size()) {
      error("count", "{} devices need a core each, but this machine has {}; lower the count",
            device.count, machine_.cores.size());
    }
  }

  void check_gpu(const config::DeviceConfig& device) {
    if (!machine_.no_gpus.empty()) {
      error("partitioning", "{} is for GPUs, but there are none: {}", device.partitioning,
            machine_.no_gpus);
      return;
    }
    if (device.partitioning == "mps" && !machine_.no_mps.empty())
      error("partitioning", "{}", machine_.no_mps);
    if (device.gpu.empty()) unnamed_gpus_ += device.count;
    const Result<gpu::GpuInfo> found = gpu::choose_gpu(machine_.gpus, device.gpu);
    if (!found.ok()) {
      error("gpu", "{}", found.status().message());
      return;
    }
    const double memory_mb = static_cast<double>(found.value().memory_bytes) / kBytesPerMegabyte;
    if (memory_mb > 0 && device.memory_mb > memory_mb) {
      error("memory_mb", "{} MB exceed the {} MB of the GPU; lower it, or remove it",
            shortest(device.memory_mb, 0), fixed(memory_mb, 0));
    }
  }

  // Reports an error in a key of the current device.
  template <typename... Values>
  void error(std::string_view key, fmt::format_string<const Values&...> text,
             const Values&... values) {
    report_.errors.push_back(fmt::format("{}/{}: {}", place_, key, fmt::format(text, values...)));
  }

  const Machine& machine_;
  const std::string file_;
  ConfigReport& report_;
  std::string place_;             // of the current device
  double cpu_memory_mb_ = 0;      // of all devices on cores
  std::size_t unnamed_gpus_ = 0;  // devices that take any GPU
};

// Checks the format of the file, and what the model declares against it.
Status check_contents(int descriptor, const config::ModelConfig& model,
                      config::ModelFormat allowed) {
  GPULET_TRY(const auto format, config::format_of(descriptor));
  if (format != config::FileFormat::onnx) {
    for (const std::vector<TensorSpec>& tensors : {model_inputs(model.inputs), model.outputs}) {
      if (Status status = check_torchscript_types(tensors); !status.ok()) return status;
    }
  }
  if (Status status = config::check_file_of(allowed, descriptor); !status.ok()) return status;
  if (format == config::FileFormat::torchscript) return {};
  if (model.numerics.precision != Precision::full || model.numerics.channels_last) {
    return {
        StatusCode::invalid,
        R"(an ONNX model or an AOTInductor package computes in the numbers of its file; remove )"
        R"("precision" and "memory_format")"};
  }
  if (format != config::FileFormat::onnx) return {};
  GPULET_TRY(const auto signature, config::read_onnx_signature(descriptor));
  return config::check_declared(signature, model.inputs, model.outputs, model.max_batch);
}

void check_model_file(const config::ModelConfig& model, const std::string& place,
                      config::ModelFormat allowed, ConfigReport& report) {
  const FileDescriptor opened(::open(model.file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!opened.valid()) {
    std::error_code error;
    if (!std::filesystem::exists(model.file, error)) return;  // already reported
    report.errors.push_back(
        fmt::format("{}: {} cannot be opened; check its permissions", place, model.file.string()));
    return;
  }
  if (Status status = check_contents(opened.get(), model, allowed); !status.ok())
    report.errors.push_back(place + ": " + model.file.string() + ": " + status.message());
}

void check_model_files(const config::CheckedFile& checked, config::ModelFormat allowed,
                       ConfigReport& report) {
  if (allowed == config::ModelFormat::any) return;
  for (std::size_t i = 0; i < checked.serving->models.size(); ++i) {
    if (checked.serving->models[i].remote) continue;
    check_model_file(checked.serving->models[i],
                     fmt::format("{}: /models/{}/file", checked.models_file.string(), i), allowed,
                     report);
  }
}

// The lowest latency of one request to a model, and the device type and share that have it. `type`
// is empty for a model without a profile.
struct LowestLatency {
  double latency_ms = std::numeric_limits<double>::infinity();
  Share share;
  std::string type;
};

LowestLatency lowest_latency_of(const std::string& model, const profile::ProfileSet& profiles) {
  LowestLatency lowest;
  for (const auto& [type, profile] : profiles) {
    const profile::ModelProfile* const measured = profile.find(model);
    if (measured == nullptr) continue;
    for (const profile::LatencySample& sample : measured->latency.samples()) {
      const double latency_ms =
          measured->latency.latency_ms(1, sample.share).value_or(sample.latency_ms);
      if (latency_ms < lowest.latency_ms) lowest = {latency_ms, sample.share, type};
    }
  }
  return lowest;
}

// `factor`: the shortest objective that can be met, in latencies of one request. `estimates`:
// models without a profile are served all the same.
void check_objective(const config::ModelConfig& model, const std::string& place,
                     const profile::ProfileSet& profiles, double factor, bool estimates,
                     ConfigReport& report) {
  const LowestLatency lowest = lowest_latency_of(model.name, profiles);
  if (lowest.type.empty()) {
    const std::string measure = measure_command(model.name);
    report.warnings.push_back(
        estimates
            ? fmt::format("{}: {} is in no profile, so its latencies are estimated from its first "
                          "batches; measure it with `{}`",
                          place, model.name, measure)
            : fmt::format("{}: {} is in no profile, so it cannot be planned; measure it with `{}`",
                          place, model.name, measure));
  } else if (lowest.latency_ms * factor > model.slo_ms) {
    report.errors.push_back(fmt::format(
        "{}/slo_ms: no batch of {} meets {} ms at any share: one request takes {} ms on {} % of "
        "a {}, the fastest device, and may wait for the batch before it; raise slo_ms to at "
        "least {}",
        place, model.name, shortest(model.slo_ms, 3), shortest(lowest.latency_ms, 3),
        lowest.share.percent, lowest.type, shortest(lowest.latency_ms * factor, 3)));
  }
}

// A request that just missed a batch waits for that one and its own. A policy that does not scale
// has no rounds: a request waits for its own batch only.
void check_objectives(const config::CheckedFile& checked, const profile::ProfileSet& profiles,
                      const schedule::Policy& policy, ConfigReport& report) {
  const double factor = (policy.scales() ? 2 : 1) * checked.frontend->margin.value_or(1);
  for (std::size_t i = 0; i < checked.serving->models.size(); ++i) {
    const std::string place = fmt::format("{}: /models/{}", checked.models_file.string(), i);
    for (const config::ModelConfig& model : config::buckets_of(checked.serving->models[i]))
      check_objective(model, place, profiles, factor, checked.frontend->estimates, report);
  }
}

void check_applications(const config::CheckedFile& checked, const profile::ProfileSet& profiles,
                        ConfigReport& report) {
  std::vector<serve::ServedModel> models;
  for (const config::ModelConfig& model : config::with_buckets(checked.serving->models)) {
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
    if (!application.ok())
      report.errors.push_back(checked.models_file.string() + ": " + application.status().message());
  }
}

// The profiles of the folder that can be read; empty: the folder cannot be read.
std::optional<profile::ProfileSet> check_profiles(const std::filesystem::path& folder,
                                                  const std::string& place, ConfigReport& report) {
  std::error_code error;
  if (folder.empty() || !std::filesystem::exists(folder, error))
    return std::nullopt;  // already reported
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
  const Result<std::unique_ptr<schedule::Policy>> policy =
      research::policies().make(frontend.policy);
  if (!policy.ok() && !frontend.policy.empty())
    report.errors.push_back(file + ": /policy: " + policy.status().message());
  auto profiles = check_profiles(frontend.profiles, file + ": /profiles", report);
  if (profiles) {
    std::vector<std::string> types;
    for (const auto& [name, profile] : *profiles) types.push_back(name);
    const auto chosen = planning::choose_interference(*profiles, types, frontend.interference,
                                                      research::fit_pair_model());
    if (!chosen.ok())
      report.errors.push_back(file + ": /interference: " + chosen.status().message());
  }
  if (!checked.serving) return;
  if (checked.errors.empty()) {
    for (const std::string& warning : config::full_batches_too_long(frontend, *checked.serving))
      report.warnings.push_back(file + ": " + warning);
  }
  check_model_files(checked, frontend.model_format, report);
  if (!profiles) return;
  for (const config::ModelConfig& model : checked.serving->models)
    profile::state_figures(model, *profiles);
  if (policy.ok()) check_objectives(checked, *profiles, *policy.value(), report);
  check_applications(checked, *profiles, report);
}

// Creates and removes a folder, because permissions do not decide this for the superuser and on
// some file systems.
bool can_create_in(const std::filesystem::path& folder) {
  std::string path = (folder / ".gpulet-check-XXXXXX").string();
  if (::mkdtemp(path.data()) == nullptr) return false;
  ::rmdir(path.c_str());
  return true;
}

// Reports a folder that cannot be written, or that does not exist and cannot be created.
void check_writable(const std::filesystem::path& folder, const std::string& place,
                    ConfigReport& report) {
  std::error_code error;
  std::filesystem::path existing = folder;
  while (!std::filesystem::exists(existing, error) && existing.has_relative_path())
    existing = existing.parent_path();
  if (!std::filesystem::is_directory(existing, error)) {
    report.errors.push_back(fmt::format(
        "{}: {} is not a folder; correct the path, or move that file", place, existing.string()));
  } else if (::access(existing.c_str(), W_OK | X_OK) != 0 || !can_create_in(existing)) {
    report.errors.push_back(
        fmt::format("{}: {} is not writable; change its owner, or use another folder", place,
                    existing.string()));
  }
}

void check_backend(const config::BackendConfig& backend, const std::filesystem::path& file,
                   const std::optional<Machine>& machine, ConfigReport& report) {
  if (!backend.profiles.empty()) {
    const auto profiles = check_profiles(backend.profiles, file.string() + ": /profiles", report);
    for (std::size_t i = 0; profiles && i < backend.devices.size(); ++i) {
      const config::DeviceConfig& device = backend.devices[i];
      if (device.partitioning != "simulated" || profiles->contains(device.type)) continue;
      report.errors.push_back(fmt::format(
          "{}: /devices/{}/type: {} holds no profile {} to simulate; import one, or correct the "
          "type",
          file.string(), i, backend.profiles.string(), device.type));
    }
  }
  if (!machine) return;
  check_writable(backend.model_store, file.string() + ": /model_store", report);
  std::error_code error;
  if (!backend.proxy.empty() && std::filesystem::exists(backend.proxy, error) &&
      ::access(backend.proxy.c_str(), X_OK) != 0) {
    report.errors.push_back(
        fmt::format("{}: /proxy: {} is not executable; correct the path, or run chmod +x",
                    file.string(), backend.proxy.string()));
  }
  check_devices(backend, *machine, file, report);
}

// ---- gpulet config check

struct ConfigCheckOptions {
  std::string file;
  bool elsewhere = false;
  bool json = false;
};

std::string counted(std::size_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

void print_text(const std::string& file, const std::string& kind, const ConfigReport& report) {
  for (const std::string& error : report.errors) std::cerr << "error: " << error << '\n';
  for (const std::string& warning : report.warnings) std::cerr << "warning: " << warning << '\n';
  if (!report.errors.empty()) {
    std::cerr << "gpulet: " << file << ": " << counted(report.errors.size(), "error") << ", "
              << counted(report.warnings.size(), "warning") << '\n';
    return;
  }
  std::cout << file << ": a valid " << kind << " file";
  if (!report.warnings.empty())
    std::cout << ", with " << counted(report.warnings.size(), "warning");
  std::cout << '\n';
}

int run_config_check(const ConfigCheckOptions& options) {
  const Result<config::CheckedFile> checked = config::check_file(options.file);
  if (checked.status().code() == StatusCode::not_found) return bad_input(checked.status());
  std::string kind;
  ConfigReport report;
  if (checked.ok()) {
    std::optional<Machine> machine;
    if (checked.value().backend && !options.elsewhere)
      machine = find_machine(*checked.value().backend);
    kind = checked.value().kind;
    report = check_config(checked.value(), options.file, machine);
  } else {
    report.errors.push_back(checked.status().message());
  }
  if (options.json) {
    std::cout << json_page(nlohmann::ordered_json({{"file", options.file},
                                                   {"kind", kind},
                                                   {"valid", report.errors.empty()},
                                                   {"errors", report.errors},
                                                   {"warnings", report.warnings}}));
  } else {
    print_text(options.file, kind, report);
  }
  return report.errors.empty() ? kSucceeded : kRunFailed;
}

// ---- gpulet config reference

struct ConfigReferenceOptions {};

int run_config_reference(const ConfigReferenceOptions& /*options*/) {
  std::cout << config::as_markdown(config::file_references());
  return kSucceeded;
}

}  // namespace

Machine find_machine(const config::BackendConfig& backend) {
  Machine machine;
  machine.memory_mb = machine_memory_mb();
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
    check_model_files(checked, config::ModelFormat::known, report);
  }
  if (checked.backend) check_backend(*checked.backend, file, machine, report);
  return report;
}

void add_config_command(CLI::App& app, Action& chosen) {
  CLI::App* const config = app.add_subcommand("config", "configuration files");
  config->require_subcommand(1);
  const auto [command, options] = add_command(
      *config, chosen, "check",
      "check a models, cluster, demand, workload, frontend, backend or control file and the files "
      "that it names; exits with 1 if there are errors",
      run_config_check);
  command->add_option("file", options->file, "the file")->required();
  command->add_flag("--elsewhere", options->elsewhere,
                    "do not compare a backend's devices and folders with this machine, because "
                    "the file is for another one");
  command->add_flag("--json", options->json, "print one JSON document");
  add_command(*config, chosen, "reference",
              "print every key of these files with its values, default and meaning (Markdown)",
              run_config_reference);
}

}  // namespace gpulet::tools

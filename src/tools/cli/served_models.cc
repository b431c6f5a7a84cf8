#include "tools/cli/served_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <system_error>

#include "tools/serve/serving_devices.h"
#include "tools/serve/serving_files.h"

namespace gpulet::tools {
namespace {

namespace fs = std::filesystem;

constexpr auto kLookEvery = std::chrono::seconds(1);
constexpr int kDeepest = 2;                    // in a repository: the files NAME/VERSION/FILE
constexpr std::size_t kMostWatched = 100'000;  // files; changes of further ones go unnoticed

const config::ModelConfig* find(const std::vector<config::ModelConfig>& models,
                                const std::string& name) {
  const auto found = std::find_if(models.begin(), models.end(),
                                  [&name](const auto& model) { return model.name == name; });
  return found == models.end() ? nullptr : &*found;
}

bool all_failed(const DescribedModels& found, const QuickResult& measured) {
  return !found.models.empty() && measured.profile.models.empty();
}

// Whether at least one model can be measured on the GPU. Prints the reason if none can. Fails with
// cancelled after a signal.
Result<bool> runs_on_gpu(const QuickMeasurement& request, const DescribedModels& found) {
  const auto measured = measure_quickly(request, std::cerr);
  if (measured.status().code() == StatusCode::cancelled) return measured.status();
  if (measured.ok() && !all_failed(found, measured.value())) return true;
  const std::string why = measured.ok() ? measured.value().failures.begin()->second.message()
                                        : measured.status().message();
  std::cerr << fmt::format(
      "serving on the CPU cores, and not on a GPU: {}; --device gpu insists on it\n", why);
  return false;
}

}  // namespace

Result<ServedModels> ServedModels::prepare(const ModelFileOptions& options,
                                           const std::string& device) {
  ServedModels served(options);
  auto found = find_models(options, std::cerr);
  if (!found.ok()) return Status(StatusCode::invalid, found.status().message());
  served.found_ = std::move(found).value();
  served.seen_ = served.fingerprint();
  GPULET_TRY(const auto proxies, find_proxies());
  served.proxies_ = proxies;
  GPULET_TRY(auto machine, devices_for(served.models(), served.proxies_, device, std::cerr));
  served.machine_ = std::move(machine);
  GPULET_TRY(auto request,
             measurement_for(options, served.models(), device_to_measure(served.machine_)));
  const bool on_gpu = !request.device.starts_with("cpu:");
  if ((device.empty() || device == "auto") && on_gpu) {
    GPULET_TRY(const auto runs, runs_on_gpu(request, served.found_));
    if (!runs) served.machine_ = without_gpus(std::move(served.machine_));
  }
  Status status = served.measure(served.found_, served.profile_, false);
  if (status.ok()) status = settle_objectives(served.profile_, served.found_, std::cout);
  if (!status.ok()) return status;
  return served;
}

Status ServedModels::measure(DescribedModels& found, profile::Profile& measured,
                             bool beside_others) const {
  GPULET_TRY(auto request, measurement_for(options_, found.models, device_to_measure(machine_)));
  request.beside_others = beside_others;
  // The cache has what runs_on_gpu() measured, so nothing is measured twice.
  GPULET_TRY(auto profile, measure_models(request, found, std::cerr));
  measured = std::move(profile);
  return {};
}

ServedModels::Fingerprint ServedModels::fingerprint() const {
  Fingerprint files;
  const auto add = [&files](const fs::path& file) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(file, error);
    if (error || files.size() >= kMostWatched) return;
    files.emplace(file, std::pair(size, fs::last_write_time(file, error)));
  };
  for (const fs::path& given : options_.models.files) {
    std::error_code error;
    if (!fs::is_directory(given, error)) {
      add(given);
      continue;
    }
    fs::recursive_directory_iterator at(given, fs::directory_options::follow_directory_symlink,
                                        error);
    for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
      if (at.depth() >= kDeepest) at.disable_recursion_pending();
      add(at->path());
    }
  }
  for (const config::ModelConfig& model : found_.models) {
    add(model.file);
    for (const auto& [output, labels] : model.labels) add(labels);
  }
  return files;
}

bool ServedModels::refresh() {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_look_) return false;
  next_look_ = now + kLookEvery;
  Fingerprint latest = fingerprint();
  if (latest == seen_) return false;
  // A file that is still being written changes from look to look: wait for two equal ones.
  if (latest != changed_) {
    changed_ = std::move(latest);
    return false;
  }
  seen_ = std::move(latest);
  auto found = find_models(options_, std::cerr);
  profile::Profile measured;
  Status status = found.status();
  if (status.ok()) {
    for (config::ModelConfig& model : found.value().models) {
      const config::ModelConfig* const before = find(found_.models, model.name);
      if (before != nullptr && model.slo_ms <= 0) model.slo_ms = before->slo_ms;
    }
    status = measure(found.value(), measured, true);
  }
  if (status.ok()) status = settle_objectives(measured, found.value(), std::cerr);
  if (status.ok()) return take(std::move(found).value(), std::move(measured));
  if (status.code() != StatusCode::cancelled)
    std::cerr << "a change of the files has no effect: " << status.message() << '\n';
  return false;
}

bool ServedModels::take(DescribedModels found, profile::Profile measured) {
  // A model whose new version was left out keeps the version that serves, if its file still exists.
  for (const LeftOut& one : found.left_out) {
    const config::ModelConfig* const before = find(found_.models, one.name);
    std::error_code error;
    if (before == nullptr || find(found.models, one.name) != nullptr ||
        !fs::exists(before->file, error)) {
      continue;
    }
    for (const config::ModelConfig& bucket : config::buckets_of(*before)) {
      if (const profile::ModelProfile* const figures = profile_.find(bucket.name))
        measured.models.insert_or_assign(bucket.name, *figures);
    }
    found.models.push_back(*before);
    found.may_be_left_out.insert(one.name);
    std::cerr << fmt::format("{}: what has served so far stays\n", one.name);
  }
  for (const config::ModelConfig& model : found.models) {
    const config::ModelConfig* const before = find(found_.models, model.name);
    if (before != nullptr && *before == model) continue;
    std::cerr << fmt::format(
        "{}: {}{}\n", model.name, before == nullptr ? "a new model" : "changed",
        model.version > 0 ? fmt::format(", version {}", model.version) : std::string());
  }
  for (const config::ModelConfig& model : found_.models) {
    if (find(found.models, model.name) == nullptr)
      std::cerr << fmt::format("{}: removed\n", model.name);
  }
  found_ = std::move(found);
  profile_ = std::move(measured);
  return true;
}

}  // namespace gpulet::tools

#include "tools/serve/measured_models.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>
#include <ostream>
#include <system_error>
#include <utility>

#include "gpulet/base/sha256.h"
#include "gpulet/profile/store.h"
#include "tools/measure/measured_device.h"
#include "tools/measure/profile_run.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

namespace fs = std::filesystem;

// The name under which a cached profile holds its model, which may be served under any name.
constexpr const char* kCachedName = "model";
// Of the cache's format and of the cells below.
constexpr int kCacheVersion = 1;

const std::vector<std::uint32_t> kBatches = {1, 2, 4, 8, 16, 32};
constexpr Duration kPerCell = std::chrono::milliseconds(250);
// Larger batches of a model that takes longer seldom meet an objective.
constexpr Duration kLongestBatch = std::chrono::milliseconds(500);

// Without max_bytes and a conversion where it has none, so that measurements of earlier builds stay
// valid.
std::string shown(const TensorSpec& spec) {
  std::string text = to_string(spec);
  if (spec.max_bytes > 0) text += fmt::format(" {}", spec.max_bytes);
  if (const std::string made = conversion_text(spec); !made.empty()) text += ' ' + made;
  return text;
}

// Equal for equal measurements.
Result<std::string> key_of(const config::ModelConfig& model, const MeasuredDevice& device) {
  GPULET_TRY(const auto content, sha256_of_file(model.file));
  std::string text = fmt::format("{} {} {} {}", kCacheVersion, content, model.max_batch,
                                 to_string(model.numerics.precision));
  for (const auto* const tensors : {&model.inputs, &model.outputs}) {
    for (const TensorSpec& spec : *tensors) text += fmt::format("|{} {}", spec.name, shown(spec));
  }
  for (const TensorSpec& input : model.inputs) {
    if (input.range)
      text += fmt::format("|{} in {} {}", input.name, input.range->least, input.range->most);
    if (input.whole) text += "|whole";
  }
  for (const auto& [name, value] : device.facts) {
    if (name != "device") text += fmt::format("|{}={}", name, value);  // cores are alike
  }
  return sha256_of(text);
}

std::optional<profile::ModelProfile> cached(const fs::path& folder, const std::string& device) {
  std::error_code error;
  if (!fs::exists(folder / device, error)) return std::nullopt;
  const auto read = profile::read_profile(folder / device);
  if (!read.ok() || read.value().find(kCachedName) == nullptr) return std::nullopt;
  return *read.value().find(kCachedName);
}

Status keep(const fs::path& folder, const MeasuredDevice& device,
            const profile::ModelProfile& measured) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return {StatusCode::unavailable,
            fmt::format("cannot create {}: {}", folder.string(), error.message())};
  }
  profile::Profile profile;
  profile.name = device.name;
  profile.provenance = device.facts;
  profile.models.emplace(kCachedName, measured);
  return profile::write_profile(profile, folder);
}

// Measures the models into the result, and keeps each in its folder of the cache.
Status measure_missing(const QuickMeasurement& request,
                       const std::map<std::string, fs::path>& folders,
                       std::vector<config::ModelConfig> missing, MeasuredDevice& device,
                       std::ostream& progress, QuickResult& result) {
  const Duration budget = request.budget / static_cast<Duration::rep>(missing.size());
  const ProfileRunOptions options{.models = std::move(missing),
                                  .proxies = request.proxies,
                                  .sizes = served_sizes(),
                                  .batches = kBatches,
                                  .per_cell = kPerCell,
                                  .longest_batch = kLongestBatch,
                                  .budget = budget};
  const auto take = [&](const std::string& name, const ProfileRun& so_far) {
    const auto measured = so_far.models.find(name);
    if (measured == so_far.models.end()) {
      result.failures.emplace(name, so_far.failures.back());
      return;
    }
    if (const Status kept = keep(folders.at(name), device, measured->second); !kept.ok())
      progress << "warning: the measurement is not kept: " << kept.message() << '\n';
    result.profile.models.emplace(name, measured->second);
  };
  return measure(options, device, progress, take).status();
}

double two_digits(double value) {
  const double unit = std::pow(10, std::floor(std::log10(value)) - 1);
  return std::ceil(value / unit) * unit;
}

}  // namespace

const std::vector<Share>& served_sizes() {
  static const std::vector<Share> kSizes = {Share{25}, Share{50}, Share{75}, Share{100}};
  return kSizes;
}

Result<QuickResult> measure_quickly(const QuickMeasurement& request, std::ostream& progress) {
  GPULET_TRY(const auto named, parse_device(request.device));
  GPULET_TRY(auto device, open_device(named, "mps",
                                      request.beside_others ? partition::CpuPriority::low
                                                            : partition::CpuPriority::normal));
  QuickResult result;
  profile::Profile& profile = result.profile;
  profile.name = device.name;
  profile.provenance = device.facts;
  profile.provenance["source"] = "gpulet serve";
  std::vector<config::ModelConfig> missing;
  std::map<std::string, fs::path> folders;
  for (const config::ModelConfig& model : request.models) {
    const auto key = key_of(model, device);
    if (!key.ok()) {
      result.failures.emplace(model.name, key.status().within(model.name));
      continue;
    }
    const fs::path folder = request.cache / key.value();
    auto known = request.again ? std::nullopt : cached(folder, profile.name);
    if (known) {
      profile.models.emplace(model.name, std::move(*known));
    } else {
      missing.push_back(model);
      folders.emplace(model.name, folder);
    }
  }
  if (missing.empty()) return result;
  progress << fmt::format(
      "measuring {} on {}, for about {} s; {}\n",
      missing.size() == 1 ? "the model" : fmt::format("{} models", missing.size()), request.device,
      std::chrono::duration_cast<std::chrono::seconds>(request.budget).count(),
      request.beside_others ? "what serves there takes precedence"
                            : "leave the machine idle meanwhile");
  Status status = measure_missing(request, folders, std::move(missing), device, progress, result);
  if (!status.ok()) return status;
  return result;
}

fs::path default_cache() {
  // NOLINTBEGIN(concurrency-mt-unsafe): nothing changes the environment
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  // NOLINTEND(concurrency-mt-unsafe)
  std::error_code error;
  fs::path base = fs::temp_directory_path(error);
  if (home != nullptr && *home != '\0') base = fs::path(home) / ".cache";
  if (cache != nullptr && *cache == '/') base = cache;
  return base / "gpulet" / "measured";
}

ProposedObjective propose_objective(const profile::ModelProfile& measured) {
  ProposedObjective proposed;
  for (const profile::LatencySample& sample : measured.latency.samples()) {
    if (sample.share != Share{100} || sample.batch > kProposedBatch) continue;
    proposed.batch = sample.batch;
    proposed.batch_ms = sample.latency_ms;
  }
  proposed.slo_ms = std::max(kLeastProposedMs, two_digits(2.5 * proposed.batch_ms));
  return proposed;
}

Status check_objective(const profile::ModelProfile& measured, double slo_ms) {
  double lowest_ms = std::numeric_limits<double>::infinity();
  for (const profile::LatencySample& sample : measured.latency.samples()) {
    lowest_ms = std::min(lowest_ms,
                         measured.latency.latency_ms(1, sample.share).value_or(sample.latency_ms));
  }
  if (2 * lowest_ms <= slo_ms) return {};
  return {StatusCode::invalid,
          fmt::format("no batch meets {} ms: one request takes {} ms on a whole device, and may "
                      "wait for the batch before it; choose an objective of at least {} ms with "
                      "--slo",
                      shortest(slo_ms, 3), shortest(lowest_ms, 3), shortest(2 * lowest_ms, 3))};
}

}  // namespace gpulet::tools

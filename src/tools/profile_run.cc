#include "tools/profile_run.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>

#include "gpulet/gpu/nvml.h"
#include "gpulet/partition/driver.h"
#include "tools/busy_watch.h"
#include "tools/cell_doubts.h"
#include "tools/clock_watch.h"
#include "tools/held_share.h"
#include "tools/measured_proxy.h"
#include "tools/sustained_time.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

constexpr std::size_t kFewestRuns = 3;
constexpr int kWarmUpFraction = 10;   // a tenth of a cell's time
constexpr int kLongestExtension = 5;  // times a cell's time, for its median to become steady
constexpr int kLooksPerCell = 4;      // whether it is steady, in each of them
constexpr int kRepetitions = 2;       // of a cell that is in doubt
constexpr double kBusy = 0.1;         // of the cores' time, used by others
constexpr double kBytesPerMegabyte = 1024.0 * 1024.0;

using Environment = std::map<std::string, std::string>;

std::vector<std::uint32_t> batches_of(const ProfileRunOptions& options,
                                      const config::ModelConfig& model) {
  std::vector<std::uint32_t> batches{options.batches.front()};
  for (const std::uint32_t batch : options.batches) {
    if (batch > batches.back() && batch <= model.max_batch) batches.push_back(batch);
  }
  return batches;
}

// Of the file that libraries of Python's torch have beside them: __version__ = '2.8.0+cu128'.
std::string version_in(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  while (std::getline(stream, line)) {
    const std::size_t from = line.find('\'');
    const std::size_t to = line.rfind('\'');
    if (line.starts_with("__version__") && to > from) return line.substr(from + 1, to - from - 1);
  }
  return {};
}

// Which LibTorch a process has mapped: the name of its file, which ends in the version where a
// distribution made it, or what is written beside it.
std::string libtorch_of(pid_t process) {
  std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
  std::string line;
  while (std::getline(maps, line)) {
    const std::size_t at = line.find("/libtorch_cpu.so");
    if (at == std::string::npos) continue;
    const std::filesystem::path library = line.substr(line.find('/'));
    const std::string version = version_in(library.parent_path().parent_path() / "version.py");
    return version.empty() ? library.filename().string() : version;
  }
  return {};
}

// What a GPU has left; nothing of a CPU device, or where NVML does not tell.
class DeviceMemory {
 public:
  explicit DeviceMemory(std::string gpu) : gpu_(std::move(gpu)) {
    if (gpu_.empty()) return;
    auto nvml = gpu::Nvml::load();
    if (nvml.ok()) nvml_.emplace(std::move(nvml).value());
  }
  [[nodiscard]] std::optional<std::uint64_t> free_bytes() const {
    if (!nvml_) return std::nullopt;
    const auto memory = nvml_->memory(gpu_);
    if (!memory.ok()) return std::nullopt;
    return memory.value().free_bytes;
  }

 private:
  const std::string gpu_;
  std::optional<gpu::Nvml> nvml_;
};

class Sweep {
 public:
  Sweep(const ProfileRunOptions& options, MeasuredDevice& device, std::ostream& progress)
      : options_(options),
        device_(device),
        progress_(progress),
        device_memory_(device.gpu),
        off_cores_(device.cores),
        busy_(device.cores, !off_cores_.off()),
        source_(loop_.executor(), options.proxy, device.lanes) {
    if (!device.gpu.empty()) clocks_.emplace(device.gpu);
  }

  [[nodiscard]] Result<profile::ModelProfile> measure_model(const config::ModelConfig& model);
  [[nodiscard]] profile::Provenance found() const;

 private:
  struct Measured {
    std::vector<profile::LatencySample> samples;
    std::optional<double> memory_mb;
  };
  // What is to be measured of a model: batches by size, both in the order of measuring. The largest
  // size is first: what is too slow there need not be tried on less.
  using Batches = std::map<Share, std::vector<std::uint32_t>, std::greater<>>;
  // Sizes whose processes start with the same environment, the largest first.
  struct SizeGroup {
    Environment environment;
    std::vector<Share> sizes;
  };
  // All sizes of a group in one process.
  [[nodiscard]] Status measure_sizes(const config::ModelConfig& model, const SizeGroup& group,
                                     const Batches& batches, Measured& measured);
  // The cells that are in doubt once more, as long as there are fewer of them each time.
  [[nodiscard]] Status repeat_doubtful(const config::ModelConfig& model,
                                       const std::vector<SizeGroup>& groups, Measured& measured);
  // Starts and loads; tells of the load, and keeps what it found.
  [[nodiscard]] Result<std::unique_ptr<MeasuredProxy>> load_proxy(HeldShare& share,
                                                                  const config::ModelConfig& model,
                                                                  const SizeGroup& group,
                                                                  Measured& measured);
  [[nodiscard]] Status measure_size(MeasuredProxy& proxy, const std::vector<std::uint32_t>& batches,
                                    Share size, Measured& measured);
  // False where a batch takes longer than is useful.
  [[nodiscard]] Result<bool> warm_up(MeasuredProxy& proxy, std::uint32_t batch);
  // Times from one answer to the next, while the next batch waits already.
  [[nodiscard]] Result<SustainedTime> time_of(MeasuredProxy& proxy, std::uint32_t batch);
  [[nodiscard]] bool is_enough(const SustainedTime& time, Duration& next_look) const;
  // Empty where a batch takes longer than is useful.
  [[nodiscard]] Result<std::optional<profile::LatencySample>> measure_cell(MeasuredProxy& proxy,
                                                                           std::uint32_t batch,
                                                                           Share size,
                                                                           bool smallest);
  [[nodiscard]] Result<std::vector<SizeGroup>> group_sizes();

  const ProfileRunOptions& options_;
  MeasuredDevice& device_;
  std::ostream& progress_;
  const DeviceMemory device_memory_;
  const OffCores off_cores_;
  BusyWatch busy_;
  std::optional<ClockWatch> clocks_;
  BlockingLoop loop_;  // a signal is waited for all the time: a daemon may have to end
  ProxySource source_;
  GpuletId last_gpulet_;
  std::string libtorch_;
  std::map<Share, std::uint32_t> sms_;  // by size, where the device tells
};

profile::Provenance Sweep::found() const {
  profile::Provenance found;
  if (clocks_) found = clocks_->seen();
  if (!libtorch_.empty()) found["libtorch"] = libtorch_;
  std::string sms;
  for (const auto& [size, count] : sms_) {
    sms +=
        (sms.empty() ? "" : ", ") + std::to_string(size.percent) + " %: " + std::to_string(count);
  }
  if (!sms.empty()) found["sms_by_size"] = sms;
  return found;
}

Result<std::vector<Sweep::SizeGroup>> Sweep::group_sizes() {
  std::vector<Share> sizes = options_.sizes;
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  std::vector<SizeGroup> groups;
  HeldShare share(*device_.driver, last_gpulet_);
  for (const Share size : sizes) {
    auto grant = share.grant(size);
    if (!grant.ok()) return grant.status();
    Environment& environment = grant.value().environment;
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const SizeGroup& group) {
      return group.environment == environment;
    });
    if (same != groups.end()) {
      same->sizes.push_back(size);
    } else {
      groups.push_back({std::move(environment), {size}});
    }
  }
  return groups;
}

Result<profile::ModelProfile> Sweep::measure_model(const config::ModelConfig& model) {
  const auto groups = group_sizes();
  if (!groups.ok()) return groups.status();
  Batches batches;
  for (const Share size : options_.sizes) batches[size] = batches_of(options_, model);
  Measured measured;
  for (const SizeGroup& group : groups.value()) {
    Status status = measure_sizes(model, group, batches, measured);
    if (!status.ok()) return status;
  }
  if (Status status = repeat_doubtful(model, groups.value(), measured); !status.ok()) return status;
  auto table = profile::LatencyTable::create(std::move(measured.samples));
  if (!table.ok()) return table.status();
  return profile::ModelProfile{std::move(table).value(), {}, measured.memory_mb};
}

Status Sweep::repeat_doubtful(const config::ModelConfig& model,
                              const std::vector<SizeGroup>& groups, Measured& measured) {
  std::size_t before = measured.samples.size() + 1;
  for (int repetition = 0;; ++repetition) {
    // By the figures that count now: a cell that was measured again no longer makes its neighbours
    // doubtful.
    for (profile::LatencySample& sample : measured.samples) {
      if (sample.doubt == profile::Doubt::neighbours) sample.doubt = profile::Doubt::none;
    }
    doubt_by_neighbours(measured.samples);
    Batches again;
    std::size_t doubtful = 0;
    for (const profile::LatencySample& sample : measured.samples) {
      if (sample.doubt == profile::Doubt::none) continue;
      again[sample.share].push_back(sample.batch);
      ++doubtful;
    }
    if (doubtful == 0 || doubtful >= before || repetition == kRepetitions) return {};
    before = doubtful;
    progress_ << "  again, as " << doubtful << (doubtful == 1 ? " cell is" : " cells are")
              << " in doubt:\n";
    for (const SizeGroup& group : groups) {
      const bool concerned = std::any_of(group.sizes.begin(), group.sizes.end(),
                                         [&](Share size) { return again.contains(size); });
      if (!concerned) continue;
      const Status status = measure_sizes(model, group, again, measured);
      if (status.code() == StatusCode::cancelled) return status;
      if (!status.ok()) {  // what was measured before stays, and stays in doubt
        progress_ << "  not measured again: " << status.message() << '\n';
        return {};
      }
    }
  }
}

Result<std::unique_ptr<MeasuredProxy>> Sweep::load_proxy(HeldShare& share,
                                                         const config::ModelConfig& model,
                                                         const SizeGroup& group,
                                                         Measured& measured) {
  const auto free_before = device_memory_.free_bytes();
  auto started = MeasuredProxy::start(loop_, source_, {group.environment}, model,
                                      batches_of(options_, model).back(),
                                      [&share](pid_t process) { return share.end(process); });
  if (!started.ok()) return started.status();
  MeasuredProxy& proxy = *started.value();
  if (Status attached = share.attach(proxy.pid()); !attached.ok()) return attached;
  progress_ << "  loading ..." << std::flush;
  const auto ready = proxy.load();
  progress_ << (ready.ok() ? " loaded" : " failed") << '\n' << std::flush;
  if (!ready.ok()) return ready.status();

  auto bytes = std::optional(ready.value().memory_bytes);
  if (const auto free_now = device_memory_.free_bytes(); free_before && free_now) {
    bytes = *free_before > *free_now ? std::optional(*free_before - *free_now) : std::nullopt;
  }
  if (bytes) {
    measured.memory_mb =
        std::max(measured.memory_mb.value_or(0), static_cast<double>(*bytes) / kBytesPerMegabyte);
  }
  if (ready.value().found.sms > 0) sms_[group.sizes.front()] = ready.value().found.sms;
  libtorch_ = libtorch_of(proxy.pid());
  return started;
}

Status Sweep::measure_sizes(const config::ModelConfig& model, const SizeGroup& group,
                            const Batches& batches, Measured& measured) {
  HeldShare share(*device_.driver, last_gpulet_);  // outlives the process
  auto granted = share.grant(group.sizes.front());
  if (!granted.ok()) return granted.status();
  const auto loaded = load_proxy(share, model, group, measured);
  if (!loaded.ok()) return loaded.status();
  MeasuredProxy& proxy = *loaded.value();
  for (const Share size : group.sizes) {
    const auto wanted = batches.find(size);
    if (wanted == batches.end()) continue;
    if (auto moved = share.grant(size); !moved.ok()) return moved.status();
    Status status = share.attach(proxy.pid());
    if (status.ok()) status = share.activate();
    if (status.ok()) status = measure_size(proxy, wanted->second, size, measured);
    if (!status.ok()) return status.within(std::to_string(size.percent) + " %");
  }
  return proxy.stop();
}

Status Sweep::measure_size(MeasuredProxy& proxy, const std::vector<std::uint32_t>& batches,
                           Share size, Measured& measured) {
  progress_ << "  " << size.percent << " %:" << std::flush;
  Status status;
  for (const std::uint32_t batch : batches) {
    const auto cell = measure_cell(proxy, batch, size, batch == batches.front());
    status = cell.status();
    if (!status.ok() || !cell.value()) break;
    const profile::LatencySample& sample = *cell.value();
    progress_ << "  " << batch << ": " << (sample.doubt == profile::Doubt::none ? "" : "~")
              << shortest(sample.latency_ms, 2) << " ms" << std::flush;
    const auto known = std::find_if(
        measured.samples.begin(), measured.samples.end(),
        [&](const profile::LatencySample& one) { return one.share == size && one.batch == batch; });
    if (known == measured.samples.end()) {
      measured.samples.push_back(sample);
    } else {
      *known = better_of(*known, sample);
    }
    if (from_ms(sample.latency_ms) > options_.longest_batch) break;
  }
  progress_ << '\n' << std::flush;
  return status;
}

Result<bool> Sweep::warm_up(MeasuredProxy& proxy, std::uint32_t batch) {
  const auto enough = std::chrono::steady_clock::now() + options_.per_cell / kWarmUpFraction;
  bool useful = true;
  while (true) {
    if (Status status = proxy.submit(batch); !status.ok()) return status;
    const auto answer = proxy.next();
    if (!answer.ok()) return answer.status();
    useful = answer.value().executed <= options_.longest_batch;
    if (!useful || answer.value().at >= enough) return useful;
  }
}

// Looks at the spread a few times per cell only: that takes as long as a short batch.
bool Sweep::is_enough(const SustainedTime& time, Duration& next_look) const {
  if (time.batches() < kFewestRuns || time.total() < next_look) return false;
  next_look = time.total() + options_.per_cell / kLooksPerCell;
  return time.total() >= kLongestExtension * options_.per_cell || time.spread() <= device_.steady;
}

Result<SustainedTime> Sweep::time_of(MeasuredProxy& proxy, std::uint32_t batch) {
  const ClockWatch::Looking looking(clocks_ ? &*clocks_ : nullptr);
  for (std::uint32_t i = 0; i < MeasuredProxy::kInFlight; ++i) {
    if (Status status = proxy.submit(batch); !status.ok()) return status;
  }
  const auto first = proxy.next();  // nothing ran before it
  if (!first.ok()) return first.status();
  auto previous = first.value().at;
  SustainedTime time(device_.even_over);
  Duration next_look = options_.per_cell;
  bool enough = false;
  for (std::size_t in_flight = MeasuredProxy::kInFlight - 1; in_flight > 0;) {
    if (!enough) {
      if (Status status = proxy.submit(batch); !status.ok()) return status;
      ++in_flight;
    }
    const auto answer = proxy.next();
    if (!answer.ok()) return answer.status();
    --in_flight;
    time.add(answer.value().at - previous);
    previous = answer.value().at;
    enough = enough || is_enough(time, next_look);
  }
  return time;
}

Result<std::optional<profile::LatencySample>> Sweep::measure_cell(MeasuredProxy& proxy,
                                                                  std::uint32_t batch, Share size,
                                                                  bool smallest) {
  const auto useful = warm_up(proxy, batch);
  if (!useful.ok()) return useful.status();
  if (!useful.value() && !smallest) return std::optional<profile::LatencySample>();
  busy_.begin(proxy.pid());
  const auto time = time_of(proxy, batch);
  if (!time.ok()) return time.status();
  profile::LatencySample sample{.batch = batch,
                                .share = size,
                                .latency_ms = time.value().median_ms(),
                                .p99_ms = time.value().p99_ms()};
  if (time.value().spread() > device_.steady) sample.doubt = profile::Doubt::unsteady;
  if (busy_.end().value_or(0) > kBusy) sample.doubt = profile::Doubt::busy;
  return std::optional(sample);
}

}  // namespace

Result<ProfileRun> measure(const ProfileRunOptions& options, MeasuredDevice& device,
                           std::ostream& progress) {
  ProfileRun run;
  Sweep sweep(options, device, progress);
  for (const config::ModelConfig& model : options.models) {
    progress << "[" << run.models.size() + run.failures.size() + 1 << "/" << options.models.size()
             << "] " << model.name << '\n'
             << std::flush;
    auto measured = sweep.measure_model(model);
    if (measured.ok()) {
      for (const Share size : options.sizes) {
        for (const std::uint32_t batch : batches_of(options, model))
          run.asked[model.name].emplace(size, batch);
      }
      run.models.emplace(model.name, std::move(measured).value());
      continue;
    }
    const Status failure = measured.status().within(model.name);
    if (failure.code() == StatusCode::cancelled) return failure;
    progress << "  not measured: " << failure.message() << '\n';
    run.failures.push_back(failure);
  }
  run.found = sweep.found();
  return run;
}

}  // namespace gpulet::tools

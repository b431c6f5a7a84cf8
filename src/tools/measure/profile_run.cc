#include "tools/measure/profile_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>

#include "gpulet/base/bytes.h"
#include "gpulet/gpu/nvml.h"
#include "tools/measure/measured_proxy.h"
#include "tools/measure/measurement_quality.h"
#include "tools/report/format.h"

namespace gpulet::tools {
namespace {

constexpr int kLongestExtension = 5;  // times the time per cell, until the median is steady
constexpr int kChecksPerCell = 4;     // of the spread, in each time per cell
constexpr int kRepetitions = 2;       // of a cell in doubt
constexpr double kBusy = 0.1;         // fraction of the cores' time used by others
// Of a model where the driver does not report free memory.
constexpr double kUnknownModelMb = 4096;

using Environment = std::map<std::string, std::string>;

std::vector<std::uint32_t> batches_of(const ProfileRunOptions& options,
                                      const config::ModelConfig& model) {
  std::vector<std::uint32_t> batches{options.batches.front()};
  for (const std::uint32_t batch : options.batches) {
    if (batch > batches.back() && batch <= model.max_batch) batches.push_back(batch);
  }
  return batches;
}

// Reads the file next to the libraries of Python's torch: __version__ = '2.8.0+cu128'.
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

// The version of the LibTorch that a process has mapped, or else the name of its file.
std::string libtorch_of(pid_t process) {
  std::ifstream maps(fmt::format("/proc/{}/maps", process));
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

// The free memory of a GPU; empty for a CPU device or if NVML does not report it.
class FreeGpuMemory {
 public:
  explicit FreeGpuMemory(std::string gpu) : gpu_(std::move(gpu)) {
    if (gpu_.empty()) return;
    auto nvml = gpu::Nvml::load();
    if (nvml.ok()) nvml_.emplace(std::move(nvml).value());
  }
  [[nodiscard]] std::optional<std::uint64_t> bytes() const {
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
        free_memory_(device.gpu),
        avoidance_(device.cores),
        core_usage_(device.cores, !avoidance_.active()),
        factory_(loop_.executor(), options.proxies, device.shared_process) {
    if (!device.gpu.empty()) clocks_.emplace(device.gpu);
  }

  [[nodiscard]] Result<profile::ModelProfile> measure_model(const config::ModelConfig& model) {
    GPULET_TRY(const auto groups, group_sizes());
    Batches batches;
    for (const Share size : options_.sizes) batches[size] = batches_of(options_, model);
    Measured measured;
    began_ = std::chrono::steady_clock::now();
    GroupProcesses ahead(groups.size());
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const SizeGroup& group = groups[i];
      Status status = measure_sizes(model, group, batches, measured, std::move(ahead[i]));
      // The first process loads alone, which shows its memory.
      if (status.ok() && i == 0) status = load_ahead(model, groups, measured, ahead);
      if (!status.ok()) return status;
    }
    if (Status status = repeat_doubtful(model, groups, measured); !status.ok()) return status;
    GPULET_TRY(auto table, profile::LatencyTable::create(std::move(measured.samples)));
    return profile::ModelProfile{std::move(table), {}, measured.memory_mb};
  }

  [[nodiscard]] profile::Provenance facts() const {
    profile::Provenance facts;
    if (clocks_) facts = clocks_->observed();
    if (!libtorch_.empty()) facts["libtorch"] = libtorch_;
    std::string sms;
    for (const auto& [size, count] : sms_)
      sms += fmt::format("{}{} %: {}", sms.empty() ? "" : ", ", size.percent, count);
    if (!sms.empty()) facts["sms_by_size"] = sms;
    return facts;
  }

 private:
  struct Measured {
    std::vector<profile::LatencySample> samples;
    std::optional<double> memory_mb;
  };
  // The batches to measure for each size, both in the order of measurement. The largest size is
  // first: a batch that is too slow there is not tried on smaller sizes.
  using Batches = std::map<Share, std::vector<std::uint32_t>, std::greater<>>;
  // Sizes whose processes have the same environment, the largest first.
  struct SizeGroup {
    Environment environment;
    std::vector<Share> sizes;
  };
  // The process of a group, whose model may not be loaded yet.
  struct GroupProcess {
    GroupProcess(partition::PartitionDriver& driver, GpuletId& last) : share(driver, last) {}
    HeldShare share;  // outlives the process
    std::unique_ptr<MeasuredProxy> proxy{};
    std::optional<std::uint64_t> free_before{};
  };
  using GroupProcesses = std::vector<std::unique_ptr<GroupProcess>>;  // null: not started

  // Loads the model in the processes of all groups but the first at the same time, where a GPU has
  // room for them: they idle until their sizes are measured. Those that cannot be started now are
  // null, and start when their sizes are measured.
  [[nodiscard]] Status load_ahead(const config::ModelConfig& model,
                                  const std::vector<SizeGroup>& groups, Measured& measured,
                                  GroupProcesses& processes) {
    if (device_.gpu.empty()) return {};
    const double free_mb = free_memory_mb(device_).value_or(0);
    const double needed_mb =
        measured.memory_mb.value_or(kUnknownModelMb) * static_cast<double>(groups.size());
    if (groups.size() > device_.most_gpulets || needed_mb > free_mb) return {};
    for (std::size_t i = 1; i < groups.size(); ++i) {
      auto begun = begin_load(model, groups[i]);
      if (begun.ok()) processes[i] = std::move(begun).value();
    }
    for (std::size_t i = 1; i < groups.size(); ++i) {
      if (processes[i] == nullptr) continue;
      processes[i]->free_before.reset();  // the others take memory meanwhile
      const Status loaded = finish_load(*processes[i], groups[i], measured);
      if (loaded.code() == StatusCode::cancelled) return loaded;
      if (!loaded.ok()) processes[i].reset();
    }
    return {};
  }

  // Measures all sizes of a group in one process: a loaded one, or a new one for null.
  [[nodiscard]] Status measure_sizes(const config::ModelConfig& model, const SizeGroup& group,
                                     const Batches& batches, Measured& measured,
                                     std::unique_ptr<GroupProcess> process = nullptr) {
    if (process == nullptr) {
      GPULET_TRY(auto begun, begin_load(model, group));
      process = std::move(begun);
      if (Status loaded = finish_load(*process, group, measured); !loaded.ok()) return loaded;
    }
    HeldShare& share = process->share;
    MeasuredProxy& proxy = *process->proxy;
    for (const Share size : group.sizes) {
      const auto requested = batches.find(size);
      if (requested == batches.end()) continue;
      if (auto moved = share.grant(size); !moved.ok()) return moved.status();
      Status status = share.attach(proxy.pid());
      if (status.ok()) status = share.activate();
      if (status.ok()) status = measure_size(proxy, model.name, requested->second, size, measured);
      if (!status.ok()) return status.within(std::to_string(size.percent) + " %");
    }
    return proxy.stop();
  }

  // Measures the cells in doubt again while their number falls.
  [[nodiscard]] Status repeat_doubtful(const config::ModelConfig& model,
                                       const std::vector<SizeGroup>& groups, Measured& measured) {
    std::size_t before = measured.samples.size() + 1;
    for (int repetition = 0;; ++repetition) {
      // Compare neighbours anew: cells that were measured again no longer make others doubtful.
      for (profile::LatencySample& sample : measured.samples) {
        if (sample.doubt == profile::Doubt::neighbours) sample.doubt = profile::Doubt::none;
      }
      doubt_by_neighbours(measured.samples);
      Batches doubtful_batches;
      std::size_t doubtful = 0;
      for (const profile::LatencySample& sample : measured.samples) {
        if (sample.doubt == profile::Doubt::none) continue;
        doubtful_batches[sample.share].push_back(sample.batch);
        ++doubtful;
      }
      if (doubtful == 0 || doubtful >= before || repetition == kRepetitions || over_budget())
        return {};
      before = doubtful;
      progress_ << "  measuring " << doubtful << (doubtful == 1 ? " cell" : " cells")
                << " in doubt again:\n";
      for (const SizeGroup& group : groups) {
        const bool concerned = std::any_of(group.sizes.begin(), group.sizes.end(), [&](Share size) {
          return doubtful_batches.contains(size);
        });
        if (!concerned) continue;
        const Status status = measure_sizes(model, group, doubtful_batches, measured);
        if (status.code() == StatusCode::cancelled) return status;
        if (!status.ok()) {  // keep the first measurement, still in doubt
          progress_ << "  not measured again: " << status.message() << '\n';
          return {};
        }
      }
    }
  }

  // Starts a process, which begins to load the model.
  [[nodiscard]] Result<std::unique_ptr<GroupProcess>> begin_load(const config::ModelConfig& model,
                                                                 const SizeGroup& group) {
    auto process = std::make_unique<GroupProcess>(*device_.driver, last_gpulet_);
    HeldShare& share = process->share;
    auto granted = share.grant(group.sizes.front());
    if (!granted.ok()) return granted.status();
    process->free_before = free_memory_.bytes();
    GPULET_TRY(auto started, MeasuredProxy::start(loop_, factory_, {group.environment}, model,
                                                  batches_of(options_, model).back(),
                                                  [&share](pid_t pid) { return share.end(pid); }));
    process->proxy = std::move(started);
    if (Status attached = share.attach(process->proxy->pid()); !attached.ok()) return attached;
    progress_ << "  loading ..." << std::flush;
    if (Status begun = process->proxy->begin_load(); !begun.ok()) return begun;
    return process;
  }

  // Waits until the model is loaded, and keeps the facts that this reveals.
  [[nodiscard]] Status finish_load(GroupProcess& process, const SizeGroup& group,
                                   Measured& measured) {
    const auto ready = process.proxy->finish_load();
    progress_ << (ready.ok() ? " loaded" : " failed") << '\n' << std::flush;
    if (!ready.ok()) return ready.status();

    auto bytes = std::optional(ready.value().memory_bytes);
    if (free_memory_.bytes()) bytes = used_since(process.free_before);
    if (bytes) {
      measured.memory_mb =
          std::max(measured.memory_mb.value_or(0), static_cast<double>(*bytes) / kBytesPerMegabyte);
    }
    if (ready.value().found.sms > 0) sms_[group.sizes.front()] = ready.value().found.sms;
    libtorch_ = libtorch_of(process.proxy->pid());
    return {};
  }

  // Empty: not known.
  [[nodiscard]] std::optional<std::uint64_t> used_since(
      std::optional<std::uint64_t> free_before) const {
    const auto free_now = free_memory_.bytes();
    if (!free_before || !free_now || *free_before <= *free_now) return std::nullopt;
    return *free_before - *free_now;
  }

  [[nodiscard]] Status measure_size(MeasuredProxy& proxy, const std::string& model,
                                    const std::vector<std::uint32_t>& batches, Share size,
                                    Measured& measured) {
    progress_ << "  " << size.percent << " %:" << std::flush;
    Status status;
    for (const std::uint32_t batch : batches) {
      status = simulate(proxy, model, batch, size);
      if (!status.ok()) break;
      const auto cell = measure_cell(proxy, batch, size, batch == batches.front());
      status = cell.status();
      if (!status.ok() || !cell.value()) break;
      const profile::LatencySample& sample = *cell.value();
      progress_ << "  " << batch << ": " << (sample.doubt == profile::Doubt::none ? "" : "~")
                << shortest(sample.latency_ms, 2) << " ms" << std::flush;
      const auto known = std::find_if(measured.samples.begin(), measured.samples.end(),
                                      [&](const profile::LatencySample& one) {
                                        return one.share == size && one.batch == batch;
                                      });
      if (known == measured.samples.end()) {
        measured.samples.push_back(sample);
      } else {
        *known = better_of(*known, sample);
      }
      if (from_ms(sample.latency_ms) > options_.longest_batch || over_budget()) break;
    }
    progress_ << '\n' << std::flush;
    return status;
  }

  [[nodiscard]] bool over_budget() const {
    return options_.budget > Duration::zero() &&
           std::chrono::steady_clock::now() - began_ > options_.budget;
  }

  // Sets the time of a simulated device.
  [[nodiscard]] Status simulate(MeasuredProxy& proxy, const std::string& model, std::uint32_t batch,
                                Share size) const {
    if (device_.simulated == nullptr) return {};
    const auto takes = device_.simulated->alone({model, batch, size});
    if (takes.ok()) proxy.set_simulated_latency(takes.value());
    return takes.status();
  }

  // False if a batch takes longer than options_.longest_batch.
  [[nodiscard]] Result<bool> warm_up(MeasuredProxy& proxy, std::uint32_t batch) {
    const auto enough = std::chrono::steady_clock::now() + options_.per_cell / kWarmUpFraction;
    bool useful = true;
    while (true) {
      if (Status status = proxy.submit(batch); !status.ok()) return status;
      GPULET_TRY(const auto response, proxy.next());
      useful = response.executed <= options_.longest_batch;
      if (!useful || response.at >= enough) return useful;
    }
  }

  // Measures the intervals between responses while another batch always waits.
  [[nodiscard]] Result<SustainedTime> time_of(MeasuredProxy& proxy, std::uint32_t batch) {
    const GpuClockMonitor::Sampling sampling(clocks_ ? &*clocks_ : nullptr);
    for (std::uint32_t i = 0; i < MeasuredProxy::kInFlight; ++i) {
      if (Status status = proxy.submit(batch); !status.ok()) return status;
    }
    const auto first = proxy.next();  // no batch before it: starts the first interval
    if (!first.ok()) return first.status();
    auto previous = first.value().at;
    SustainedTime time(device_.averaging_block);
    Duration next_check = options_.per_cell;
    bool enough = false;
    for (std::size_t in_flight = MeasuredProxy::kInFlight - 1; in_flight > 0;) {
      if (!enough) {
        if (Status status = proxy.submit(batch); !status.ok()) return status;
        ++in_flight;
      }
      GPULET_TRY(const auto response, proxy.next());
      --in_flight;
      time.add(response.at - previous);
      previous = response.at;
      enough = enough || is_enough(time, next_check);
    }
    return time;
  }

  // Checks the spread only a few times per cell, because that takes as long as a short batch.
  [[nodiscard]] bool is_enough(const SustainedTime& time, Duration& next_check) const {
    if (time.batches() < kFewestRuns || time.total() < next_check) return false;
    next_check = time.total() + options_.per_cell / kChecksPerCell;
    return time.total() >= kLongestExtension * options_.per_cell ||
           time.spread() <= device_.steady_spread;
  }

  // Empty if a batch takes longer than options_.longest_batch and is not the smallest.
  [[nodiscard]] Result<std::optional<profile::LatencySample>> measure_cell(MeasuredProxy& proxy,
                                                                           std::uint32_t batch,
                                                                           Share size,
                                                                           bool smallest) {
    GPULET_TRY(const auto useful, warm_up(proxy, batch));
    if (!useful && !smallest) return std::optional<profile::LatencySample>();
    core_usage_.start(proxy.pid());
    GPULET_TRY(const auto time, time_of(proxy, batch));
    profile::LatencySample sample{.batch = batch,
                                  .share = size,
                                  .latency_ms = time.median_ms(),
                                  .p99_ms = time.p99_ms(),
                                  .cv = time.cv()};
    if (time.spread() > device_.steady_spread) sample.doubt = profile::Doubt::unsteady;
    if (core_usage_.used_by_others().value_or(0) > kBusy) sample.doubt = profile::Doubt::busy;
    return std::optional(sample);
  }

  [[nodiscard]] Result<std::vector<SizeGroup>> group_sizes() {
    std::vector<Share> sizes = options_.sizes;
    std::sort(sizes.begin(), sizes.end(), std::greater<>());
    std::vector<SizeGroup> groups;
    HeldShare share(*device_.driver, last_gpulet_);
    for (const Share size : sizes) {
      GPULET_TRY(auto grant, share.grant(size));
      Environment& environment = grant.environment;
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

  const ProfileRunOptions& options_;
  MeasuredDevice& device_;
  std::ostream& progress_;
  const FreeGpuMemory free_memory_;
  const CoreAvoidance avoidance_;
  CoreUsageMonitor core_usage_;
  std::optional<GpuClockMonitor> clocks_;
  BlockingLoop loop_;  // catches signals all the time, so that an MPS daemon is always stopped
  ProxyFactory factory_;
  GpuletId last_gpulet_;
  std::chrono::steady_clock::time_point began_;  // the present model
  std::string libtorch_;
  std::map<Share, std::uint32_t> sms_;  // by size, if the device reports them
};

}  // namespace

Result<ProfileRun> measure(const ProfileRunOptions& options, MeasuredDevice& device,
                           std::ostream& progress, const AfterModel& after_model) {
  ProfileRun run;
  Sweep sweep(options, device, progress);
  progress << "time per batch by share of the device; ~: in doubt, because it was not steady or "
              "something else used the cores\n";
  for (const config::ModelConfig& model : options.models) {
    progress << "[" << run.models.size() + run.failures.size() + 1 << "/" << options.models.size()
             << "] " << model.name << '\n'
             << std::flush;
    auto measured = sweep.measure_model(model);
    if (measured.ok()) {
      for (const Share size : options.sizes) {
        for (const std::uint32_t batch : batches_of(options, model))
          run.requested[model.name].emplace(size, batch);
      }
      run.models.emplace(model.name, std::move(measured).value());
    } else {
      const Status failure = measured.status().within(model.name);
      if (failure.code() == StatusCode::cancelled) return failure;
      progress << "  not measured: " << failure.message() << '\n';
      run.failures.push_back(failure);
    }
    run.facts = sweep.facts();
    if (after_model) after_model(model.name, run);
  }
  return run;
}

}  // namespace gpulet::tools

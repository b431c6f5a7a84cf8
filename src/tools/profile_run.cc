#include "tools/profile_run.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>

#include "gpulet/core/ids.h"
#include "gpulet/load/percentile.h"
#include "gpulet/partition/driver.h"
#include "gpulet/partition/drivers/cpu_quota.h"
#include "tools/measured_proxy.h"
#include "tools/table.h"

namespace gpulet::tools {
namespace {

constexpr std::size_t kFewestRuns = 3;
constexpr int kWarmUpFraction = 10;  // a tenth of a cell's time
// Several periods of the CPU bandwidth control (10 ms).
constexpr Duration kBlock = std::chrono::milliseconds(50);
constexpr double kBytesPerMegabyte = 1024.0 * 1024.0;

using Environment = std::map<std::string, std::string>;

// A share of the device while somebody holds it. A driver knows a gpulet's share from grant() on,
// so another share is another gpulet.
class HeldShare {
 public:
  // `last`: the id given last, for all shares of the driver.
  HeldShare(partition::PartitionDriver& driver, GpuletId& last) : driver_(driver), last_(last) {}
  ~HeldShare() { driver_.release(gpulet_); }
  HeldShare(const HeldShare&) = delete;
  HeldShare& operator=(const HeldShare&) = delete;

  // Lets go of the share held before.
  [[nodiscard]] Result<partition::Grant> grant(Share share) {
    driver_.release(gpulet_);
    gpulet_ = GpuletId{++last_.value};
    return driver_.grant(gpulet_, share);
  }
  [[nodiscard]] Status attach(pid_t process) { return driver_.attach(gpulet_, process); }
  [[nodiscard]] Status activate() { return driver_.activate(gpulet_); }

 private:
  partition::PartitionDriver& driver_;
  GpuletId& last_;
  GpuletId gpulet_;
};

// What one batch costs a gpulet that has always one more to run. REQUIRES: not empty. A batch
// shorter than a quota's slice mostly runs at full speed whatever the share is, and every few
// batches the process stands still for the rest of the period: the median of single batches would
// promise a 20 % gpulet the rate of a whole core. So batches are averaged over blocks of several
// periods (one batch, where it is that long), and the median is that of the blocks, which a
// disturbance of the machine does not move.
double sustained_ms(const std::vector<Duration>& intervals) {
  load::Samples blocks_ms;
  Duration block{};
  int batches = 0;
  for (const Duration interval : intervals) {
    block += interval;
    ++batches;
    if (block < kBlock) continue;
    blocks_ms.add(to_ms(block) / batches);
    block = {};
    batches = 0;
  }
  // All together were shorter than a block.
  if (blocks_ms.size() == 0) blocks_ms.add(to_ms(block) / batches);
  return blocks_ms.percentile(50).value();
}

// The file name of the LibTorch that a process has mapped.
std::string libtorch_of(pid_t process) {
  std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
  std::string line;
  while (std::getline(maps, line)) {
    const std::size_t at = line.find("/libtorch_cpu.so");
    if (at != std::string::npos) return line.substr(at + 1);
  }
  return {};
}

class Sweep {
 public:
  Sweep(const ProfileRunOptions& options, partition::PartitionDriver& driver,
        std::ostream& progress)
      : options_(options), driver_(driver), progress_(progress) {}

  [[nodiscard]] Result<profile::ModelProfile> measure_model(const config::ModelConfig& model);
  [[nodiscard]] const std::string& libtorch() const { return libtorch_; }

 private:
  struct Measured {
    std::vector<profile::LatencySample> samples;
    double memory_mb = 0;
  };
  // All these sizes, whose processes start with the same environment, in one process.
  [[nodiscard]] Status measure_sizes(const config::ModelConfig& model,
                                     const Environment& environment,
                                     const std::vector<Share>& sizes, Measured& measured);
  [[nodiscard]] Status measure_size(MeasuredProxy& proxy, const std::vector<std::uint32_t>& batches,
                                    Share size, Measured& measured);
  // False where a batch takes longer than is useful.
  [[nodiscard]] Result<bool> warm_up(MeasuredProxy& proxy, std::uint32_t batch);
  // Times from one answer to the next, while the next batch waits already.
  [[nodiscard]] Result<std::vector<Duration>> intervals_of(MeasuredProxy& proxy,
                                                           std::uint32_t batch);
  // Empty where a batch takes longer than is useful.
  [[nodiscard]] Result<std::optional<profile::LatencySample>> measure_cell(MeasuredProxy& proxy,
                                                                           std::uint32_t batch,
                                                                           Share size,
                                                                           bool smallest);
  // Sizes by the environment that the driver gives their processes.
  [[nodiscard]] Result<std::map<Environment, std::vector<Share>>> group_sizes();
  [[nodiscard]] std::vector<std::uint32_t> batches_of(const config::ModelConfig& model) const;

  const ProfileRunOptions& options_;
  partition::PartitionDriver& driver_;
  std::ostream& progress_;
  GpuletId last_gpulet_;
  std::string libtorch_;
};

std::vector<std::uint32_t> Sweep::batches_of(const config::ModelConfig& model) const {
  std::vector<std::uint32_t> batches{options_.batches.front()};
  for (const std::uint32_t batch : options_.batches) {
    if (batch > batches.back() && batch <= model.max_batch) batches.push_back(batch);
  }
  return batches;
}

Result<std::map<Environment, std::vector<Share>>> Sweep::group_sizes() {
  std::map<Environment, std::vector<Share>> groups;
  HeldShare share(driver_, last_gpulet_);
  for (const Share size : options_.sizes) {
    auto grant = share.grant(size);
    if (!grant.ok()) return grant.status();
    groups[grant.value().environment].push_back(size);
  }
  // The largest first: what is too slow there need not be tried on less.
  for (auto& [environment, sizes] : groups) std::sort(sizes.begin(), sizes.end(), std::greater<>());
  return groups;
}

Result<profile::ModelProfile> Sweep::measure_model(const config::ModelConfig& model) {
  auto groups = group_sizes();
  if (!groups.ok()) return groups.status();
  Measured measured;
  for (const auto& [environment, sizes] : groups.value()) {
    Status status = measure_sizes(model, environment, sizes, measured);
    if (!status.ok()) return status;
  }
  auto table = profile::LatencyTable::create(std::move(measured.samples));
  if (!table.ok()) return table.status();
  return profile::ModelProfile{std::move(table).value(), {}, measured.memory_mb};
}

Status Sweep::measure_sizes(const config::ModelConfig& model, const Environment& environment,
                            const std::vector<Share>& sizes, Measured& measured) {
  const std::vector<std::uint32_t> batches = batches_of(model);
  HeldShare share(driver_, last_gpulet_);  // outlives the process
  auto granted = share.grant(sizes.front());
  if (!granted.ok()) return granted.status();
  BlockingLoop loop;  // outlives the process, and serves no other
  auto started = MeasuredProxy::start(loop, options_.proxy, environment, model, batches.back());
  if (!started.ok()) return started.status();
  MeasuredProxy& proxy = *started.value();
  if (Status attached = share.attach(proxy.pid()); !attached.ok()) return attached;
  progress_ << "  loading ..." << std::flush;
  const auto memory_bytes = proxy.load();
  progress_ << (memory_bytes.ok() ? " loaded" : " failed") << '\n' << std::flush;
  if (!memory_bytes.ok()) return memory_bytes.status();
  measured.memory_mb =
      std::max(measured.memory_mb, static_cast<double>(memory_bytes.value()) / kBytesPerMegabyte);
  libtorch_ = libtorch_of(proxy.pid());

  for (const Share size : sizes) {
    if (auto moved = share.grant(size); !moved.ok()) return moved.status();
    Status status = share.attach(proxy.pid());
    if (status.ok()) status = share.activate();
    if (status.ok()) status = measure_size(proxy, batches, size, measured);
    if (!status.ok()) return status.within(std::to_string(size.percent) + " %");
  }
  return {};
}

Status Sweep::measure_size(MeasuredProxy& proxy, const std::vector<std::uint32_t>& batches,
                           Share size, Measured& measured) {
  progress_ << "  " << size.percent << " %:" << std::flush;
  Status status;
  for (const std::uint32_t batch : batches) {
    const auto sample = measure_cell(proxy, batch, size, batch == batches.front());
    status = sample.status();
    if (!status.ok() || !sample.value()) break;
    measured.samples.push_back(*sample.value());
    progress_ << "  " << batch << ": " << shortest(sample.value()->latency_ms, 2) << " ms"
              << std::flush;
    if (from_ms(sample.value()->latency_ms) > options_.longest_batch) break;
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

Result<std::vector<Duration>> Sweep::intervals_of(MeasuredProxy& proxy, std::uint32_t batch) {
  for (std::uint32_t i = 0; i < MeasuredProxy::kInFlight; ++i) {
    if (Status status = proxy.submit(batch); !status.ok()) return status;
  }
  const auto first = proxy.next();  // nothing ran before it
  if (!first.ok()) return first.status();
  auto previous = first.value().at;
  std::vector<Duration> intervals;
  std::size_t in_flight = MeasuredProxy::kInFlight - 1;
  while (true) {
    const bool more = intervals.size() + in_flight < kFewestRuns ||
                      previous - first.value().at < options_.per_cell;
    if (more) {
      if (Status status = proxy.submit(batch); !status.ok()) return status;
      ++in_flight;
    }
    if (in_flight == 0) return intervals;
    const auto answer = proxy.next();
    if (!answer.ok()) return answer.status();
    --in_flight;
    intervals.push_back(answer.value().at - previous);
    previous = answer.value().at;
  }
}

Result<std::optional<profile::LatencySample>> Sweep::measure_cell(MeasuredProxy& proxy,
                                                                  std::uint32_t batch, Share size,
                                                                  bool smallest) {
  const auto useful = warm_up(proxy, batch);
  if (!useful.ok()) return useful.status();
  if (!useful.value() && !smallest) return std::optional<profile::LatencySample>();
  const auto intervals = intervals_of(proxy, batch);
  if (!intervals.ok()) return intervals.status();
  load::Samples intervals_ms;
  for (const Duration interval : intervals.value()) intervals_ms.add(to_ms(interval));
  return std::optional(profile::LatencySample{.batch = batch,
                                              .share = size,
                                              .latency_ms = sustained_ms(intervals.value()),
                                              .p99_ms = intervals_ms.percentile(99)});
}

}  // namespace

Result<ProfileRun> measure(const ProfileRunOptions& options, std::ostream& progress) {
  auto driver = partition::make_cpu_quota_driver(options.cores);
  if (!driver.ok()) return driver.status();
  ProfileRun run;
  run.mechanism = driver.value()->mechanism();
  Sweep sweep(options, *driver.value(), progress);
  for (const config::ModelConfig& model : options.models) {
    progress << "[" << run.models.size() + run.failures.size() + 1 << "/" << options.models.size()
             << "] " << model.name << '\n'
             << std::flush;
    auto measured = sweep.measure_model(model);
    if (measured.ok()) {
      run.models.emplace(model.name, std::move(measured).value());
      continue;
    }
    const Status failure = measured.status().within(model.name);
    if (failure.code() == StatusCode::cancelled) return failure;
    progress << "  not measured: " << failure.message() << '\n';
    run.failures.push_back(failure);
  }
  run.libtorch = sweep.libtorch();
  return run;
}

}  // namespace gpulet::tools

#include "tools/measure/measurement_quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <fstream>
#include <iterator>
#include <limits>
#include <mutex>
#include <numeric>
#include <sstream>
#include <thread>
#include <utility>

#include "gpulet/base/percentile.h"
#include "gpulet/gpu/nvml.h"

namespace gpulet::tools {
namespace {

constexpr std::size_t kFewestBlocks = 3;
constexpr double kConfidence = 1.57;

// Interpolates between the two nearest values. REQUIRES: not empty.
double quantile(const std::vector<double>& sorted, double fraction) {
  const double at = fraction * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], at - static_cast<double>(below));
}

using profile::Doubt;
using profile::LatencySample;

// The most that the cell may take next to `other`, in proportion to batch and share.
double allowed_ms(const LatencySample& cell, const LatencySample& other) {
  const double batches = static_cast<double>(cell.batch) / other.batch;
  const double shares = static_cast<double>(other.share.percent) / cell.share.percent;
  return other.latency_ms * std::max(1.0, batches) * std::max(1.0, shares);
}

// The least that the nearest neighbours on both sides allow. `on_line` selects the cells of a row
// or column, `order` their position in it.
template <typename OnLine, typename Order>
double least_allowed_ms(const std::vector<LatencySample>& samples, const LatencySample& cell,
                        OnLine on_line, Order order) {
  const LatencySample* below = nullptr;
  const LatencySample* above = nullptr;
  for (const LatencySample& one : samples) {
    if (!on_line(one)) continue;
    if (order(one) < order(cell) && (below == nullptr || order(one) > order(*below))) below = &one;
    if (order(one) > order(cell) && (above == nullptr || order(one) < order(*above))) above = &one;
  }
  double least = std::numeric_limits<double>::infinity();
  if (below != nullptr) least = std::min(least, allowed_ms(cell, *below));
  if (above != nullptr) least = std::min(least, allowed_ms(cell, *above));
  return least;
}

constexpr std::uint64_t kFewestTicks = 25;  // per core: rounding then adds at most 4 %

struct CoreTicks {
  std::uint32_t core = 0;
  std::uint64_t all = 0;
  std::uint64_t used = 0;
  std::uint64_t stolen = 0;
};

// Parses "cpu3 user nice system idle iowait irq softirq steal guest guest_nice"; the time of guests
// is part of user and nice. Empty for other lines.
std::optional<CoreTicks> parse_core(const std::string& line) {
  constexpr std::size_t kIdle = 3;
  constexpr std::size_t kWaiting = 4;
  constexpr std::size_t kStolen = 7;
  std::istringstream fields(line);
  std::string name;
  std::array<std::uint64_t, 8> ticks{};
  fields >> name;
  for (std::uint64_t& count : ticks) fields >> count;
  if (!fields || !name.starts_with("cpu") || name.size() == 3) return std::nullopt;
  CoreTicks core;
  std::istringstream number(name.substr(3));
  if (!(number >> core.core)) return std::nullopt;
  for (const std::uint64_t count : ticks) core.all += count;
  core.stolen = ticks[kStolen];
  core.used = core.all - ticks[kIdle] - ticks[kWaiting] - core.stolen;
  return core;
}

// The time of all threads of the process in user and kernel mode, ended threads included. The name
// of the program before it may contain anything.
std::optional<std::uint64_t> ticks_of_process(const std::filesystem::path& file) {
  constexpr int kSkippedFields = 11;  // between the name and utime
  std::ifstream stream(file);
  const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const std::size_t name_ends = text.rfind(')');
  if (name_ends == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_ends + 1));
  std::string skipped;
  for (int i = 0; i < kSkippedFields; ++i) fields >> skipped;
  std::uint64_t user = 0;
  std::uint64_t system = 0;
  if (!(fields >> user >> system)) return std::nullopt;
  return user + system;
}

}  // namespace

void SustainedTime::add(Duration interval) {
  intervals_ms_.push_back(to_ms(interval));
  total_ += interval;
  open_block_ += interval;
  ++open_batches_;
  if (open_block_ < block_) return;
  blocks_ms_.push_back(to_ms(open_block_) / open_batches_);
  open_block_ = {};
  open_batches_ = 0;
}

std::vector<double> SustainedTime::sorted_blocks() const {
  std::vector<double> sorted = blocks_ms_;
  // All intervals together are shorter than a block.
  if (sorted.empty()) sorted.push_back(to_ms(open_block_) / open_batches_);
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

double SustainedTime::median_ms() const { return quantile(sorted_blocks(), 0.5); }

double SustainedTime::p99_ms() const { return percentile(intervals_ms_, 99).value(); }

double SustainedTime::cv() const {
  if (blocks_ms_.size() < 2) return 0;
  const auto blocks = static_cast<double>(blocks_ms_.size());
  const double mean = std::accumulate(blocks_ms_.begin(), blocks_ms_.end(), 0.0) / blocks;
  double squares = 0;
  for (const double block : blocks_ms_) squares += (block - mean) * (block - mean);
  const double batches_per_block =
      static_cast<double>(intervals_ms_.size() - static_cast<std::size_t>(open_batches_)) / blocks;
  return std::sqrt(squares / (blocks - 1) * batches_per_block) / mean;
}

double SustainedTime::spread() const {
  if (blocks_ms_.size() < kFewestBlocks) return std::numeric_limits<double>::infinity();
  const std::vector<double> sorted = sorted_blocks();
  const double range = quantile(sorted, 0.75) - quantile(sorted, 0.25);
  return kConfidence * range / std::sqrt(static_cast<double>(sorted.size())) /
         quantile(sorted, 0.5);
}

double excess_over_neighbours(const std::vector<LatencySample>& samples, std::size_t cell) {
  const LatencySample& one = samples.at(cell);
  const double by_batch = least_allowed_ms(
      samples, one, [&one](const LatencySample& other) { return other.share == one.share; },
      [](const LatencySample& other) { return other.batch; });
  const double by_size = least_allowed_ms(
      samples, one, [&one](const LatencySample& other) { return other.batch == one.batch; },
      [](const LatencySample& other) { return other.share; });
  return one.latency_ms / std::min(by_batch, by_size);
}

void doubt_by_neighbours(std::vector<LatencySample>& samples) {
  for (std::size_t cell = 0; cell < samples.size(); ++cell) {
    if (samples[cell].doubt == Doubt::none &&
        excess_over_neighbours(samples, cell) > kDoubtfulExcess)
      samples[cell].doubt = Doubt::neighbours;
  }
}

LatencySample better_of(const LatencySample& a, const LatencySample& b) {
  const bool a_is_sure = a.doubt == Doubt::none;
  const bool b_is_sure = b.doubt == Doubt::none;
  if (a_is_sure != b_is_sure) return a_is_sure ? a : b;
  return b.latency_ms < a.latency_ms ? b : a;
}

CoreAvoidance::CoreAvoidance(const std::vector<std::uint32_t>& cores) {
  if (cores.empty() || ::sched_getaffinity(0, sizeof before_, &before_) != 0) return;
  cpu_set_t others = before_;
  for (const std::uint32_t core : cores) {
    if (core < CPU_SETSIZE) CPU_CLR(core, &others);
  }
  active_ = CPU_COUNT(&others) > 0 && ::sched_setaffinity(0, sizeof others, &others) == 0;
}

CoreAvoidance::~CoreAvoidance() {
  if (active_) static_cast<void>(::sched_setaffinity(0, sizeof before_, &before_));
}

CoreUsageMonitor::CoreUsageMonitor(std::vector<std::uint32_t> cores, bool shared,
                                   std::filesystem::path proc)
    : cores_(std::move(cores)), shared_(shared), proc_(std::move(proc)) {}

std::optional<CoreUsageMonitor::Ticks> CoreUsageMonitor::read() const {
  if (cores_.empty()) return std::nullopt;
  Ticks ticks;
  std::ifstream stream(proc_ / "stat");
  std::size_t found = 0;
  for (std::string line; std::getline(stream, line);) {
    const std::optional<CoreTicks> core = parse_core(line);
    if (!core || std::find(cores_.begin(), cores_.end(), core->core) == cores_.end()) continue;
    ticks.all += core->all;
    ticks.used += core->used;
    ticks.stolen += core->stolen;
    ++found;
  }
  const auto measured = ticks_of_process(proc_ / std::to_string(process_) / "stat");
  const auto measuring = ticks_of_process(proc_ / "self" / "stat");
  if (found != cores_.size() || !measured || !measuring) return std::nullopt;
  ticks.own = *measured + (shared_ ? *measuring : 0);
  return ticks;
}

void CoreUsageMonitor::start(pid_t process) {
  process_ = process;
  before_ = read();
}

std::optional<double> CoreUsageMonitor::used_by_others() const {
  const std::optional<Ticks> now = read();
  if (!before_ || !now || now->all < before_->all + kFewestTicks * cores_.size())
    return std::nullopt;
  const auto since = [&](std::uint64_t Ticks::*count) {
    return static_cast<double>((*now).*count) - static_cast<double>((*before_).*count);
  };
  const double others = std::max(0.0, since(&Ticks::used) - since(&Ticks::own));
  return (others + since(&Ticks::stolen)) / since(&Ticks::all);
}

constexpr auto kSamplingInterval = std::chrono::milliseconds(50);

class GpuClockMonitor::Impl {
 public:
  explicit Impl(std::string uuid)
      : uuid_(std::move(uuid)), nvml_(gpu::Nvml::load()), thread_([this] { run(); }) {}
  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void set_sampling(bool sampling) {
    {
      const std::lock_guard lock(mutex_);
      // At least one sample, however short the interval was: the clocks have not fallen yet.
      if (sampling_ && !sampling) sample();
      sampling_ = sampling;
    }
    changed_.notify_all();
  }

  [[nodiscard]] profile::Provenance observed() const {
    const std::lock_guard lock(mutex_);
    if (!sm_mhz_) return {};
    return {{"sm_clock_mhz", sm_mhz_->text()}, {"memory_clock_mhz", memory_mhz_->text()}};
  }

 private:
  struct Range {
    std::uint32_t lowest;
    std::uint32_t highest;

    void include(std::uint32_t value) {
      lowest = std::min(lowest, value);
      highest = std::max(highest, value);
    }
    [[nodiscard]] std::string text() const {
      return highest > lowest ? fmt::format("{}-{}", lowest, highest) : std::to_string(lowest);
    }
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return sampling_ || stopping_; });
      if (stopping_) return;
      sample();
      changed_.wait_for(lock, kSamplingInterval, [this] { return !sampling_ || stopping_; });
    }
  }

  // REQUIRES: the mutex is held.
  void sample() {
    if (!nvml_.ok()) return;
    const auto clocks = nvml_.value().clocks(uuid_);
    if (!clocks.ok()) return;
    const auto [sm_mhz, memory_mhz] = clocks.value();
    if (!sm_mhz_) {
      sm_mhz_ = Range{sm_mhz, sm_mhz};
      memory_mhz_ = Range{memory_mhz, memory_mhz};
    }
    sm_mhz_->include(sm_mhz);
    memory_mhz_->include(memory_mhz);
  }

  const std::string uuid_;
  mutable std::mutex mutex_;  // guards the members below except the thread
  const Result<gpu::Nvml> nvml_;
  std::condition_variable changed_;
  bool sampling_ = false;
  bool stopping_ = false;
  std::optional<Range> sm_mhz_;
  std::optional<Range> memory_mhz_;  // set together with sm_mhz_
  std::thread thread_;               // last: uses the members above
};

GpuClockMonitor::GpuClockMonitor(std::string gpu_uuid)
    : impl_(std::make_unique<Impl>(std::move(gpu_uuid))) {}
GpuClockMonitor::~GpuClockMonitor() = default;
profile::Provenance GpuClockMonitor::observed() const { return impl_->observed(); }

GpuClockMonitor::Sampling::Sampling(GpuClockMonitor* monitor) : monitor_(monitor) {
  if (monitor_ != nullptr) monitor_->impl_->set_sampling(true);
}
GpuClockMonitor::Sampling::~Sampling() {
  if (monitor_ != nullptr) monitor_->impl_->set_sampling(false);
}

}  // namespace gpulet::tools

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "gpulet/partition/drivers/drivers.h"
#include "partition/drivers/cgroup.h"
#include "partition/drivers/process_control.h"

namespace gpulet::partition {
namespace {

// The common part of both mechanisms: the grants and their shares of the cores.
class CpuQuotaDriver : public PartitionDriver {
 public:
  explicit CpuQuotaDriver(std::vector<std::uint32_t> cores) : cores_(std::move(cores)) {}

  [[nodiscard]] Result<Grant> grant(const Claim& claim) final {
    if (Status right = check_claim(claim, granted_.contains(claim.gpulet)); !right.ok())
      return right;
    auto reserved = reserve(claim);
    if (!reserved.ok()) return reserved;
    granted_.emplace(claim.gpulet, Held{.cores = cores_of(claim.share)});
    return Grant{environment_of(claim), claim.adjustable};
  }

  [[nodiscard]] Status attach(GpuletId gpulet, pid_t process) final {
    if (!granted_.contains(gpulet)) return unknown(gpulet);
    auto held = limit_loosely(gpulet, process);
    if (held.ok()) granted_.at(gpulet).process = process;
    return held;
  }

  [[nodiscard]] Status activate(GpuletId gpulet) final {
    const auto found = granted_.find(gpulet);
    if (found == granted_.end()) return unknown(gpulet);
    auto held = bind_to_cores(found->second.process, cores_);
    if (held.ok()) held = enforce(gpulet, found->second.cores);
    if (held.ok()) found->second.active = true;
    return held;
  }

  [[nodiscard]] Status adjust(GpuletId gpulet, double cores) final {
    const auto found = granted_.find(gpulet);
    if (found == granted_.end()) return unknown(gpulet);
    if (!(cores > 0 && cores <= all_cores())) {  // also rejects NaN
      return {
          StatusCode::invalid,
          fmt::format("{} can have above 0 and up to {} cores, the cores of its device; was {:f}",
                      name_of(gpulet), cores_.size(), cores)};
    }
    auto changed = found->second.active ? change(gpulet, cores) : Status();
    if (changed.ok()) found->second.cores = cores;
    return changed;
  }

  void release(GpuletId gpulet) final {
    if (granted_.erase(gpulet) > 0) forget(gpulet);
  }

 protected:
  struct Held {
    double cores = 0;
    pid_t process = 0;  // once attached
    bool active = false;
  };

  [[nodiscard]] virtual Status reserve(const Claim& claim) = 0;
  [[nodiscard]] virtual Status limit_loosely(GpuletId gpulet, pid_t process) = 0;
  [[nodiscard]] virtual Status enforce(GpuletId gpulet, double cores) = 0;
  // Changes an enforced limit.
  [[nodiscard]] virtual Status change(GpuletId gpulet, double cores) = 0;
  virtual void forget(GpuletId gpulet) = 0;

  [[nodiscard]] double all_cores() const { return static_cast<double>(cores_.size()); }
  [[nodiscard]] const std::map<GpuletId, Held>& granted() const { return granted_; }

 private:
  [[nodiscard]] static Status unknown(GpuletId gpulet) {
    return {StatusCode::internal, name_of(gpulet) + " has no share on this device"};
  }

  [[nodiscard]] double cores_of(Share share) const { return share.fraction() * all_cores(); }

  [[nodiscard]] std::map<std::string, std::string> environment_of(const Claim& claim) const {
    const double cores = claim.adjustable ? all_cores() : cores_of(claim.share);
    const auto threads = std::to_string(std::max(1, static_cast<int>(cores + 1e-9)));
    std::map<std::string, std::string> environment{{"OMP_NUM_THREADS", threads},
                                                   {"OPENBLAS_NUM_THREADS", threads},
                                                   {"MKL_NUM_THREADS", threads}};
    if (claim.adjustable) {
      // Idle threads sleep: for any OpenMP library, for GCC's and LLVM's, and for OpenBLAS, whose
      // threads otherwise spin for tens of milliseconds (2^4 ticks are the minimum).
      environment.insert({{"OMP_WAIT_POLICY", "PASSIVE"},
                          {"GOMP_SPINCOUNT", "0"},
                          {"KMP_BLOCKTIME", "0"},
                          {"OPENBLAS_THREAD_TIMEOUT", "4"}});
    }
    return environment;
  }

  const std::vector<std::uint32_t> cores_;
  std::map<GpuletId, Held> granted_;
};

class CgroupDriver final : public CpuQuotaDriver {
 public:
  // Without `memory`, `limits` is not used.
  CgroupDriver(std::vector<std::uint32_t> cores, CpuCgroups cgroups, MemoryLimits limits,
               std::optional<MemoryCgroups> memory, CpuPriority priority)
      : CpuQuotaDriver(std::move(cores)),
        cgroups_(std::move(cgroups)),
        served_weight_(priority == CpuPriority::low ? CpuWeight::low : CpuWeight::normal),
        limits_(limits),
        memory_(std::move(memory)) {}
  ~CgroupDriver() override {
    for (const auto& [gpulet, held] : granted()) removing_.insert(gpulet);
    remove_emptied();
  }
  CgroupDriver(const CgroupDriver&) = delete;
  CgroupDriver& operator=(const CgroupDriver&) = delete;

  [[nodiscard]] std::string mechanism() const override {
    return cgroups_.version() == CgroupVersion::v2 ? "cgroup v2" : "cgroup v1";
  }
  [[nodiscard]] FailureCause blame() const override { return FailureCause::node_cgroup; }
  [[nodiscard]] Traits traits() const override { return {.limits_memory = memory_.has_value()}; }
  [[nodiscard]] OutOfMemory out_of_memory(GpuletId gpulet) const override {
    return memory_ ? memory_->out_of_memory(gpulet) : OutOfMemory::no;
  }

 private:
  [[nodiscard]] Status reserve(const Claim& claim) override {
    remove_emptied();
    auto made = cgroups_.create(claim.gpulet);
    const auto limit = memory_limit(limits_, claim.memory_bytes);
    if (!made.ok() || !memory_ || limit == 0) return made;
    made = memory_->create(claim.gpulet, limit);
    if (!made.ok()) forget(claim.gpulet);
    return made;
  }
  [[nodiscard]] Status limit_loosely(GpuletId gpulet, pid_t process) override {
    auto held = cgroups_.limit(gpulet, bandwidth_of(all_cores()));
    if (held.ok()) held = cgroups_.weigh(gpulet, CpuWeight::low);
    if (held.ok()) held = cgroups_.add(gpulet, process);
    return held.ok() && memory_ ? memory_->add(gpulet, process) : held;
  }
  [[nodiscard]] Status enforce(GpuletId gpulet, double cores) override {
    auto held = cgroups_.limit(gpulet, bandwidth_of(cores));
    return held.ok() ? cgroups_.weigh(gpulet, served_weight_) : held;
  }
  [[nodiscard]] Status change(GpuletId gpulet, double cores) override {
    return cgroups_.limit(gpulet, bandwidth_of(cores));
  }
  void forget(GpuletId gpulet) override {
    removing_.insert(gpulet);
    remove_emptied();
  }

  // The kernel may count an exited process a little longer; retries busy cgroups.
  void remove_emptied() {
    std::erase_if(removing_, [this](GpuletId gpulet) {
      const bool gone = !memory_ || memory_->remove(gpulet);
      return cgroups_.remove(gpulet) && gone;
    });
  }

  CpuCgroups cgroups_;
  const CpuWeight served_weight_;
  const MemoryLimits limits_;
  std::optional<MemoryCgroups> memory_;
  std::set<GpuletId> removing_;
};

class PacingDriver final : public CpuQuotaDriver {
 public:
  using CpuQuotaDriver::CpuQuotaDriver;

  [[nodiscard]] std::string mechanism() const override { return "pacing"; }

 private:
  [[nodiscard]] Status reserve(const Claim& /*claim*/) override { return {}; }
  // A lowered priority cannot be raised again without privileges. So a loading process is limited
  // to the time that the serving ones leave.
  [[nodiscard]] Status limit_loosely(GpuletId gpulet, pid_t process) override {
    double left = all_cores();
    for (const auto& [id, held] : granted()) left -= held.active ? held.cores : 0;
    return pacer_.add(gpulet, process, std::max(granted().at(gpulet).cores, left));
  }
  [[nodiscard]] Status enforce(GpuletId gpulet, double cores) override {
    return change(gpulet, cores);
  }
  [[nodiscard]] Status change(GpuletId gpulet, double cores) override {
    pacer_.set(gpulet, cores);
    return {};
  }
  void forget(GpuletId gpulet) override { pacer_.remove(gpulet); }

  Pacer pacer_;
};

Status check_cores(const std::vector<std::uint32_t>& cores) {
  if (cores.empty()) {
    return {StatusCode::invalid, "a cpu_quota device needs cores; list them in \"cores\""};
  }
  const auto usable = usable_cores();
  for (const auto core : cores) {
    if (!std::binary_search(usable.begin(), usable.end(), core)) {
      return {
          StatusCode::invalid,
          fmt::format("core {} is not usable by this process (it may use {} cores, the first is "
                      "{}); correct \"cores\"",
                      core, usable.size(), usable.empty() ? 0 : usable.front())};
    }
  }
  return {};
}

}  // namespace

std::uint64_t memory_limit(const MemoryLimits& limits, std::uint64_t needed_bytes) {
  if (needed_bytes == 0) return limits.device_bytes;
  const auto times = static_cast<std::uint64_t>(limits.factor * static_cast<double>(needed_bytes));
  const auto limit = std::max(times, limits.floor_bytes);
  return limits.device_bytes > 0 ? std::min(limit, limits.device_bytes) : limit;
}

std::vector<std::uint32_t> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<std::uint32_t> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (std::uint32_t core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

Result<std::unique_ptr<PartitionDriver>> make_cpu_quota_driver(std::vector<std::uint32_t> cores,
                                                               CpuMechanism mechanism,
                                                               std::optional<MemoryLimits> limits,
                                                               CpuPriority priority) {
  auto checked = check_cores(cores);
  if (!checked.ok()) return checked;
  if (mechanism != CpuMechanism::pacing) {
    auto cgroups = CpuCgroups::open(limits.has_value());
    if (cgroups.ok()) {
      std::optional<MemoryCgroups> memory;
      if (limits) {
        auto opened = MemoryCgroups::open(cgroups.value());
        if (opened.ok()) memory = std::move(opened).value();
      }
      return std::unique_ptr<PartitionDriver>(std::make_unique<CgroupDriver>(
          std::move(cores), std::move(cgroups).value(), limits.value_or(MemoryLimits{}),
          std::move(memory), priority));
    }
    if (mechanism == CpuMechanism::cgroup) return cgroups.status();
  }
  return std::unique_ptr<PartitionDriver>(std::make_unique<PacingDriver>(std::move(cores)));
}

}  // namespace gpulet::partition

#include "gpulet/partition/drivers/cpu_quota.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "partition/drivers/affinity.h"
#include "partition/drivers/cgroup.h"
#include "partition/drivers/pacing.h"

namespace gpulet::partition {
namespace {

std::string name_of(GpuletId gpulet) { return "gpulet " + std::to_string(gpulet.value); }

// What both mechanisms have in common: who has which share of the device's cores.
class CpuQuotaDriver : public PartitionDriver {
 public:
  explicit CpuQuotaDriver(std::vector<std::uint32_t> cores) : cores_(std::move(cores)) {}

  [[nodiscard]] Result<Grant> grant(const Claim& claim) final {
    if (!claim.share.valid()) {
      return Status(StatusCode::invalid, "a gpulet's share must be 1..100 %; was " +
                                             std::to_string(claim.share.percent));
    }
    if (granted_.contains(claim.gpulet)) {
      return Status(StatusCode::internal, name_of(claim.gpulet) + " has a share already");
    }
    auto reserved = reserve(claim.gpulet);
    if (!reserved.ok()) return reserved;
    granted_.emplace(claim.gpulet, Held{.share = claim.share});
    return Grant{environment_of(claim.share)};
  }

  [[nodiscard]] Status attach(GpuletId gpulet, pid_t process) final {
    if (!granted_.contains(gpulet)) return unknown(gpulet);
    auto held = hold_loosely(gpulet, process);
    if (held.ok()) granted_.at(gpulet).process = process;
    return held;
  }

  [[nodiscard]] Status activate(GpuletId gpulet) final {
    const auto found = granted_.find(gpulet);
    if (found == granted_.end()) return unknown(gpulet);
    auto held = bind_to_cores(found->second.process, cores_);
    if (held.ok()) held = hold_firmly(gpulet, cores_of(found->second.share));
    if (held.ok()) found->second.active = true;
    return held;
  }

  void release(GpuletId gpulet) final {
    if (granted_.erase(gpulet) > 0) let_go(gpulet);
  }

 protected:
  struct Held {
    Share share;
    pid_t process = 0;  // once attached
    bool active = false;
  };

  [[nodiscard]] virtual Status reserve(GpuletId gpulet) = 0;
  [[nodiscard]] virtual Status hold_loosely(GpuletId gpulet, pid_t process) = 0;
  [[nodiscard]] virtual Status hold_firmly(GpuletId gpulet, double cores) = 0;
  virtual void let_go(GpuletId gpulet) = 0;

  [[nodiscard]] double cores_of(Share share) const {
    return share.fraction() * static_cast<double>(cores_.size());
  }
  [[nodiscard]] const std::map<GpuletId, Held>& granted() const { return granted_; }

 private:
  [[nodiscard]] static Status unknown(GpuletId gpulet) {
    return {StatusCode::internal, name_of(gpulet) + " has no share on this device"};
  }

  [[nodiscard]] std::map<std::string, std::string> environment_of(Share share) const {
    const auto whole_cores = std::max(1, static_cast<int>(cores_of(share) + 1e-9));
    const auto threads = std::to_string(whole_cores);
    return {{"OMP_NUM_THREADS", threads},
            {"OPENBLAS_NUM_THREADS", threads},
            {"MKL_NUM_THREADS", threads}};
  }

  const std::vector<std::uint32_t> cores_;
  std::map<GpuletId, Held> granted_;
};

class CgroupDriver final : public CpuQuotaDriver {
 public:
  CgroupDriver(std::vector<std::uint32_t> cores, CpuCgroups cgroups)
      : CpuQuotaDriver(std::move(cores)), cgroups_(std::move(cgroups)) {}
  ~CgroupDriver() override {
    for (const auto& [gpulet, held] : granted()) static_cast<void>(cgroups_.remove(gpulet));
    remove_emptied();
  }
  CgroupDriver(const CgroupDriver&) = delete;
  CgroupDriver& operator=(const CgroupDriver&) = delete;

  [[nodiscard]] std::string mechanism() const override {
    return cgroups_.version() == CgroupVersion::v2 ? "cgroup v2" : "cgroup v1";
  }

 private:
  [[nodiscard]] Status reserve(GpuletId gpulet) override {
    remove_emptied();
    return cgroups_.create(gpulet);
  }
  [[nodiscard]] Status hold_loosely(GpuletId gpulet, pid_t process) override {
    auto set = cgroups_.set(gpulet, bandwidth_of(cores_of(kWholeDevice)), CpuWeight::low);
    return set.ok() ? cgroups_.add(gpulet, process) : set;
  }
  [[nodiscard]] Status hold_firmly(GpuletId gpulet, double cores) override {
    return cgroups_.set(gpulet, bandwidth_of(cores), CpuWeight::normal);
  }
  void let_go(GpuletId gpulet) override {
    removing_.insert(gpulet);
    remove_emptied();
  }

  // The kernel may count a process a moment longer than its parent: what was busy is tried again.
  void remove_emptied() {
    std::erase_if(removing_, [this](GpuletId gpulet) { return cgroups_.remove(gpulet); });
  }

  CpuCgroups cgroups_;
  std::set<GpuletId> removing_;
};

class PacingDriver final : public CpuQuotaDriver {
 public:
  using CpuQuotaDriver::CpuQuotaDriver;

  [[nodiscard]] std::string mechanism() const override { return "pacing"; }

 private:
  [[nodiscard]] Status reserve(GpuletId /*gpulet*/) override { return {}; }
  // Without privileges a priority cannot be raised again once lowered, so loading is bounded by
  // what serving leaves.
  [[nodiscard]] Status hold_loosely(GpuletId gpulet, pid_t process) override {
    int serving = 0;
    for (const auto& [id, held] : granted()) serving += held.active ? held.share.percent : 0;
    const Share left{std::max(granted().at(gpulet).share.percent, 100 - serving)};
    return pacer_.add(gpulet, process, cores_of(left));
  }
  [[nodiscard]] Status hold_firmly(GpuletId gpulet, double cores) override {
    pacer_.set(gpulet, cores);
    return {};
  }
  void let_go(GpuletId gpulet) override { pacer_.remove(gpulet); }

  Pacer pacer_;
};

Status check_cores(const std::vector<std::uint32_t>& cores) {
  if (cores.empty()) {
    return {StatusCode::invalid, "a cpu_quota device needs cores; name some in \"cores\""};
  }
  const auto usable = usable_cores();
  for (const auto core : cores) {
    if (!std::binary_search(usable.begin(), usable.end(), core)) {
      return {StatusCode::invalid, "core " + std::to_string(core) +
                                       " is not one that this process may use (it may use " +
                                       std::to_string(usable.size()) + " cores, the first is " +
                                       std::to_string(usable.empty() ? 0 : usable.front()) +
                                       "); correct \"cores\""};
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<PartitionDriver>> make_cpu_quota_driver(std::vector<std::uint32_t> cores,
                                                               CpuMechanism mechanism) {
  auto checked = check_cores(cores);
  if (!checked.ok()) return checked;
  if (mechanism != CpuMechanism::pacing) {
    auto cgroups = CpuCgroups::open();
    if (cgroups.ok()) {
      return std::unique_ptr<PartitionDriver>(
          std::make_unique<CgroupDriver>(std::move(cores), std::move(cgroups).value()));
    }
    if (mechanism == CpuMechanism::cgroup) return cgroups.status();
  }
  return std::unique_ptr<PartitionDriver>(std::make_unique<PacingDriver>(std::move(cores)));
}

}  // namespace gpulet::partition

#include <fmt/format.h>
#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/core/ids.h"
#include "gpulet/gpu/cuda_driver.h"
#include "gpulet/partition/drivers/drivers.h"
#include "gpulet/partition/mig_geometry.h"
#include "partition/drivers/mps.h"

namespace gpulet::partition {
namespace {

using namespace std::chrono_literals;

constexpr auto kRetryInterval = 200ms;
constexpr auto kRefreshInterval = 5s;  // to notice changes by other programs
constexpr auto kForgetAfter = 5s;      // requests that are not repeated

// MigSupervisor: the instances of one GPU, their gpulets, and the thread that creates and destroys
// instances. Its methods do not block; one thread calls them.
//
// acquire() requests an instance that does not exist. The thread then makes room for it, creates it
// and, where several processes share it, starts its MPS daemon. It retries a failed request for as
// long as acquire() is repeated.
class MigSupervisor {
 public:
  struct Held {
    gpu::MigDeviceInstance instance;
    std::map<std::string, std::string> daemon{};  // environment of its MPS daemon; empty: none
  };

  MigSupervisor(gpu::MigDevice device, std::vector<gpu::MigDeviceInstance> there, MigGpu gpu,
                MpsOptions mps);
  ~MigSupervisor();
  MigSupervisor(const MigSupervisor&) = delete;
  MigSupervisor& operator=(const MigSupervisor&) = delete;

  // Fails with unavailable (the instance is being created, is full, or other instances block it) or
  // internal (NVML's message). REQUIRES: the instance exists in the geometry.
  [[nodiscard]] Result<Held> acquire(GpuletId gpulet, const MigInstance& instance);
  void release(GpuletId gpulet);
  // No request is pending, and all MPS daemons are ready.
  [[nodiscard]] bool ready() const;
  // As PartitionDriver::end.
  [[nodiscard]] bool end(GpuletId gpulet, pid_t process);

 private:
  using Clock = std::chrono::steady_clock;
  struct Holder {
    MigInstance instance;
    std::string uuid;
  };
  struct Request {
    Clock::time_point requested;  // last time
    Status refusal;               // of the last attempt
  };

  // REQUIRES: the mutex is locked.
  [[nodiscard]] Status check_capacity(const MigInstance& instance) const;
  [[nodiscard]] const gpu::MigDeviceInstance* find(const MigInstance& instance) const;
  [[nodiscard]] bool blocks(const gpu::MigDeviceInstance& there, const MigInstance& instance) const;
  void record_result(const MigInstance& instance, Status how);

  // On the thread. REQUIRES: the mutex is not locked.
  void run();
  [[nodiscard]] Status create_instance(const MigInstance& instance);
  [[nodiscard]] Status refresh();
  [[nodiscard]] Status make_room(const MigInstance& instance);
  [[nodiscard]] Status start_daemon(const MigInstance& instance);

  const MigGpu gpu_;
  const MpsOptions mps_;
  const gpu::MigDevice device_;  // used by thread_ only
  mutable std::mutex mutex_;     // guards the members below, except the thread
  std::condition_variable changed_;
  std::vector<gpu::MigDeviceInstance> instances_;
  std::map<GpuletId, Holder> holders_;
  std::map<MigInstance, Request> requests_;
  std::map<MigInstance, Status> failed_;                           // until it is requested again
  std::map<std::string, std::shared_ptr<MpsSupervisor>> daemons_;  // by UUID of the instance
  bool stopping_ = false;
  std::thread thread_;  // last: it uses the members above
};

MigSupervisor::MigSupervisor(gpu::MigDevice device, std::vector<gpu::MigDeviceInstance> there,
                             MigGpu gpu, MpsOptions mps)
    : gpu_(std::move(gpu)),
      mps_(std::move(mps)),
      device_(std::move(device)),
      instances_(std::move(there)) {
  thread_ = std::thread([this] { run(); });
}

MigSupervisor::~MigSupervisor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Result<MigSupervisor::Held> MigSupervisor::acquire(GpuletId gpulet, const MigInstance& instance) {
  const std::lock_guard lock(mutex_);
  if (holders_.contains(gpulet))
    return Status(StatusCode::internal, name_of(gpulet) + " has an instance already");
  if (Status room = check_capacity(instance); !room.ok()) return room;
  const gpu::MigDeviceInstance* const there = find(instance);
  const bool shared = gpu_.processes_per_instance > 1;
  const auto daemon = there != nullptr ? daemons_.find(there->uuid) : daemons_.end();
  if (there != nullptr && (!shared || daemon != daemons_.end())) {
    Held held{*there};
    if (shared) {
      if (Status ready = daemon->second->ready(); !ready.ok()) return ready;
      held.daemon = daemon->second->environment();
    }
    holders_[gpulet] = {instance, there->uuid};
    requests_.erase(instance);
    failed_.erase(instance);
    return held;
  }
  if (const auto failed = failed_.extract(instance)) return failed.mapped();
  Request& request = requests_[instance];
  request.requested = Clock::now();
  changed_.notify_all();
  if (!request.refusal.ok()) return request.refusal;
  return Status(StatusCode::unavailable,
                fmt::format("{} of {} is being created", to_string(instance), gpu_.uuid));
}

void MigSupervisor::release(GpuletId gpulet) {
  const std::lock_guard lock(mutex_);
  holders_.erase(gpulet);
}

bool MigSupervisor::ready() const {
  const std::lock_guard lock(mutex_);
  return requests_.empty() && std::all_of(daemons_.begin(), daemons_.end(), [](const auto& daemon) {
           return daemon.second->ready().ok();
         });
}

bool MigSupervisor::end(GpuletId gpulet, pid_t process) {
  std::shared_ptr<MpsSupervisor> daemon;
  {
    const std::lock_guard lock(mutex_);
    const auto holder = holders_.find(gpulet);
    if (holder == holders_.end()) return false;
    const auto found = daemons_.find(holder->second.uuid);
    if (found == daemons_.end()) return false;
    daemon = found->second;
  }
  return daemon->end(process);
}

Status MigSupervisor::check_capacity(const MigInstance& instance) const {
  std::uint32_t processes = 0;
  for (const auto& [gpulet, holder] : holders_) {
    const MigInstance& other = holder.instance;
    if (other == instance) {
      ++processes;
    } else if (!gpu_.geometry.compatible(other, instance)) {
      return {StatusCode::unavailable,
              fmt::format("{} of {} is blocked by {}, which {} uses", to_string(instance),
                          gpu_.uuid, to_string(other), name_of(gpulet))};
    }
  }
  if (processes < gpu_.processes_per_instance) return {};
  return {StatusCode::unavailable,
          fmt::format("{} of {} has {} {}, the maximum", to_string(instance), gpu_.uuid, processes,
                      processes == 1 ? "process" : "processes")};
}

// The existing instance, if it is usable.
const gpu::MigDeviceInstance* MigSupervisor::find(const MigInstance& instance) const {
  const std::uint32_t size = gpu_.geometry.find(instance.slices)->memory_slices;
  const auto found = std::find_if(instances_.begin(), instances_.end(), [&](const auto& there) {
    return there.slices == instance.slices && there.start == instance.start &&
           there.memory_slices == size && !there.uuid.empty();
  });
  return found == instances_.end() ? nullptr : &*found;
}

// Also for instances of profiles that the geometry does not know.
bool MigSupervisor::blocks(const gpu::MigDeviceInstance& there, const MigInstance& instance) const {
  const std::uint32_t end = instance.start + gpu_.geometry.find(instance.slices)->memory_slices;
  if (there.start < end && instance.start < there.start + there.memory_slices) return true;
  const MigInstance known{there.slices, there.start};
  return gpu_.geometry.exists(known) && !gpu_.geometry.compatible(known, instance);
}

// Records the result of an attempt to create the instance.
void MigSupervisor::record_result(const MigInstance& instance, Status how) {
  const auto request = requests_.find(instance);
  if (request == requests_.end()) return;
  const bool passes = how.code() == StatusCode::unavailable;
  if (passes && Clock::now() - request->second.requested < kForgetAfter) {
    request->second.refusal = std::move(how);
    return;
  }
  if (!how.ok() && !passes) failed_[instance] = std::move(how);
  requests_.erase(request);
}

void MigSupervisor::run() {
  std::unique_lock lock(mutex_);
  const auto has_new_request = [this] {
    return std::any_of(requests_.begin(), requests_.end(),
                       [](const auto& request) { return request.second.refusal.ok(); });
  };
  while (!stopping_) {
    if (!has_new_request()) {
      // Repeated requests do not shorten the retry interval.
      const auto until = Clock::now() + (requests_.empty() ? Clock::duration(kRefreshInterval)
                                                           : Clock::duration(kRetryInterval));
      changed_.wait_until(lock, until, [&] { return stopping_ || has_new_request(); });
      if (stopping_) return;
    }
    std::vector<MigInstance> instances;
    for (const auto& [instance, request] : requests_) instances.push_back(instance);
    lock.unlock();
    if (instances.empty()) (void)refresh();  // the next request reports a failure
    std::vector<Status> how;
    for (const MigInstance& instance : instances) how.push_back(create_instance(instance));
    lock.lock();
    for (std::size_t i = 0; i < instances.size(); ++i)
      record_result(instances[i], std::move(how[i]));
  }
}

Status MigSupervisor::create_instance(const MigInstance& instance) {
  if (Status seen = refresh(); !seen.ok()) return seen;
  bool there = false;
  {
    const std::lock_guard lock(mutex_);
    there = find(instance) != nullptr;
  }
  if (!there) {
    if (Status room = make_room(instance); !room.ok()) return room;
    const auto made = device_.create(instance.slices, instance.start);
    const Status seen = refresh();
    if (!made.ok()) return made.status();
    if (!seen.ok()) return seen;
  }
  return gpu_.processes_per_instance > 1 ? start_daemon(instance) : Status();
}

Status MigSupervisor::refresh() {
  GPULET_TRY(auto there, device_.instances());
  std::vector<std::shared_ptr<MpsSupervisor>> without_instance;  // destroyed when this returns
  const std::lock_guard lock(mutex_);
  instances_ = std::move(there);
  for (auto daemon = daemons_.begin(); daemon != daemons_.end();) {
    const bool there_still =
        std::any_of(instances_.begin(), instances_.end(),
                    [&](const auto& instance) { return instance.uuid == daemon->first; });
    if (!there_still) without_instance.push_back(std::move(daemon->second));
    daemon = there_still ? std::next(daemon) : daemons_.erase(daemon);
  }
  return {};
}

// Removes the victims from the list first, so that no claim can get one.
Status MigSupervisor::make_room(const MigInstance& instance) {
  std::vector<gpu::MigDeviceInstance> victims;
  std::vector<std::shared_ptr<MpsSupervisor>> daemons;
  {
    const std::lock_guard lock(mutex_);
    if (Status room = check_capacity(instance); !room.ok()) return room;
    const auto kept = std::stable_partition(
        instances_.begin(), instances_.end(),
        [&](const gpu::MigDeviceInstance& there) { return !blocks(there, instance); });
    victims.assign(kept, instances_.end());
    instances_.erase(kept, instances_.end());
    for (const auto& victim : victims) {
      if (auto daemon = daemons_.extract(victim.uuid))
        daemons.push_back(std::move(daemon.mapped()));
    }
  }
  daemons.clear();  // a daemon keeps its instance in use
  for (const auto& victim : victims) {
    const Status destroyed = device_.destroy(victim);
    if (destroyed.ok()) continue;
    (void)refresh();
    return destroyed.within(to_string(instance) + " cannot be created");
  }
  return {};
}

Status MigSupervisor::start_daemon(const MigInstance& instance) {
  std::string uuid;
  {
    const std::lock_guard lock(mutex_);
    const gpu::MigDeviceInstance* const there = find(instance);
    if (there == nullptr || daemons_.contains(there->uuid)) return {};
    uuid = there->uuid;
  }
  auto started = MpsDaemon::start(mps_, uuid);
  if (!started.ok()) return started.status().within(to_string(instance));
  auto supervisor = std::make_shared<MpsSupervisor>(std::move(started).value(), mps_, uuid);
  const std::lock_guard lock(mutex_);
  daemons_[uuid] = std::move(supervisor);
  return {};
}

// An instance must have at least this part of the geometry's memory. Drivers reserve some; a GPU of
// another size has half or twice as much.
constexpr double kLeastMemory = 0.9;

// "1g at 0, 2 over 1 memory slices"
std::string placements_text(const std::string& name, const std::vector<std::uint32_t>& starts,
                            std::uint32_t memory_slices) {
  return fmt::format("{} at {} over {} memory slices", name, fmt::join(starts, ", "),
                     memory_slices);
}

// Fails with invalid and the first difference.
Status check_mig_geometry(const MigGeometry& geometry,
                          const std::vector<gpu::MigProfileInfo>& profiles) {
  for (const MigProfile& expected : geometry.profiles()) {
    const std::string name = mig_profile_name(expected.slices);
    const auto differs = [&geometry](const std::string& how) {
      return Status(
          StatusCode::invalid,
          fmt::format("the GPU has {} in the geometry {}; configure the GPU's own geometry, "
                      "or add it to gpulet",
                      how, geometry.name()));
    };
    const auto found = std::find_if(profiles.begin(), profiles.end(), [&](const auto& profile) {
      return profile.slices == expected.slices;
    });
    if (found == profiles.end()) return differs(fmt::format("no profile {}, which is", name));
    const std::vector<std::uint32_t> starts(expected.starts().begin(), expected.starts().end());
    if (found->starts != starts || found->memory_slices != expected.memory_slices) {
      return differs(placements_text(name, found->starts, found->memory_slices) + ", and " +
                     placements_text(name, starts, expected.memory_slices));
    }
    const double has_mb = static_cast<double>(found->memory_bytes) / kBytesPerMegabyte;
    if (has_mb < kLeastMemory * expected.memory_mb) {
      return differs(fmt::format("a {} with {} MB, and {} MB", name, static_cast<long>(has_mb),
                                 static_cast<long>(expected.memory_mb)));
    }
  }
  return {};
}

class MigDriver final : public PartitionDriver {
 public:
  MigDriver(gpu::MigDevice device, std::vector<gpu::MigDeviceInstance> there, std::uint32_t sms,
            const MigGpu& gpu, const MpsOptions& mps)
      : gpu_(gpu), sms_(sms), supervisor_(std::move(device), std::move(there), gpu, mps) {}

  [[nodiscard]] std::string mechanism() const override { return "mig"; }
  // MPS clients of one instance share its faults; each process reports its own.
  [[nodiscard]] Traits traits() const override {
    return {.step_percent = 100.0 / gpu_.geometry.compute_slices(),
            .change = ChangeOfSize::new_process,
            .fault = FaultReach::process,
            .limits_memory = true};
  }

  [[nodiscard]] Result<Grant> grant(const Claim& claim) override {
    const std::string device = fmt::format("{} ({})", gpu_.uuid, gpu_.geometry.name());
    if (Status right = check_mig_claim(gpu_.geometry, claim, device); !right.ok()) return right;
    GPULET_TRY(const auto held, supervisor_.acquire(claim.gpulet, *claim.instance));
    return Grant{environment_of(claim, held)};
  }

  [[nodiscard]] bool ready() const override { return supervisor_.ready(); }
  [[nodiscard]] bool end(GpuletId gpulet, pid_t process) override {
    return supervisor_.end(gpulet, process);
  }
  void release(GpuletId gpulet) override { supervisor_.release(gpulet); }

 private:
  [[nodiscard]] std::map<std::string, std::string> environment_of(
      const Claim& claim, const MigSupervisor::Held& held) const {
    std::map<std::string, std::string> variables{
        {"CUDA_VISIBLE_DEVICES", held.instance.uuid},
        {kDeviceVariable, "cuda:0"},
        {kExpectedShareVariable, std::to_string(claim.share.percent)},
        {kDeviceSmsVariable, std::to_string(sms_)}};
    if (held.daemon.empty()) {
      variables["CUDA_MPS_PIPE_DIRECTORY"] = gpu::kNoMpsDirectory;
      return variables;
    }
    variables.insert(held.daemon.begin(), held.daemon.end());
    variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = "100";
    const std::uint64_t memory = held.instance.memory_bytes;
    variables[kMpsMemoryVariable] = mps_memory_text(
        mps_memory_limit(claim.memory_bytes, memory, memory / gpu_.processes_per_instance));
    return variables;
  }

  const MigGpu gpu_;
  const std::uint32_t sms_;  // of the largest instance
  MigSupervisor supervisor_;
};

}  // namespace

Status check_mig_claim(const MigGeometry& geometry, const Claim& claim, const std::string& device) {
  const auto invalid = [](std::string why) { return Status(StatusCode::invalid, std::move(why)); };
  if (!claim.instance) {
    return invalid(fmt::format("{} needs a MIG instance for each gpulet; the claim of {} has none",
                               device, name_of(claim.gpulet)));
  }
  const std::string instance = to_string(*claim.instance);
  if (!geometry.exists(*claim.instance))
    return invalid(fmt::format("{} has no instance {}", device, instance));
  const Share share = geometry.share_of(claim.instance->slices);
  if (claim.share == share) return {};
  return invalid(fmt::format("the instance {} is {} % of its device, not {} %", instance,
                             share.percent, claim.share.percent));
}

Result<std::unique_ptr<PartitionDriver>> make_mig_driver(const MigGpu& gpu,
                                                         const std::filesystem::path& nvml,
                                                         const MpsOptions& mps) {
  GPULET_TRY(auto device, gpu::MigDevice::open(gpu.uuid, nvml));
  const auto profiles = device.profiles();
  if (Status alike = check_mig_geometry(gpu.geometry, profiles); !alike.ok())
    return alike.within(gpu.uuid);
  if (gpu.processes_per_instance > 1) {
    const auto control = find_mps_control(mps.control);
    if (!control.ok()) return control.status().within("several processes per instance need MPS");
  }
  GPULET_TRY(auto there, device.instances());
  return std::unique_ptr<PartitionDriver>(std::make_unique<MigDriver>(
      std::move(device), std::move(there), profiles.back().sms, gpu, mps));
}

}  // namespace gpulet::partition

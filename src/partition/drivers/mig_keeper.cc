#include "partition/drivers/mig_keeper.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace gpulet::partition {
namespace {

using namespace std::chrono_literals;

constexpr auto kTryAgainAfter = 200ms;
constexpr auto kLookAfter = 5s;    // whether somebody else has changed what there is
constexpr auto kForgetAfter = 5s;  // what nobody asks for

}  // namespace

MigKeeper::MigKeeper(gpu::MigDevice device, std::vector<gpu::MigDeviceInstance> there, MigGpu gpu,
                     MpsOptions mps)
    : gpu_(std::move(gpu)),
      mps_(std::move(mps)),
      device_(std::move(device)),
      there_(std::move(there)) {
  thread_ = std::thread([this] { run(); });
}

MigKeeper::~MigKeeper() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

// ---- what the driver asks

Result<MigKeeper::Held> MigKeeper::hold(GpuletId gpulet, const MigInstance& instance) {
  const std::lock_guard lock(mutex_);
  if (holders_.contains(gpulet))
    return Status(StatusCode::internal, name_of(gpulet) + " has an instance already");
  if (Status place = place_for(instance); !place.ok()) return place;
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
    wanted_.erase(instance);
    failed_.erase(instance);
    return held;
  }
  if (const auto failed = failed_.extract(instance)) return failed.mapped();
  Wanted& wanted = wanted_[instance];
  wanted.asked = Clock::now();
  changed_.notify_all();
  if (!wanted.refusal.ok()) return wanted.refusal;
  return Status(StatusCode::unavailable,
                to_string(instance) + " of " + gpu_.uuid + " is being made");
}

void MigKeeper::let_go(GpuletId gpulet) {
  const std::lock_guard lock(mutex_);
  holders_.erase(gpulet);
}

bool MigKeeper::ready() const {
  const std::lock_guard lock(mutex_);
  return wanted_.empty() && std::all_of(daemons_.begin(), daemons_.end(), [](const auto& daemon) {
           return daemon.second->ready().ok();
         });
}

bool MigKeeper::end(GpuletId gpulet, pid_t process) {
  std::shared_ptr<MpsKeeper> daemon;
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

// ---- under the mutex

Status MigKeeper::place_for(const MigInstance& instance) const {
  std::uint32_t processes = 0;
  for (const auto& [gpulet, holder] : holders_) {
    const MigInstance& other = holder.instance;
    if (other == instance) {
      ++processes;
    } else if (!gpu_.geometry.compatible(other, instance)) {
      return {StatusCode::unavailable, to_string(instance) + " of " + gpu_.uuid +
                                           " has no place beside " + to_string(other) + ", which " +
                                           name_of(gpulet) + " has"};
    }
  }
  if (processes < gpu_.processes_per_instance) return {};
  return {StatusCode::unavailable,
          to_string(instance) + " of " + gpu_.uuid + " has " + std::to_string(processes) +
              (processes == 1 ? " process" : " processes") + ", and may have no more"};
}

// The one that can be used as it is.
const gpu::MigDeviceInstance* MigKeeper::find(const MigInstance& instance) const {
  const std::uint32_t size = gpu_.geometry.find(instance.slices)->memory_slices;
  const auto found = std::find_if(there_.begin(), there_.end(), [&](const auto& there) {
    return there.slices == instance.slices && there.start == instance.start &&
           there.memory_slices == size && !there.uuid.empty();
  });
  return found == there_.end() ? nullptr : &*found;
}

// Also what the geometry does not know: somebody else's kinds of instances.
bool MigKeeper::in_the_way(const gpu::MigDeviceInstance& there, const MigInstance& instance) const {
  const std::uint32_t end = instance.start + gpu_.geometry.find(instance.slices)->memory_slices;
  if (there.start < end && instance.start < there.start + there.memory_slices) return true;
  const MigInstance known{there.slices, there.start};
  return gpu_.geometry.exists(known) && !gpu_.geometry.compatible(known, instance);
}

// After a try to make it.
void MigKeeper::settle(const MigInstance& instance, Status how) {
  const auto wanted = wanted_.find(instance);
  if (wanted == wanted_.end()) return;
  const bool passes = how.code() == StatusCode::unavailable;
  if (passes && Clock::now() - wanted->second.asked < kForgetAfter) {
    wanted->second.refusal = std::move(how);
    return;
  }
  if (!how.ok() && !passes) failed_[instance] = std::move(how);
  wanted_.erase(wanted);
}

// ---- the thread

void MigKeeper::run() {
  std::unique_lock lock(mutex_);
  while (!leaving_) {
    const bool fresh = std::any_of(wanted_.begin(), wanted_.end(),
                                   [](const auto& wanted) { return wanted.second.refusal.ok(); });
    if (!fresh) {
      // Who asks again for what was refused does not hurry it.
      const auto until = Clock::now() + (wanted_.empty() ? Clock::duration(kLookAfter)
                                                         : Clock::duration(kTryAgainAfter));
      changed_.wait_until(lock, until, [this] {
        return leaving_ || std::any_of(wanted_.begin(), wanted_.end(), [](const auto& wanted) {
                 return wanted.second.refusal.ok();
               });
      });
      if (leaving_) return;
    }
    std::vector<MigInstance> instances;
    for (const auto& [instance, wanted] : wanted_) instances.push_back(instance);
    lock.unlock();
    if (instances.empty()) (void)look();  // what fails here is told to whoever wants something
    std::vector<Status> how;
    for (const MigInstance& instance : instances) how.push_back(make(instance));
    lock.lock();
    for (std::size_t i = 0; i < instances.size(); ++i) settle(instances[i], std::move(how[i]));
  }
}

Status MigKeeper::make(const MigInstance& instance) {
  if (Status seen = look(); !seen.ok()) return seen;
  bool there = false;
  {
    const std::lock_guard lock(mutex_);
    there = find(instance) != nullptr;
  }
  if (!there) {
    if (Status room = make_room(instance); !room.ok()) return room;
    const auto made = device_.create(instance.slices, instance.start);
    const Status seen = look();
    if (!made.ok()) return made.status();
    if (!seen.ok()) return seen;
  }
  return gpu_.processes_per_instance > 1 ? start_daemon(instance) : Status();
}

Status MigKeeper::look() {
  auto there = device_.instances();
  if (!there.ok()) return there.status();
  std::vector<std::shared_ptr<MpsKeeper>> without_instance;  // ended when this returns
  const std::lock_guard lock(mutex_);
  there_ = std::move(there).value();
  for (auto daemon = daemons_.begin(); daemon != daemons_.end();) {
    const bool there_still = std::any_of(there_.begin(), there_.end(), [&](const auto& instance) {
      return instance.uuid == daemon->first;
    });
    if (!there_still) without_instance.push_back(std::move(daemon->second));
    daemon = there_still ? std::next(daemon) : daemons_.erase(daemon);
  }
  return {};
}

// From the moment that an instance is to be destroyed nobody can have it any more.
Status MigKeeper::make_room(const MigInstance& instance) {
  std::vector<gpu::MigDeviceInstance> victims;
  std::vector<std::shared_ptr<MpsKeeper>> daemons;
  {
    const std::lock_guard lock(mutex_);
    if (Status place = place_for(instance); !place.ok()) return place;
    const auto kept = std::stable_partition(
        there_.begin(), there_.end(),
        [&](const gpu::MigDeviceInstance& there) { return !in_the_way(there, instance); });
    victims.assign(kept, there_.end());
    there_.erase(kept, there_.end());
    for (const auto& victim : victims) {
      if (auto daemon = daemons_.extract(victim.uuid))
        daemons.push_back(std::move(daemon.mapped()));
    }
  }
  daemons.clear();  // they would hold their instances
  for (const auto& victim : victims) {
    const Status destroyed = device_.destroy(victim);
    if (destroyed.ok()) continue;
    (void)look();
    return destroyed.within(to_string(instance) + " cannot be made");
  }
  return {};
}

Status MigKeeper::start_daemon(const MigInstance& instance) {
  std::string uuid;
  {
    const std::lock_guard lock(mutex_);
    const gpu::MigDeviceInstance* const there = find(instance);
    if (there == nullptr || daemons_.contains(there->uuid)) return {};
    uuid = there->uuid;
  }
  auto started = MpsDaemon::start(mps_, uuid);
  if (!started.ok()) return started.status().within(to_string(instance));
  auto keeper = std::make_shared<MpsKeeper>(std::move(started).value(), mps_, uuid);
  const std::lock_guard lock(mutex_);
  daemons_[uuid] = std::move(keeper);
  return {};
}

}  // namespace gpulet::partition

#include "gpulet/partition/drivers/mps.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "partition/drivers/descriptor.h"

namespace gpulet::partition {
namespace {

constexpr auto kLookAgainAfter = std::chrono::milliseconds(500);
// A daemon that has refused so often to end a client never will.
constexpr int kTerminations = 3;
constexpr std::uint64_t kMegabyte = 1U << 20U;
// What a process takes of the GPU beside its models, and the limit counts: CUDA's context with the
// code of LibTorch's, cuBLAS's and cuDNN's kernels (loaded when first used), and their workspaces.
// An estimate on the safe side, not measured: a limit that is too tight fails batches, one that is
// loose costs nothing, because nothing is reserved.
constexpr std::uint64_t kContextBytes = 1024 * kMegabyte;
// A quarter more than was measured: an allocator keeps blocks that it does not use.
constexpr std::uint64_t kSlackPart = 4;

// What blocks, on a thread of its own: looks after the daemon, and ends clients through it.
class MpsKeeper {
 public:
  MpsKeeper(MpsDaemon daemon, MpsOptions options, std::string uuid)
      : options_(std::move(options)), uuid_(std::move(uuid)), daemon_(std::move(daemon)) {
    thread_ = std::thread([this] { run(); });
  }
  ~MpsKeeper() {
    {
      const std::lock_guard lock(mutex_);
      leaving_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  MpsKeeper(const MpsKeeper&) = delete;
  MpsKeeper& operator=(const MpsKeeper&) = delete;

  // Why it takes no clients now; ok: it does.
  [[nodiscard]] Status ready() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  // False where the process is none that could be watched.
  bool end(pid_t process) {
    Descriptor handle(static_cast<int>(::syscall(SYS_pidfd_open, process, 0)));
    if (!handle.valid()) return false;
    {
      const std::lock_guard lock(mutex_);
      if (!ending_.insert(process).second) return true;
      to_end_.push_back({process, std::move(handle)});
    }
    changed_.notify_all();
    return true;
  }

 private:
  struct Client {
    pid_t process = 0;
    Descriptor handle;  // a pidfd: the number may be somebody else's by the time
    int attempts = 0;
  };

  void run() {
    std::unique_lock lock(mutex_);
    bool refused = false;
    while (!leaving_ || !to_end_.empty()) {
      if (to_end_.empty() || refused) changed_.wait_for(lock, kLookAgainAfter);
      refused = false;
      auto clients = std::exchange(to_end_, {});
      const bool idle = clients.empty() && !leaving_;
      lock.unlock();
      if (idle) look_after_daemon();
      for (auto& client : clients) end_one(client);
      lock.lock();
      for (auto& client : clients) {
        if (client.handle.valid()) {
          refused = true;
          to_end_.push_back(std::move(client));
        } else {
          ending_.erase(client.process);
        }
      }
    }
  }

  void look_after_daemon() {
    if (daemon_ && daemon_->running()) return;
    set_failure({StatusCode::unavailable,
                 "the MPS daemon of " + uuid_ + " has ended; it is being started again"});
    daemon_.reset();  // first: it would end the one that comes after it
    auto started = MpsDaemon::start(options_, uuid_);
    if (started.ok()) daemon_.emplace(std::move(started).value());
    set_failure(started.status());
  }

  // Lets go of the client's handle once it was killed.
  void end_one(Client& client) {
    if (!has_ended(client)) {
      if (!may_be_killed(client.process) && ++client.attempts < kTerminations) return;
      ::syscall(SYS_pidfd_send_signal, client.handle.get(), SIGKILL, nullptr, 0);
    }
    client.handle = {};
  }

  // Takes the process off the GPU first, where it has work there.
  [[nodiscard]] bool may_be_killed(pid_t process) const {
    if (!daemon_ || !daemon_->running()) return true;
    const auto state = daemon_->state();
    // After a fault nothing runs there, and the server only waits for its clients' end.
    if (state.ok() && state.value() == MpsServerState::fault) return true;
    const auto terminated = daemon_->terminate(process);
    return terminated.ok() || terminated.code() == StatusCode::not_found;
  }

  static bool has_ended(const Client& client) {
    pollfd ended{client.handle.get(), POLLIN, 0};
    return ::poll(&ended, 1, 0) > 0;
  }

  void set_failure(Status failure) {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
  }

  const MpsOptions options_;
  const std::string uuid_;
  std::optional<MpsDaemon> daemon_;  // of the thread below
  mutable std::mutex mutex_;         // guards all that follows but the thread
  std::condition_variable changed_;
  std::deque<Client> to_end_;
  std::set<pid_t> ending_;
  Status failure_;
  bool leaving_ = false;
  std::thread thread_;  // last: it uses the members above
};

class MpsDriver final : public PartitionDriver {
 public:
  MpsDriver(MpsGpu gpu, MpsDaemon daemon, const MpsOptions& options)
      : gpu_(std::move(gpu)),
        environment_(daemon.client_environment()),
        keeper_(std::move(daemon), options, gpu_.uuid) {}

  [[nodiscard]] std::string mechanism() const override { return "mps"; }
  [[nodiscard]] Traits traits() const override {
    return {.step_percent = 1,
            .change = ChangeOfSize::new_process,
            .fault = FaultReach::device,
            .limits_memory = true};
  }

  [[nodiscard]] Result<Grant> grant(const Claim& claim) override {
    if (!claim.share.valid()) {
      return Status(StatusCode::invalid, "a gpulet's share must be 1..100 %; was " +
                                             std::to_string(claim.share.percent));
    }
    if (granted_.contains(claim.gpulet)) {
      return Status(StatusCode::internal,
                    "gpulet " + std::to_string(claim.gpulet.value) + " has a share already");
    }
    if (granted_.size() >= gpu_.max_clients) {
      return Status(StatusCode::unavailable, "MPS lets " + std::to_string(gpu_.max_clients) +
                                                 " processes share " + gpu_.uuid +
                                                 ", and as many do; plan fewer gpulets for it");
    }
    if (auto ready = keeper_.ready(); !ready.ok()) return ready;
    granted_.insert(claim.gpulet);
    return Grant{environment_of(claim.share, claim.memory_bytes)};
  }

  [[nodiscard]] bool ready() const override { return keeper_.ready().ok(); }
  // The process itself has the share from its first use of CUDA on, and tells what it found.
  [[nodiscard]] Status attach(GpuletId /*gpulet*/, pid_t /*process*/) override { return {}; }
  [[nodiscard]] Status activate(GpuletId /*gpulet*/) override { return {}; }
  [[nodiscard]] bool end(GpuletId /*gpulet*/, pid_t process) override {
    return keeper_.end(process);
  }
  void release(GpuletId gpulet) override { granted_.erase(gpulet); }

 private:
  [[nodiscard]] std::map<std::string, std::string> environment_of(
      Share share, std::uint64_t memory_bytes) const {
    auto variables = environment_;
    variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = std::to_string(share.percent);
    variables[kExpectedShareVariable] = std::to_string(share.percent);
    variables[kDeviceVariable] = "cuda:0";  // the only one that the daemon shows its clients
    if (gpu_.sms > 0) variables[kDeviceSmsVariable] = std::to_string(gpu_.sms);
    if (const auto limit = memory_limit(share, memory_bytes); limit > 0) {
      const auto megabytes = limit / kMegabyte;
      // The only GPU that the daemon shows its clients is number 0 to them.
      variables["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] = "0=" + std::to_string(megabytes) + "M";
    }
    return variables;
  }

  // 0: none.
  [[nodiscard]] std::uint64_t memory_limit(Share share, std::uint64_t models_need) const {
    if (models_need == 0)
      return gpu_.memory_bytes / kMegabyte * static_cast<std::uint64_t>(share.percent) / 100 *
             kMegabyte;
    const std::uint64_t limit = models_need + models_need / kSlackPart + kContextBytes;
    return gpu_.memory_bytes == 0 ? limit : std::min(limit, gpu_.memory_bytes);
  }

  const MpsGpu gpu_;
  const std::map<std::string, std::string> environment_;
  std::set<GpuletId> granted_;
  MpsKeeper keeper_;
};

}  // namespace

Result<std::unique_ptr<PartitionDriver>> make_mps_driver(const MpsGpu& gpu,
                                                         const MpsOptions& options) {
  auto daemon = MpsDaemon::start(options, gpu.uuid);
  if (!daemon.ok()) return daemon.status();
  return std::unique_ptr<PartitionDriver>(
      std::make_unique<MpsDriver>(gpu, std::move(daemon).value(), options));
}

}  // namespace gpulet::partition

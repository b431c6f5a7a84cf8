#include "partition/drivers/mps.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <utility>

#include "gpulet/base/bytes.h"

namespace gpulet::partition {
namespace {

constexpr auto kDaemonPollInterval = std::chrono::milliseconds(500);
// After so many refusals by the daemon the client is killed directly.
constexpr int kMostTerminations = 3;
// The GPU memory of a process beside its models: the CUDA context with the kernels of LibTorch,
// cuBLAS and cuDNN, and their workspaces. A generous estimate, not measured: a tight limit would
// make batches fail, while a loose one costs nothing because no memory is reserved.
constexpr std::uint64_t kContextBytes = 1024 * kBytesPerMegabyte;
// Adds a quarter to the measured need, for blocks that the allocator caches.
constexpr std::uint64_t kSlackPart = 4;

}  // namespace

MpsSupervisor::MpsSupervisor(std::unique_ptr<MpsDaemon> daemon, MpsOptions options,
                             std::string uuid)
    : options_(std::move(options)),
      uuid_(std::move(uuid)),
      environment_(daemon->client_environment()),
      daemon_(std::move(daemon)) {
  thread_ = std::thread([this] { run(); });
}

MpsSupervisor::~MpsSupervisor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status MpsSupervisor::ready() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool MpsSupervisor::end(pid_t process) {
  FileDescriptor pidfd = open_pidfd(process);
  if (!pidfd.valid()) return false;
  {
    const std::lock_guard lock(mutex_);
    if (!ending_.insert(process).second) return true;
    to_end_.push_back({process, std::move(pidfd)});
  }
  changed_.notify_all();
  return true;
}

void MpsSupervisor::run() {
  std::unique_lock lock(mutex_);
  bool refused = false;
  while (!stopping_ || !to_end_.empty()) {
    if (to_end_.empty() || refused) changed_.wait_for(lock, kDaemonPollInterval);
    refused = false;
    auto clients = std::exchange(to_end_, {});
    const bool idle = clients.empty() && !stopping_;
    lock.unlock();
    if (idle) restart_if_exited();
    for (auto& client : clients) end_client(client);
    lock.lock();
    for (auto& client : clients) {
      if (client.pidfd.valid()) {
        refused = true;
        to_end_.push_back(std::move(client));
      } else {
        ending_.erase(client.process);
      }
    }
  }
}

void MpsSupervisor::restart_if_exited() {
  if (daemon_ != nullptr && daemon_->running()) return;
  set_failure(
      {StatusCode::unavailable, "the MPS daemon of " + uuid_ + " has exited; restarting it"});
  daemon_.reset();  // first: its destructor could stop the new daemon
  auto started = MpsDaemon::start(options_, uuid_);
  if (started.ok()) daemon_ = std::move(started).value();
  set_failure(started.status());
}

// Resets the pidfd once the client was killed.
void MpsSupervisor::end_client(Client& client) {
  if (!has_exited(client.pidfd)) {
    if (!terminate_work(client.process) && ++client.attempts < kMostTerminations) return;
    send_signal(client.pidfd, SIGKILL);
  }
  client.pidfd = {};
}

// Ends the GPU work of a client. Returns whether the client may be killed now.
bool MpsSupervisor::terminate_work(pid_t process) const {
  if (daemon_ == nullptr || !daemon_->running()) return true;
  const auto state = daemon_->state();
  // After a fault no work runs, and the server waits for its clients to exit.
  if (state.ok() && state.value() == MpsServerState::fault) return true;
  const auto terminated = daemon_->terminate(process);
  return terminated.ok() || terminated.code() == StatusCode::not_found;
}

void MpsSupervisor::set_failure(Status failure) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
}

std::uint64_t mps_memory_limit(std::uint64_t models_need, std::uint64_t device_bytes,
                               std::uint64_t otherwise) {
  if (models_need == 0) return otherwise;
  const std::uint64_t limit = models_need + models_need / kSlackPart + kContextBytes;
  return device_bytes == 0 ? limit : std::min(limit, device_bytes);
}

// The daemon shows its clients one device, number 0.
std::string mps_memory_text(std::uint64_t limit) {
  return "0=" + std::to_string(limit / kBytesPerMegabyte) + "M";
}

namespace {

class MpsDriver final : public PartitionDriver {
 public:
  MpsDriver(MpsGpu gpu, std::unique_ptr<MpsDaemon> daemon, const MpsOptions& options)
      : gpu_(std::move(gpu)), supervisor_(std::move(daemon), options, gpu_.uuid) {}

  [[nodiscard]] std::string mechanism() const override { return "mps"; }
  [[nodiscard]] Traits traits() const override {
    return {.step_percent = 1,
            .change = ChangeOfSize::new_process,
            .fault = FaultReach::device,
            .limits_memory = true};
  }

  [[nodiscard]] Result<Grant> grant(const Claim& claim) override {
    if (Status right = check_claim(claim, granted_.contains(claim.gpulet)); !right.ok())
      return right;
    if (granted_.size() >= gpu_.max_clients) {
      return Status(
          StatusCode::unavailable,
          fmt::format("{} already has the maximum of {} MPS clients; plan fewer gpulets for it",
                      gpu_.uuid, gpu_.max_clients));
    }
    if (auto ready = supervisor_.ready(); !ready.ok()) return ready;
    granted_.insert(claim.gpulet);
    return Grant{environment_of(claim.share, claim.memory_bytes)};
  }

  [[nodiscard]] bool ready() const override { return supervisor_.ready().ok(); }
  [[nodiscard]] bool end(GpuletId /*gpulet*/, pid_t process) override {
    return supervisor_.end(process);
  }
  void release(GpuletId gpulet) override { granted_.erase(gpulet); }

 private:
  [[nodiscard]] std::map<std::string, std::string> environment_of(
      Share share, std::uint64_t memory_bytes) const {
    auto variables = supervisor_.environment();
    variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = std::to_string(share.percent);
    variables[kExpectedShareVariable] = std::to_string(share.percent);
    variables[kDeviceVariable] = "cuda:0";  // the only device that its clients see
    if (gpu_.sms > 0) variables[kDeviceSmsVariable] = std::to_string(gpu_.sms);
    const auto part = gpu_.memory_bytes * static_cast<std::uint64_t>(share.percent) / 100;
    const auto limit = mps_memory_limit(memory_bytes, gpu_.memory_bytes, part);
    if (limit > 0) variables[kMpsMemoryVariable] = mps_memory_text(limit);
    return variables;
  }

  const MpsGpu gpu_;
  std::set<GpuletId> granted_;
  MpsSupervisor supervisor_;
};

}  // namespace

Result<std::unique_ptr<PartitionDriver>> make_mps_driver(const MpsGpu& gpu,
                                                         const MpsOptions& options) {
  GPULET_TRY(auto daemon, MpsDaemon::start(options, gpu.uuid));
  return std::unique_ptr<PartitionDriver>(
      std::make_unique<MpsDriver>(gpu, std::move(daemon), options));
}

}  // namespace gpulet::partition

#include "partition/drivers/mps_keeper.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "gpulet/core/megabytes.h"

namespace gpulet::partition {
namespace {

constexpr auto kLookAgainAfter = std::chrono::milliseconds(500);
// A daemon that has refused so often to end a client never will.
constexpr int kTerminations = 3;
// What a process takes of the GPU beside its models, and the limit counts: CUDA's context with the
// code of LibTorch's, cuBLAS's and cuDNN's kernels (loaded when first used), and their workspaces.
// An estimate on the safe side, not measured: a limit that is too tight fails batches, one that is
// loose costs nothing, because nothing is reserved.
constexpr std::uint64_t kContextBytes = 1024 * kBytesPerMegabyte;
// A quarter more than was measured: an allocator keeps blocks that it does not use.
constexpr std::uint64_t kSlackPart = 4;

bool has_ended(const Descriptor& process) {
  pollfd ended{process.get(), POLLIN, 0};
  return ::poll(&ended, 1, 0) > 0;
}

}  // namespace

MpsKeeper::MpsKeeper(MpsDaemon daemon, MpsOptions options, std::string uuid)
    : options_(std::move(options)),
      uuid_(std::move(uuid)),
      environment_(daemon.client_environment()),
      daemon_(std::move(daemon)) {
  thread_ = std::thread([this] { run(); });
}

MpsKeeper::~MpsKeeper() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Status MpsKeeper::ready() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

bool MpsKeeper::end(pid_t process) {
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

void MpsKeeper::run() {
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

void MpsKeeper::look_after_daemon() {
  if (daemon_ && daemon_->running()) return;
  set_failure({StatusCode::unavailable,
               "the MPS daemon of " + uuid_ + " has ended; it is being started again"});
  daemon_.reset();  // first: it would end the one that comes after it
  auto started = MpsDaemon::start(options_, uuid_);
  if (started.ok()) daemon_.emplace(std::move(started).value());
  set_failure(started.status());
}

// Lets go of the client's handle once it was killed.
void MpsKeeper::end_one(Client& client) {
  if (!has_ended(client.handle)) {
    if (!may_be_killed(client.process) && ++client.attempts < kTerminations) return;
    ::syscall(SYS_pidfd_send_signal, client.handle.get(), SIGKILL, nullptr, 0);
  }
  client.handle = {};
}

// Takes the process off the GPU first, where it has work there.
bool MpsKeeper::may_be_killed(pid_t process) const {
  if (!daemon_ || !daemon_->running()) return true;
  const auto state = daemon_->state();
  // After a fault nothing runs there, and the server only waits for its clients' end.
  if (state.ok() && state.value() == MpsServerState::fault) return true;
  const auto terminated = daemon_->terminate(process);
  return terminated.ok() || terminated.code() == StatusCode::not_found;
}

void MpsKeeper::set_failure(Status failure) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
}

std::uint64_t mps_memory_limit(std::uint64_t models_need, std::uint64_t device_bytes,
                               std::uint64_t otherwise) {
  if (models_need == 0) return otherwise;
  const std::uint64_t limit = models_need + models_need / kSlackPart + kContextBytes;
  return device_bytes == 0 ? limit : std::min(limit, device_bytes);
}

// The only device that the daemon shows its clients is number 0 to them.
std::string mps_memory_text(std::uint64_t limit) {
  return "0=" + std::to_string(limit / kBytesPerMegabyte) + "M";
}

}  // namespace gpulet::partition

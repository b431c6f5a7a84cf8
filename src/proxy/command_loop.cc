#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <variant>

#include "gpulet/protocol/messages.h"
#include "gpulet/protocol/proxy_messages.h"
#include "proxy/channel.h"
#include "proxy/workers.h"

namespace gpulet::proxy {
namespace {

// A backend has a few batches in flight. Further commands stay in the socket, unread and untimed.
constexpr std::size_t kMaxQueued = 256;

struct TimedCommand {
  ProxyCommand command;
  Clock::time_point arrived;
};

// Reads ahead of the batch that runs, so that the waiting time of a command counts from its
// arrival. A thread of its own reads; the owner takes.
class CommandReader {
 public:
  // Reads until StopProxy, the end of the stream or a failure. Does not own the socket.
  explicit CommandReader(int control_fd)
      : control_fd_(control_fd), thread_([this, control_fd] { read_all(control_fd); }) {}
  // Shuts down the reading side of the socket to wake the thread.
  ~CommandReader() {
    {
      const std::lock_guard lock(mutex_);
      abandoned_ = true;
    }
    changed_.notify_all();
    ::shutdown(control_fd_, SHUT_RD);
    thread_.join();
  }
  CommandReader(const CommandReader&) = delete;
  CommandReader& operator=(const CommandReader&) = delete;

  // Waits for the next command. Empty once the peer has closed the channel; queued commands are
  // dropped then. Fails as read_command(), after the commands that were read before the failure.
  [[nodiscard]] Result<std::optional<TimedCommand>> take();

  // Whether the peer has closed the channel.
  [[nodiscard]] bool peer_is_gone() {
    const std::lock_guard lock(mutex_);
    return closed_;
  }

 private:
  void read_all(int control_fd);

  int control_fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TimedCommand> queue_;  // guarded by mutex_
  bool closed_ = false;             // guarded by mutex_; by the peer
  Status failure_;                  // guarded by mutex_
  bool abandoned_ = false;          // guarded by mutex_; the owner takes no more
  std::thread thread_;              // last: starts when the other members exist
};

void CommandReader::read_all(int control_fd) {
  for (bool more = true; more;) {
    Result<std::optional<ProxyCommand>> command = read_command(control_fd);
    const auto arrived = Clock::now();
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return queue_.size() < kMaxQueued || abandoned_; });
      if (abandoned_) return;
      failure_ = command.status();
      closed_ = command.ok() && !command.value();
      more = command.ok() && !closed_ && !std::holds_alternative<StopProxy>(*command.value());
      if (command.ok() && !closed_) queue_.push_back({std::move(*command.value()), arrived});
    }
    changed_.notify_all();
  }
}

Result<std::optional<TimedCommand>> CommandReader::take() {
  std::optional<TimedCommand> next;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !queue_.empty() || !failure_.ok(); });
    if (closed_) return next;
    if (queue_.empty()) return failure_;
    next = std::move(queue_.front());
    queue_.pop_front();
  }
  changed_.notify_all();
  return next;
}

// The batches in flight of an executor with a depth above 1. The command loop begins them; a thread
// of this class waits for each, in order, and sends the result.
class InflightBatches {
 public:
  // Not called again after a failure.
  using Send = std::function<Status(const BatchRan& ran)>;

  InflightBatches(std::size_t depth, const ModelRunner& runner, Send send)
      : depth_(depth), runner_(runner), send_(std::move(send)), thread_([this] { finish_all(); }) {}
  // Waits for the batches in flight and sends their results.
  ~InflightBatches() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  InflightBatches(const InflightBatches&) = delete;
  InflightBatches& operator=(const InflightBatches&) = delete;

  // Waits until fewer than `depth` batches are in flight. Fails if sending a result failed.
  [[nodiscard]] Status wait_for_slot() { return wait_until_fewer_than(depth_); }
  // REQUIRES: wait_for_slot() succeeded since the last call.
  void add(BegunBatch batch) {
    {
      const std::lock_guard lock(mutex_);
      batches_.push_back(std::move(batch));
    }
    changed_.notify_all();
  }
  // Waits until all results have been sent. Fails as wait_for_slot().
  [[nodiscard]] Status drain() { return wait_until_fewer_than(1); }

 private:
  [[nodiscard]] Status wait_until_fewer_than(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return batches_.size() < count || !failure_.ok(); });
    return failure_;
  }
  void finish_all();
  [[nodiscard]] BatchRan finish(BegunBatch& batch);

  const std::size_t depth_;
  const ModelRunner& runner_;
  const Send send_;
  Clock::time_point device_free_{};  // end of the last batch; used by thread_ only
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<BegunBatch> batches_;  // guarded by mutex_; thread_ finishes the first
  Status failure_;                  // guarded by mutex_; of send_
  bool closing_ = false;            // guarded by mutex_
  std::thread thread_;              // last: starts when the other members exist
};

void InflightBatches::finish_all() {
  for (;;) {
    BegunBatch* next = nullptr;
    bool sends = true;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return closing_ || !batches_.empty(); });
      if (batches_.empty()) return;
      next = &batches_.front();  // add() does not move it
      sends = failure_.ok();
    }
    const BatchRan ran = finish(*next);
    Status sent = sends ? send_(ran) : Status();
    {
      const std::lock_guard lock(mutex_);
      batches_.pop_front();
      if (!sent.ok()) failure_ = std::move(sent);
    }
    changed_.notify_all();
  }
}

BatchRan InflightBatches::finish(BegunBatch& batch) {
  BatchRan ran = std::move(batch.ran);
  if (batch.running == nullptr) return ran;
  const Result<std::size_t> written = batch.running->finish();
  const Clock::time_point ended = Clock::now();
  // The batch waited for the device until the batch before it ended.
  const Clock::time_point began = std::max(batch.begun, device_free_);
  device_free_ = ended;
  ran.queued = began - batch.arrived;
  ran.executed = ended - began;
  ran.condition = runner_.condition();
  if (written.ok()) {
    ran.output_bytes = written.value();
  } else {
    runner_.set_failure(ran, written.status(), {});
  }
  batch.running.reset();
  return ran;
}

class CommandLoop {
 public:
  CommandLoop(const ProxyOptions& options, MakeExecutor make_executor,
              const OnDeviceLost& on_device_lost)
      : control_fd_(options.control_fd),
        on_device_lost_(on_device_lost),
        reader_(options.control_fd),
        runner_(options, std::move(make_executor), [this] { return reader_.peer_is_gone(); }) {}

  Status run();

 private:
  Status on(const LoadModels& command);
  Status on(const RunBatch& batch, Clock::time_point arrived);
  Status send(const BatchRan& ran) const;
  void report_if_lost(partition::DeviceHealth device, const Status& why) const;

  const int control_fd_;
  const OnDeviceLost& on_device_lost_;
  CommandReader reader_;
  ModelRunner runner_;
  std::optional<InflightBatches> inflight_;  // set if the executor's depth is above 1
};

Status CommandLoop::run() {
  // The read below detects a peer that is already gone.
  static_cast<void>(write_message(control_fd_, ProxyIdle{}));
  for (;;) {
    GPULET_TRY(std::optional<TimedCommand> next, reader_.take());
    if (!next.has_value()) return {};
    const auto& [command, arrived] = *next;
    if (std::holds_alternative<StopProxy>(command))
      return inflight_ ? inflight_->drain() : Status();

    const auto* models = std::get_if<LoadModels>(&command);
    Status done = models != nullptr ? on(*models) : on(std::get<RunBatch>(command), arrived);
    if (!done.ok()) return done;
  }
}

Status CommandLoop::on(const LoadModels& command) {
  if (inflight_) {
    if (Status drained = inflight_->drain(); !drained.ok()) return drained;
  }
  const ProxyReady ready = runner_.load(command);
  if (!inflight_ && runner_.depth() > 1) {
    inflight_.emplace(runner_.depth(), runner_, [this](const BatchRan& ran) { return send(ran); });
  }
  if (Status written = write_message(control_fd_, ready); !written.ok()) return written;
  report_if_lost(ready.device, ready.status);
  return {};
}

Status CommandLoop::on(const RunBatch& batch, Clock::time_point arrived) {
  if (!inflight_) return send(runner_.run(batch, arrived));
  if (Status slot = inflight_->wait_for_slot(); !slot.ok()) return slot;
  inflight_->add(runner_.begin(batch, arrived));
  return {};
}

Status CommandLoop::send(const BatchRan& ran) const {
  if (Status written = write_message(control_fd_, ran); !written.ok()) return written;
  report_if_lost(ran.device, ran.status);
  return {};
}

void CommandLoop::report_if_lost(partition::DeviceHealth device, const Status& why) const {
  if (device == partition::DeviceHealth::lost && on_device_lost_ != nullptr) on_device_lost_(why);
}

}  // namespace

Status run_command_loop(const ProxyOptions& options, MakeExecutor make_executor,
                        const OnDeviceLost& on_device_lost) {
  return CommandLoop(options, std::move(make_executor), on_device_lost).run();
}

Status serve(const ProxyOptions& options, const Program& program) {
  // Before LoadModels nothing is timed.
  if (program.prepare != nullptr) program.prepare();
  const auto make_executor =
      [&program](const LoadModels& command) -> Result<std::unique_ptr<executor::Executor>> {
    set_environment(command.environment);  // the reader's thread does not use the environment
    return program.make_executor();
  };
  return run_command_loop(options, make_executor, {});
}

}  // namespace gpulet::proxy

#include "proxy/workers.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpulet/partition/driver.h"
#include "proxy/channel.h"

namespace gpulet::proxy {
namespace {

constexpr std::size_t kDescriptorsPerWorker = 3;

// The descriptors of a worker in the order of its message.
ProxyOptions options_of(const std::vector<FileDescriptor>& descriptors) {
  return {.control_fd = descriptors[0].get(),
          .memory_fd = descriptors[1].get(),
          .files_fd = descriptors[2].get()};
}

// The device of all workers. The first worker that loads makes it.
class WorkersDevice {
 public:
  explicit WorkersDevice(const Program& program) : program_(program) {}

  // Called on the worker's thread.
  Result<std::unique_ptr<executor::Executor>> add_executor(const LoadModels& command) {
    const auto given = command.environment.find(partition::kExpectedShareVariable);
    if (given == command.environment.end()) {
      return Status(StatusCode::invalid, std::string("the environment of a worker needs ") +
                                             partition::kExpectedShareVariable);
    }
    GPULET_TRY(const auto expected, parse_expected_share(given->second.c_str(), nullptr));
    const std::lock_guard lock(mutex_);
    if (shared_ == nullptr) {
      if (Status made = make(command); !made.ok()) return made;
    }
    std::vector<std::string> names;
    for (const ModelToLoad& model : command.models) names.push_back(model.name);
    return shared_->add_executor(*expected.share, names);
  }

 private:
  Status make(const LoadModels& command) {
    if (program_.make_shared_device == nullptr)
      return {StatusCode::invalid, "this program serves only one gpulet per process"};
    // Other workers wait for mutex_ here, and do not use the environment before they have a device.
    if (!std::exchange(has_environment_, true)) set_environment(command.environment);
    GPULET_TRY(auto made, program_.make_shared_device());
    shared_ = std::move(made);
    return {};
  }

  const Program& program_;
  std::mutex mutex_;
  bool has_environment_ = false;                    // guarded by mutex_
  std::unique_ptr<executor::SharedDevice> shared_;  // guarded by mutex_
};

class Worker {
 public:
  Worker(std::vector<FileDescriptor> descriptors, WorkersDevice& device, const WorkerEvents& events)
      : descriptors_(std::move(descriptors)),
        thread_([this, &device, &events] { serve(device, events); }) {}
  ~Worker() {
    abandon();
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  [[nodiscard]] bool ended() const { return ended_; }
  void abandon() {
    const std::lock_guard lock(mutex_);
    if (!descriptors_.empty()) ::shutdown(descriptors_.front().get(), SHUT_RDWR);
  }

 private:
  void serve(WorkersDevice& device, const WorkerEvents& events) {
    const Status served = run_command_loop(
        options_of(descriptors_),
        [&device](const LoadModels& command) { return device.add_executor(command); },
        events.device_lost);
    if (!served.ok() && events.worker_failed != nullptr) events.worker_failed(served);
    {
      // The end of the channel shows the backend that the worker's resources are released.
      const std::lock_guard lock(mutex_);
      descriptors_.clear();
    }
    ended_ = true;
  }

  std::mutex mutex_;
  // Guarded by mutex_. The worker's thread reads it without: no other thread changes it.
  std::vector<FileDescriptor> descriptors_;
  std::atomic<bool> ended_{false};
  std::thread thread_;  // last: starts when the other members exist
};

void reject(const std::vector<FileDescriptor>& descriptors, std::size_t max_workers) {
  ProxyReady full;
  full.status = {StatusCode::unavailable,
                 fmt::format("this process already serves its maximum of {} gpulets", max_workers)};
  static_cast<void>(write_message(options_of(descriptors).control_fd, full));
}

}  // namespace

Status serve_workers(const WorkersOptions& options, const Program& program,
                     const WorkerEvents& events) {
  if (program.prepare != nullptr) program.prepare();
  WorkersDevice device(program);
  std::list<Worker> workers;  // destroyed before the device
  for (;;) {
    auto received = receive_descriptors(options.workers_fd, kDescriptorsPerWorker, true);
    std::erase_if(workers, [](const Worker& worker) { return worker.ended(); });
    if (!received.ok() || received.value().closed) {
      for (Worker& worker : workers) worker.abandon();  // before the destructors wait for each
      return received.status().within("the socket of the workers");
    }
    auto& descriptors = received.value().descriptors;
    if (workers.size() >= options.max_workers) {
      reject(descriptors, options.max_workers);
    } else {
      workers.emplace_back(std::move(descriptors), device, events);
    }
  }
}

}  // namespace gpulet::proxy

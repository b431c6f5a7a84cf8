#include "gpulet/backend/proxy_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "backend/child_process.h"
#include "backend/process_output.h"
#include "backend/proxy_link.h"
#include "gpulet/base/files.h"

namespace gpulet::backend {

namespace {

namespace asio = net::asio;

// How long a destructor waits if ProxyCallbacks::end ends the process.
constexpr std::chrono::milliseconds kMaxEnd = std::chrono::seconds(10);

// Whether a channel that ended so was closed or broken by the end of its other side.
bool is_end(const Status& reason) {
  return reason.code() == StatusCode::cancelled || reason.code() == StatusCode::unavailable;
}

struct StartedProcess {
  pid_t id = 0;
  FileDescriptor output;  // invalid: nobody reads it
};

// Starts the program with a pipe for its output, if the options have a use for it.
Result<StartedProcess> start_program(const ProxyOptions& options, SpawnOptions spawned) {
  spawned.program = options.program;
  spawned.in_background = options.in_background;
  spawned.user = options.user;
  spawned.confinement = options.confinement;
  ProcessOutput::Ends output;
  if (options.on_output != nullptr) {
    GPULET_TRY(auto made, ProcessOutput::make_ends());
    output = std::move(made);
    spawned.output = output.theirs.get();
  }
  GPULET_TRY(const auto process, spawn(spawned));
  return StartedProcess{process, std::move(output.ours)};
}

// Null without an output.
Result<std::unique_ptr<ProcessOutput>> read_output(const asio::any_io_executor& executor,
                                                   const ProxyOptions& options,
                                                   StartedProcess& started) {
  if (!started.output.valid()) return std::unique_ptr<ProcessOutput>();
  return ProcessOutput::start(executor, std::move(started.output),
                              [on_output = options.on_output, process = started.id](
                                  const std::string& line) { on_output(process, line); });
}

// A Proxy over its link, which is shared with operations in flight.
template <typename Base, typename Link>
class LinkedProxy final : public Base {
 public:
  explicit LinkedProxy(std::shared_ptr<Link> link) : link_(std::move(link)) {}
  ~LinkedProxy() override { link_->end_now(); }
  LinkedProxy(const LinkedProxy&) = delete;
  LinkedProxy& operator=(const LinkedProxy&) = delete;

  [[nodiscard]] pid_t pid() const override { return link_->process(); }
  [[nodiscard]] ProcessEnd process_end() const override { return link_->process_end(); }
  void set_callbacks(ProxyCallbacks callbacks) override {
    link_->set_callbacks(std::move(callbacks));
  }
  [[nodiscard]] Status load(LoadModels models, const SlotOptions& slots) override {
    return link_->load(std::move(models), slots);
  }
  [[nodiscard]] std::optional<MutableBytes> take_slot(std::size_t bytes) override {
    return link_->take_slot(bytes);
  }
  [[nodiscard]] std::optional<MutableBytes> take_zeros(std::size_t bytes) override {
    return link_->take_zeros(bytes);
  }
  [[nodiscard]] bool holds(const Bytes& input) const override { return link_->holds(input); }
  void run(RunBatch batch, Bytes input) override { link_->run(std::move(batch), std::move(input)); }
  void stop(Duration deadline) override { link_->stop(deadline); }
  void kill(Status reason) override { link_->kill(std::move(reason)); }

 private:
  const std::shared_ptr<Link> link_;
};

// ---- ProxyProcess

// Reports the exit once the process was reaped and its channel was read to the end.
class ProcessLink final : public ProxyLink {
 public:
  ProcessLink(const asio::any_io_executor& executor, pid_t process, bool in_background,
              ProxyCallbacks callbacks)
      : ProxyLink(executor, std::move(callbacks)),
        child_(executor, process),
        in_background_(in_background) {}
  ~ProcessLink() override { end_now(); }
  ProcessLink(const ProcessLink&) = delete;
  ProcessLink& operator=(const ProcessLink&) = delete;

  [[nodiscard]] Status watch() {
    return child_.watch([this](const Status& how) { ended(how); });
  }
  void read(std::unique_ptr<ProcessOutput> output) { output_ = std::move(output); }
  [[nodiscard]] pid_t process() const { return child_.id(); }
  [[nodiscard]] const ProcessEnd& process_end() const { return child_.process_end(); }
  void stop(Duration deadline);
  void kill(Status reason);
  // Called by the owner's destructor: ends the callbacks and the process.
  void end_now();

 private:
  void on_violation(const Status& why) override { kill(why); }
  void on_channel_closed(const Status& reason) override;
  void on_load() override {
    if (in_background_ && !child_.ended()) raise_priority(child_.id());
  }
  [[nodiscard]] std::string name() const override { return child_.name(); }

  void ended(const Status& how);
  void report_exit_if_over();
  void kill_on_timeout() { kill({StatusCode::timeout, name() + " did not end in time"}); }
  // Whether the callback ends the process.
  [[nodiscard]] bool is_ended_by(const ProxyCallbacks& callbacks) const {
    return was_loaded() && callbacks.end != nullptr && callbacks.end(child_.id());
  }

  ChildProcess child_;
  std::unique_ptr<ProcessOutput> output_;  // null: not read
  const bool in_background_;
  Status kill_reason_;  // not ok: it was killed
  Status end_;          // set once the child has ended
};

void ProcessLink::ended(const Status& how) {
  const auto self = shared_from_this();  // the callback may destroy the owner
  end_ = how;
  if (output_ != nullptr) output_->finish();
  if (!channel_closed()) after(kGracePeriod, [this] { close_channel(); });
  report_exit_if_over();
}

void ProcessLink::on_channel_closed(const Status& reason) {
  if (!child_.ended()) {
    if (is_end(reason)) {
      after(kGracePeriod, [this] { kill_on_timeout(); });
    } else {
      kill(reason.within("channel of " + name()));
    }
  }
  report_exit_if_over();
}

void ProcessLink::report_exit_if_over() {
  if (child_.ended() && channel_closed()) report_exit(kill_reason_.ok() ? end_ : kill_reason_);
}

void ProcessLink::stop(Duration deadline) {
  send(StopProxy{});
  if (!child_.ended()) after(deadline, [this] { kill_on_timeout(); });
}

void ProcessLink::kill(Status reason) {
  if (child_.ended()) return;
  if (kill_reason_.ok()) kill_reason_ = std::move(reason);
  if (!is_ended_by(callbacks())) child_.kill();
}

void ProcessLink::end_now() {
  output_.reset();
  const auto callbacks = drop();
  const bool waits = !child_.ended() && is_ended_by(callbacks);
  child_.end(waits ? kMaxEnd : std::chrono::milliseconds(0));
}

}  // namespace

Result<std::unique_ptr<ProxyProcess>> ProxyProcess::start(const asio::any_io_executor& executor,
                                                          const ProxyOptions& options,
                                                          ProxyCallbacks callbacks) {
  GPULET_TRY(auto made, ProxyLink::make_ends());
  auto& [ours, theirs] = made;
  auto environment = options.environment;
  environment.insert(environment_without_share().begin(), environment_without_share().end());
  SpawnOptions spawned;
  spawned.arguments = {"--control-fd", "3", "--memory-fd", "4", "--files-fd", "5"};
  spawned.environment = std::move(environment);
  spawned.descriptors = {theirs.control.get(), theirs.memory.get(), theirs.files.get()};
  GPULET_TRY(auto process, start_program(options, std::move(spawned)));
  const auto link = std::make_shared<ProcessLink>(executor, process.id, options.in_background,
                                                  std::move(callbacks));
  if (Status watched = link->watch(); !watched.ok()) return watched;
  GPULET_TRY(auto output, read_output(executor, options, process));
  link->read(std::move(output));
  link->connect(std::move(ours));
  return std::unique_ptr<ProxyProcess>(
      std::make_unique<LinkedProxy<ProxyProcess, ProcessLink>>(link));
}

// ---- DeviceProcess

class DeviceProcess::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(const asio::any_io_executor& executor, pid_t process, FileDescriptor workers,
       bool in_background, OnEnd on_end)
      : child_(executor, process),
        workers_socket_(std::move(workers)),
        in_background_(in_background),
        on_end_(std::move(on_end)),
        deadline_(executor) {}

  [[nodiscard]] Status watch() {
    return child_.watch([this](const Status& how) { ended(how); });
  }
  void read(std::unique_ptr<ProcessOutput> output) { output_ = std::move(output); }
  [[nodiscard]] const ChildProcess& child() const { return child_; }
  // The reason for its end, once it has ended.
  [[nodiscard]] const Status& end() const { return end_; }
  [[nodiscard]] bool is_ending() const { return child_.ended() || ending_; }

  [[nodiscard]] Result<std::shared_ptr<Worker>> add_worker(ProxyCallbacks callbacks);
  void on_load() {
    if (std::exchange(in_background_, false) && !child_.ended()) raise_priority(child_.id());
  }
  void lose_device(const Status& why);
  void kill(Status reason);
  // Called by the owner's destructor.
  void end_now();

 private:
  void ended(const Status& how);

  ChildProcess child_;
  std::unique_ptr<ProcessOutput> output_;  // null: not read
  FileDescriptor workers_socket_;
  bool in_background_;
  OnEnd on_end_;
  asio::steady_timer deadline_;
  std::vector<std::weak_ptr<Worker>> workers_;
  bool ending_ = false;
  Status kill_reason_;  // not ok: it was killed
  Status end_;
};

// Reports the exit once its channel was read to the end and either the worker was to end or the
// process has ended: the end of the process must not be mistaken for the end of the worker.
class DeviceProcess::Worker : public ProxyLink {
 public:
  // `control` duplicates this end of the channel, to shut it down in one direction.
  Worker(const asio::any_io_executor& executor, std::shared_ptr<Impl> process,
         FileDescriptor control, ProxyCallbacks callbacks)
      : ProxyLink(executor, std::move(callbacks)),
        process_(std::move(process)),
        control_(std::move(control)) {}

  [[nodiscard]] pid_t process() const { return process_->child().id(); }
  [[nodiscard]] const ProcessEnd& process_end() const { return process_->child().process_end(); }
  void stop(Duration deadline);
  void kill(Status reason);
  void process_ended();
  // Called by the owner's destructor: ends the callbacks and the worker.
  void end_now() {
    static_cast<void>(drop());
    control_.reset();
  }

 private:
  void on_violation(const Status& why) override { kill(why); }
  void on_channel_closed(const Status& reason) override;
  void on_load() override { process_->on_load(); }
  void on_device_lost(const Status& why) override { process_->lose_device(why); }
  [[nodiscard]] std::string name() const override {
    return "a worker of " + process_->child().name();
  }

  void report_exit_if_over();
  void kill_process_on_timeout() {
    process_->kill(
        {StatusCode::timeout, name() + " did not end in time; killing the shared process"});
  }

  const std::shared_ptr<Impl> process_;
  FileDescriptor control_;
  bool stopping_ = false;
  Status exit_reason_;  // for on_exit, unless the process ended first
};

// ---- the process

Result<std::shared_ptr<DeviceProcess::Worker>> DeviceProcess::Impl::add_worker(
    ProxyCallbacks callbacks) {
  if (is_ending()) return Status(StatusCode::unavailable, child_.name() + " is ending");
  GPULET_TRY(auto made, ProxyLink::make_ends());
  auto& [ours, theirs] = made;
  FileDescriptor control(::fcntl(ours.control.get(), F_DUPFD_CLOEXEC, 0));
  const std::array<int, 3> given{theirs.control.get(), theirs.memory.get(), theirs.files.get()};
  if (!control.valid() || !send_descriptors(workers_socket_.get(), given)) {
    return Status(StatusCode::unavailable, fmt::format("cannot add a worker to {}: {}",
                                                       child_.name(), std::strerror(errno)));
  }
  std::erase_if(workers_, [](const auto& worker) { return worker.expired(); });
  auto worker = std::make_shared<Worker>(deadline_.get_executor(), shared_from_this(),
                                         std::move(control), std::move(callbacks));
  worker->connect(std::move(ours));
  workers_.push_back(worker);
  return worker;
}

// Gives the process time to end by itself.
void DeviceProcess::Impl::lose_device(const Status& why) {
  if (is_ending()) return;
  ending_ = true;
  deadline_.expires_after(kGracePeriod);
  deadline_.async_wait([weak = weak_from_this(), why](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (self != nullptr && !error) self->kill(why);
  });
}

void DeviceProcess::Impl::kill(Status reason) {
  if (child_.ended()) return;
  ending_ = true;
  if (kill_reason_.ok()) kill_reason_ = std::move(reason);
  child_.kill();
}

void DeviceProcess::Impl::ended(const Status& how) {
  const auto self = shared_from_this();  // the callback may destroy the owner
  deadline_.cancel();
  end_ = kill_reason_.ok() ? how : kill_reason_;
  if (output_ != nullptr) output_->finish();
  workers_socket_.reset();
  const auto on_end = std::exchange(on_end_, nullptr);
  if (on_end != nullptr) on_end(end_);
  for (const auto& weak : std::exchange(workers_, {})) {
    if (const auto worker = weak.lock()) worker->process_ended();
  }
}

void DeviceProcess::Impl::end_now() {
  on_end_ = nullptr;
  output_.reset();
  deadline_.cancel();
  if (child_.ended()) return;
  end_ = kill_reason_.ok() ? Status(StatusCode::cancelled, "its backend ends") : kill_reason_;
  child_.end(std::chrono::milliseconds(0));
  workers_socket_.reset();
}

// ---- a worker

void DeviceProcess::Worker::stop(Duration deadline) {
  send(StopProxy{});
  stopping_ = true;
  if (!channel_closed()) after(deadline, [this] { kill_process_on_timeout(); });
}

void DeviceProcess::Worker::kill(Status reason) {
  if (channel_closed()) return;
  if (exit_reason_.ok()) exit_reason_ = std::move(reason);
  stopping_ = true;
  if (!answered_load()) {
    // The worker notices the closed channel only between two models. Nothing waits for it.
    close_channel();
    control_.reset();
    return;
  }
  ::shutdown(control_.get(), SHUT_WR);  // the worker closes its end when it has ended
  after(kGracePeriod, [this] { kill_process_on_timeout(); });
}

void DeviceProcess::Worker::on_channel_closed(const Status& reason) {
  control_.reset();
  if (!stopping_) {
    exit_reason_ = is_end(reason) ? Status(StatusCode::unavailable, name() + " ended by itself")
                                  : reason.within("channel of " + name());
  }
  // Waits to see whether the process is ending, too.
  if (!stopping_ && !process_->is_ending()) {
    after(kGracePeriod, [this] {
      stopping_ = true;
      report_exit_if_over();
    });
  }
  report_exit_if_over();
}

void DeviceProcess::Worker::process_ended() {
  const auto self = shared_from_this();  // the callback may destroy the owner
  if (!channel_closed()) after(kGracePeriod, [this] { close_channel(); });
  report_exit_if_over();
}

void DeviceProcess::Worker::report_exit_if_over() {
  if (!channel_closed()) return;
  if (process_->child().ended()) {
    report_exit(stopping_ && !exit_reason_.ok() ? exit_reason_ : process_->end());
  } else if (stopping_ && !process_->is_ending()) {
    report_exit(exit_reason_);
  }
}

// ---- the public class

Result<std::unique_ptr<DeviceProcess>> DeviceProcess::start(const asio::any_io_executor& executor,
                                                            const ProxyOptions& options,
                                                            OnEnd on_end) {
  FileDescriptor ours;
  FileDescriptor theirs;
  if (Status made = make_socket_pair(SOCK_SEQPACKET, ours, theirs); !made.ok()) return made;
  SpawnOptions spawned;
  spawned.arguments = {"--lanes-fd", "3"};
  spawned.environment = environment_without_share();
  spawned.descriptors = {theirs.get()};
  GPULET_TRY(auto process, start_program(options, std::move(spawned)));
  auto impl = std::make_shared<Impl>(executor, process.id, std::move(ours), options.in_background,
                                     std::move(on_end));
  if (Status watched = impl->watch(); !watched.ok()) return watched;
  GPULET_TRY(auto output, read_output(executor, options, process));
  impl->read(std::move(output));
  return std::unique_ptr<DeviceProcess>(new DeviceProcess(std::move(impl)));
}

DeviceProcess::DeviceProcess(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceProcess::~DeviceProcess() { impl_->end_now(); }

pid_t DeviceProcess::pid() const { return impl_->child().id(); }
bool DeviceProcess::accepts_workers() const { return !impl_->is_ending(); }
Result<std::unique_ptr<Proxy>> DeviceProcess::add_worker(ProxyCallbacks callbacks) {
  GPULET_TRY(auto worker, impl_->add_worker(std::move(callbacks)));
  return std::unique_ptr<Proxy>(std::make_unique<LinkedProxy<Proxy, Worker>>(std::move(worker)));
}
void DeviceProcess::kill(Status reason) { impl_->kill(std::move(reason)); }

}  // namespace gpulet::backend

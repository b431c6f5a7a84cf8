#include "gpulet/backend/device_process.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "backend/child_process.h"
#include "backend/proxy_link.h"
#include "backend/spawn.h"

namespace gpulet::backend {

namespace asio = net::asio;

class DeviceProcess::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(const asio::any_io_executor& executor, pid_t process, FileDescriptor lanes,
       bool in_background, OnEnd on_end)
      : child_(executor, process),
        lanes_socket_(std::move(lanes)),
        in_background_(in_background),
        on_end_(std::move(on_end)),
        deadline_(executor) {}

  [[nodiscard]] Status watch() {
    return child_.watch([this](const Status& how) { ended(how); });
  }
  [[nodiscard]] const ChildProcess& child() const { return child_; }
  // What it ended for, once it has.
  [[nodiscard]] const Status& end() const { return end_; }
  [[nodiscard]] bool is_ending() const { return child_.ended() || must_end_; }

  [[nodiscard]] Result<std::shared_ptr<Lane>> add_lane(ProxyCallbacks callbacks);
  void load_begins() {
    if (std::exchange(in_background_, false) && !child_.ended()) raise_priority(child_.id());
  }
  void lose_device(const Status& why);
  void kill(Status reason);
  // The owner is going.
  void end_now();

 private:
  void ended(const Status& how);

  ChildProcess child_;
  FileDescriptor lanes_socket_;
  bool in_background_;
  OnEnd on_end_;
  asio::steady_timer deadline_;
  std::vector<std::weak_ptr<Lane>> lanes_;
  bool must_end_ = false;
  Status killed_for_;  // not ok: why
  Status end_;
};

// It has ended for its owner when its channel was read to the end, and either it was to end, or the
// process has ended: nothing that happens to the process is taken for its own end.
class DeviceProcess::Lane : public ProxyLink {
 public:
  // `control` is the channel's end a second time: to be closed in one direction.
  Lane(const asio::any_io_executor& executor, std::shared_ptr<Impl> process, FileDescriptor control,
       ProxyCallbacks callbacks)
      : ProxyLink(executor, std::move(callbacks)),
        process_(std::move(process)),
        control_(std::move(control)) {}

  [[nodiscard]] pid_t process() const { return process_->child().id(); }
  [[nodiscard]] const ProcessEnd& process_end() const { return process_->child().process_end(); }
  void stop(Duration deadline);
  void kill(Status reason);
  void process_ended();
  // The owner is going: no more callbacks, no lane.
  void end_now() {
    static_cast<void>(drop());
    control_.reset();
  }

 private:
  void broken(const Status& why) override { kill(why); }
  void closed(const Status& reason) override;
  void loads() override { process_->load_begins(); }
  void lost_device(const Status& why) override { process_->lose_device(why); }
  [[nodiscard]] std::string name() const override {
    return "a lane of " + process_->child().name();
  }

  void tell_exit_when_over();
  void end_process_late() {
    process_->kill({StatusCode::timeout, name() + " did not end in time, and takes it along"});
  }

  const std::shared_ptr<Impl> process_;
  FileDescriptor control_;
  bool is_to_end_ = false;
  Status ended_for_;  // what on_exit will tell, unless the process ended under it
};

// ---- the process

Result<std::shared_ptr<DeviceProcess::Lane>> DeviceProcess::Impl::add_lane(
    ProxyCallbacks callbacks) {
  if (is_ending()) return Status(StatusCode::unavailable, child_.name() + " is ending");
  auto made = ProxyLink::make_ends();
  if (!made.ok()) return made.status();
  auto& [ours, theirs] = made.value();
  FileDescriptor control(::fcntl(ours.control.get(), F_DUPFD_CLOEXEC, 0));
  const std::array<int, 3> given{theirs.control.get(), theirs.memory.get(), theirs.files.get()};
  if (!control.valid() || !send_descriptors(lanes_socket_.get(), given)) {
    return Status(StatusCode::unavailable,
                  "cannot give " + child_.name() + " a lane: " + std::strerror(errno));
  }
  std::erase_if(lanes_, [](const auto& lane) { return lane.expired(); });
  auto lane = std::make_shared<Lane>(deadline_.get_executor(), shared_from_this(),
                                     std::move(control), std::move(callbacks));
  lane->connect(std::move(ours));
  lanes_.push_back(lane);
  return lane;
}

// It ends by itself where it can.
void DeviceProcess::Impl::lose_device(const Status& why) {
  if (is_ending()) return;
  must_end_ = true;
  deadline_.expires_after(kGrace);
  deadline_.async_wait([weak = weak_from_this(), why](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (self != nullptr && !error) self->kill(why);
  });
}

void DeviceProcess::Impl::kill(Status reason) {
  if (child_.ended()) return;
  must_end_ = true;
  if (killed_for_.ok()) killed_for_ = std::move(reason);
  child_.kill();
}

void DeviceProcess::Impl::ended(const Status& how) {
  const auto alive = shared_from_this();  // the callback may drop the owner
  deadline_.cancel();
  end_ = killed_for_.ok() ? how : killed_for_;
  lanes_socket_.reset();
  const auto on_end = std::exchange(on_end_, nullptr);
  if (on_end != nullptr) on_end(end_);
  for (const auto& weak : std::exchange(lanes_, {})) {
    if (const auto lane = weak.lock()) lane->process_ended();
  }
}

void DeviceProcess::Impl::end_now() {
  on_end_ = nullptr;
  deadline_.cancel();
  if (child_.ended()) return;
  end_ = killed_for_.ok() ? Status(StatusCode::cancelled, "its backend ends") : killed_for_;
  child_.end(std::chrono::milliseconds(0));
  lanes_socket_.reset();
}

// ---- a lane

void DeviceProcess::Lane::stop(Duration deadline) {
  send(serve::StopProxy{});
  is_to_end_ = true;
  if (!channel_closed()) after(deadline, [this] { end_process_late(); });
}

void DeviceProcess::Lane::kill(Status reason) {
  if (channel_closed()) return;
  if (ended_for_.ok()) ended_for_ = std::move(reason);
  is_to_end_ = true;
  if (!answered_load()) {
    // It may load for long, and hears of this between two models; nothing waits for that.
    close_channel();
    control_.reset();
    return;
  }
  ::shutdown(control_.get(), SHUT_WR);  // its end of the channel tells when it is gone
  after(kGrace, [this] { end_process_late(); });
}

void DeviceProcess::Lane::closed(const Status& reason) {
  const auto code = reason.code();
  const bool by_itself = code == StatusCode::cancelled || code == StatusCode::unavailable;
  control_.reset();
  if (!is_to_end_ && !by_itself) ended_for_ = reason.within("channel of " + name());
  if (!is_to_end_ && by_itself) ended_for_ = {StatusCode::unavailable, name() + " ended by itself"};
  // How the process ends, if that is it, will be known in a moment.
  if (!is_to_end_ && !process_->is_ending()) {
    after(kGrace, [this] {
      is_to_end_ = true;
      tell_exit_when_over();
    });
  }
  tell_exit_when_over();
}

void DeviceProcess::Lane::process_ended() {
  const auto alive = shared_from_this();  // the callback may drop the owner
  if (!channel_closed()) after(kGrace, [this] { close_channel(); });
  tell_exit_when_over();
}

void DeviceProcess::Lane::tell_exit_when_over() {
  if (!channel_closed()) return;
  if (process_->child().ended()) {
    tell_exit(is_to_end_ && !ended_for_.ok() ? ended_for_ : process_->end());
  } else if (is_to_end_ && !process_->is_ending()) {
    tell_exit(ended_for_);
  }
}

// ---- as others see them

class DeviceProcess::LaneProxy final : public Proxy {
 public:
  explicit LaneProxy(std::shared_ptr<Lane> lane) : lane_(std::move(lane)) {}
  ~LaneProxy() override { lane_->end_now(); }
  LaneProxy(const LaneProxy&) = delete;
  LaneProxy& operator=(const LaneProxy&) = delete;

  [[nodiscard]] pid_t pid() const override { return lane_->process(); }
  [[nodiscard]] ProcessEnd process_end() const override { return lane_->process_end(); }
  [[nodiscard]] Status load(serve::LoadModels models, const SlotOptions& slots) override {
    return lane_->load(std::move(models), slots);
  }
  [[nodiscard]] std::optional<MutableBytes> take_slot(std::size_t bytes) override {
    return lane_->take_slot(bytes);
  }
  [[nodiscard]] bool holds(const Bytes& input) const override { return lane_->holds(input); }
  void run(serve::RunBatch batch, Bytes input) override {
    lane_->run(std::move(batch), std::move(input));
  }
  void stop(Duration deadline) override { lane_->stop(deadline); }
  void kill(Status reason) override { lane_->kill(std::move(reason)); }

 private:
  const std::shared_ptr<Lane> lane_;  // shared with operations in flight
};

Result<std::unique_ptr<DeviceProcess>> DeviceProcess::start(const asio::any_io_executor& executor,
                                                            const ProxyOptions& options,
                                                            OnEnd on_end) {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return Status(StatusCode::unavailable,
                  std::string("cannot make a socket pair: ") + std::strerror(errno));
  }
  FileDescriptor ours(ends[0]);
  const FileDescriptor theirs(ends[1]);
  const auto process = spawn({options.program,
                              {"--lanes-fd", "3"},
                              environment_of_nobody(),
                              {theirs.get()},
                              options.in_background,
                              options.user,
                              options.confinement});
  if (!process.ok()) return process.status();
  auto impl = std::make_shared<Impl>(executor, process.value(), std::move(ours),
                                     options.in_background, std::move(on_end));
  auto watched = impl->watch();
  if (!watched.ok()) return watched;
  return std::unique_ptr<DeviceProcess>(new DeviceProcess(std::move(impl)));
}

DeviceProcess::DeviceProcess(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceProcess::~DeviceProcess() { impl_->end_now(); }

pid_t DeviceProcess::pid() const { return impl_->child().id(); }
bool DeviceProcess::takes_lanes() const { return !impl_->is_ending(); }
Result<std::unique_ptr<Proxy>> DeviceProcess::add_lane(ProxyCallbacks callbacks) {
  auto lane = impl_->add_lane(std::move(callbacks));
  if (!lane.ok()) return lane.status();
  return std::unique_ptr<Proxy>(std::make_unique<LaneProxy>(std::move(lane).value()));
}
void DeviceProcess::kill(Status reason) { impl_->kill(std::move(reason)); }

}  // namespace gpulet::backend

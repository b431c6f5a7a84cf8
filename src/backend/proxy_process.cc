#include "gpulet/backend/proxy_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "backend/file_descriptor.h"
#include "backend/slot_memory.h"
#include "backend/spawn.h"
#include "gpulet/net/codec/codec.h"
#include "gpulet/net/connection.h"

namespace gpulet::backend {
namespace {

namespace asio = net::asio;
using boost::system::error_code;

// The other side of a closed channel must end, and the channel of an ended process must close,
// within this time: what takes longer has a descendant that holds on to it.
constexpr Duration kGrace = std::chrono::seconds(2);
// Somebody else ends the process: for so long the owner, who is going, waits for that.
constexpr std::chrono::milliseconds kLongestEnd = std::chrono::seconds(10);

// Numeric libraries make their threads when the program starts; a share may allow it more than one
// thread later, by the environment that comes with its models.
const std::map<std::string, std::string>& environment_of_nobody() {
  static const std::map<std::string, std::string> environment{
      {"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}, {"MKL_NUM_THREADS", "1"}};
  return environment;
}

Status system_failure(const std::string& what) {
  return {StatusCode::unavailable, what + ": " + std::strerror(errno)};
}

struct SocketPair {
  FileDescriptor ours;
  FileDescriptor theirs;
};

Result<SocketPair> make_socket_pair(int type) {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return system_failure("cannot make a socket pair");
  return SocketPair{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

// The file as an open descriptor, in a message of its own.
Status send_file(int socket, const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return system_failure("cannot read " + path);
  const int descriptor = file.get();
  char nothing = 0;
  iovec text{&nothing, 1};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof descriptor)> control{};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  // A proxy that is gone shows on its other channel.
  const bool sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
  if (sent || errno == EPIPE || errno == ECONNRESET) return {};
  return system_failure("cannot give a proxy " + path);
}

}  // namespace

// The process has ended for the owner when both are true: it was reaped, and its channel was read
// to the end.
class ProxyProcess::Impl : public std::enable_shared_from_this<Impl>,
                           private net::ConnectionHandler {
 public:
  Impl(const asio::any_io_executor& executor, FileDescriptor memory_file, FileDescriptor files,
       pid_t process, bool in_background, ProxyCallbacks callbacks)
      : memory_file_(std::move(memory_file)),
        files_(std::move(files)),
        process_(process),
        in_background_(in_background),
        callbacks_(std::move(callbacks)),
        exit_watch_(executor),
        deadline_(executor) {}
  ~Impl() override { end_now(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] Status watch(FileDescriptor channel);
  [[nodiscard]] pid_t process() const { return process_; }
  // Null before load().
  [[nodiscard]] SlotMemory* memory() { return memory_.get(); }
  void hand_over(ProxyCallbacks callbacks) { callbacks_ = std::move(callbacks); }
  [[nodiscard]] Status load(serve::LoadModels models, const SlotOptions& slots);
  void send(const serve::ProxyCommand& command) {
    if (connection_ != nullptr) connection_->send(net::encode(command));
  }
  void run(serve::RunBatch batch, Bytes input);
  void stop(Duration deadline);
  void kill(Status reason);
  // The owner is going: no more callbacks, no process.
  void end_now();

 private:
  struct InFlight {
    BatchId id;
    Bytes input;
  };

  Result<MutableBytes> payload_memory(const net::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  void on_closed(const Status& reason) override;

  void on_message(serve::ProxyIdle& idle);
  void on_message(serve::ProxyReady& ready);
  void on_message(serve::BatchRan& ran);
  void wait_for_exit();
  void reap();
  void tell_exit_when_over();
  void after(Duration delay, void (Impl::*then)());
  void kill_late();
  void close_late();
  // Whether somebody else ends it.
  [[nodiscard]] bool is_seen_to(const ProxyCallbacks& callbacks) const {
    return memory_ != nullptr && callbacks.end != nullptr && callbacks.end(process_);
  }

  FileDescriptor memory_file_;  // until load()
  FileDescriptor files_;        // until load(): models' files are sent over it
  std::shared_ptr<SlotMemory> memory_;
  const pid_t process_;
  const bool in_background_;
  ProxyCallbacks callbacks_;
  asio::posix::stream_descriptor exit_watch_;  // a pidfd: readable once the process has ended
  asio::steady_timer deadline_;
  std::shared_ptr<net::Connection> connection_;
  std::deque<InFlight> in_flight_;  // in the order sent, which is the order of the answers
  Status killed_for_;               // not ok: why
  Status ended_;                    // how, once reaped_
  bool reaped_ = false;
  bool channel_closed_ = false;
};

Status ProxyProcess::Impl::watch(FileDescriptor channel) {
  FileDescriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process_, 0)));
  if (!pidfd.valid()) return system_failure("cannot watch process " + std::to_string(process_));
  exit_watch_.assign(pidfd.release());
  wait_for_exit();

  asio::local::stream_protocol::socket socket(exit_watch_.get_executor());
  socket.assign(asio::local::stream_protocol(), channel.release());
  connection_ =
      net::Connection::start(net::StreamSocket(std::move(socket)), net::ConnectionOptions(), *this);
  return {};
}

void ProxyProcess::Impl::wait_for_exit() {
  exit_watch_.async_wait(asio::posix::stream_descriptor::wait_read,
                         [weak = weak_from_this()](const error_code& error) {
                           const auto self = weak.lock();
                           if (self != nullptr && !error) self->reap();
                         });
}

void ProxyProcess::Impl::reap() {
  int status = 0;
  if (reaped_) return;
  if (::waitpid(process_, &status, WNOHANG) != process_) {
    // Asio may deliver an event of the descriptor that had this number before.
    wait_for_exit();
    return;
  }
  reaped_ = true;
  ended_ = describe_end(process_, status);
  if (!channel_closed_) after(kGrace, &Impl::close_late);
  tell_exit_when_over();
}

void ProxyProcess::Impl::on_closed(const Status& reason) {
  channel_closed_ = true;
  connection_.reset();
  if (!reaped_) {
    // Closed or broken (cancelled, unavailable): it is ending, and how will be known in a moment.
    const auto code = reason.code();
    if (code == StatusCode::cancelled || code == StatusCode::unavailable) {
      after(kGrace, &Impl::kill_late);
    } else {
      kill(reason.within("channel of process " + std::to_string(process_)));
    }
  }
  tell_exit_when_over();
}

void ProxyProcess::Impl::tell_exit_when_over() {
  if (!reaped_ || !channel_closed_) return;
  deadline_.cancel();
  const auto on_exit = std::exchange(callbacks_.on_exit, nullptr);
  if (on_exit != nullptr) on_exit(killed_for_.ok() ? ended_ : killed_for_);
}

void ProxyProcess::Impl::after(Duration delay, void (Impl::*then)()) {
  deadline_.expires_after(delay);
  deadline_.async_wait([weak = weak_from_this(), then](const error_code& error) {
    const auto self = weak.lock();
    if (self != nullptr && !error) (self.get()->*then)();
  });
}

void ProxyProcess::Impl::kill_late() {
  kill({StatusCode::timeout, "process " + std::to_string(process_) + " did not end in time"});
}

void ProxyProcess::Impl::close_late() {
  if (connection_ != nullptr) {
    connection_->close({StatusCode::timeout, "the channel of an ended process stayed open"});
  }
}

Result<MutableBytes> ProxyProcess::Impl::payload_memory(const net::FrameHeader& header,
                                                        std::span<const std::byte> /*message*/) {
  return Status(StatusCode::malformed,
                "a proxy sends no payload; had " + std::to_string(header.payload_bytes) + " bytes");
}

void ProxyProcess::Impl::on_frame(const net::FrameHeader& header,
                                  std::span<const std::byte> message, MutableBytes /*payload*/) {
  auto decoded = net::decode_proxy_message(header, message);
  if (!decoded.ok()) {
    kill(decoded.status());
    return;
  }
  const auto alive = shared_from_this();  // the callback may drop the owner
  std::visit([this](auto& kind) { on_message(kind); }, decoded.value());
}

void ProxyProcess::Impl::on_message(serve::ProxyIdle& /*idle*/) {
  if (callbacks_.on_idle != nullptr) callbacks_.on_idle();
}

void ProxyProcess::Impl::on_message(serve::ProxyReady& ready) {
  if (callbacks_.on_ready != nullptr) callbacks_.on_ready(std::move(ready));
}

void ProxyProcess::Impl::on_message(serve::BatchRan& ran) {
  const auto name = "process " + std::to_string(process_);
  if (in_flight_.empty() || in_flight_.front().id != ran.id) {
    kill({StatusCode::malformed,
          name + " answered batch " + std::to_string(ran.id.value) + " out of turn"});
    return;
  }
  const auto input = std::move(in_flight_.front().input);
  in_flight_.pop_front();
  if (ran.output_bytes > memory_->slot_of(input)->output_capacity) {
    kill({StatusCode::malformed, name + " tells of " + std::to_string(ran.output_bytes) +
                                     " output bytes, more than it had room for"});
    return;
  }
  auto outputs = ran.status.ok() ? memory_->outputs_beside(input, ran.output_bytes) : Bytes();
  if (callbacks_.on_ran != nullptr) callbacks_.on_ran(std::move(ran), std::move(outputs));
}

Status ProxyProcess::Impl::load(serve::LoadModels models, const SlotOptions& slots) {
  auto memory = SlotMemory::create(std::move(memory_file_), slots.slots, slots.input_capacity,
                                   slots.output_capacity);
  if (!memory.ok()) return memory.status();
  memory_ = std::move(memory).value();
  for (const auto& model : models.models) {
    if (model.file.empty()) continue;
    auto sent = send_file(files_.get(), model.file);
    if (!sent.ok()) return sent.within("model '" + model.name + "'");
  }
  files_.reset();
  models.memory_bytes = memory_->size();
  if (in_background_ && !reaped_) raise_priority(process_);
  send(std::move(models));
  return {};
}

void ProxyProcess::Impl::run(serve::RunBatch batch, Bytes input) {
  const auto slot = memory_->slot_of(input).value();
  batch.input_offset = slot.input_offset;
  batch.input_bytes = input.size();
  batch.output_offset = slot.output_offset;
  batch.output_capacity = slot.output_capacity;
  in_flight_.push_back({batch.id, std::move(input)});
  send(std::move(batch));
}

void ProxyProcess::Impl::stop(Duration deadline) {
  send(serve::StopProxy{});
  if (!reaped_) after(deadline, &Impl::kill_late);
}

void ProxyProcess::Impl::kill(Status reason) {
  if (reaped_) return;
  if (killed_for_.ok()) killed_for_ = std::move(reason);
  if (is_seen_to(callbacks_)) return;
  ::kill(process_, SIGKILL);  // not reaped yet: the id is still its own
}

void ProxyProcess::Impl::end_now() {
  const auto callbacks = std::exchange(callbacks_, {});
  connection_.reset();
  deadline_.cancel();
  if (!reaped_ && is_seen_to(callbacks)) {
    pollfd ended{exit_watch_.native_handle(), POLLIN, 0};
    ::poll(&ended, 1, static_cast<int>(kLongestEnd.count()));
  }
  error_code ignored;
  exit_watch_.close(ignored);
  if (reaped_) return;
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
  reaped_ = true;
}

Result<std::unique_ptr<ProxyProcess>> ProxyProcess::start(const asio::any_io_executor& executor,
                                                          const ProxyOptions& options,
                                                          ProxyCallbacks callbacks) {
  auto memory = SlotMemory::make_file();
  if (!memory.ok()) return memory.status();
  auto control = make_socket_pair(SOCK_STREAM);
  if (!control.ok()) return control.status();
  auto files = make_socket_pair(SOCK_SEQPACKET);
  if (!files.ok()) return files.status();
  const auto process =
      spawn({options.program,
             {"--control-fd", "3", "--memory-fd", "4", "--files-fd", "5"},
             environment_of_nobody(),
             {control.value().theirs.get(), memory.value().get(), files.value().theirs.get()},
             options.in_background,
             options.user});
  if (!process.ok()) return process.status();
  auto impl =
      std::make_shared<Impl>(executor, std::move(memory).value(), std::move(files.value().ours),
                             process.value(), options.in_background, std::move(callbacks));
  auto watched = impl->watch(std::move(control.value().ours));
  if (!watched.ok()) return watched;
  return std::unique_ptr<ProxyProcess>(new ProxyProcess(std::move(impl)));
}

ProxyProcess::ProxyProcess(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
ProxyProcess::~ProxyProcess() { impl_->end_now(); }

pid_t ProxyProcess::pid() const { return impl_->process(); }
void ProxyProcess::hand_over(ProxyCallbacks callbacks) { impl_->hand_over(std::move(callbacks)); }
Status ProxyProcess::load(serve::LoadModels models, const SlotOptions& slots) {
  return impl_->load(std::move(models), slots);
}
std::optional<MutableBytes> ProxyProcess::take_slot(std::size_t bytes) {
  auto* const memory = impl_->memory();
  return memory == nullptr ? std::nullopt : memory->take(bytes);
}
bool ProxyProcess::holds(const Bytes& input) const {
  const auto* const memory = impl_->memory();
  return memory != nullptr && memory->slot_of(input).has_value();
}
void ProxyProcess::run(serve::RunBatch batch, Bytes input) {
  impl_->run(std::move(batch), std::move(input));
}
void ProxyProcess::stop(Duration deadline) { impl_->stop(deadline); }
void ProxyProcess::kill(Status reason) { impl_->kill(std::move(reason)); }

}  // namespace gpulet::backend

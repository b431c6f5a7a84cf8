#include "backend/proxy_link.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <variant>

#include "gpulet/net/codec/codec.h"

namespace gpulet::backend {
namespace {

namespace asio = net::asio;
using boost::system::error_code;

Status system_failure(const std::string& what) {
  return {StatusCode::unavailable, what + ": " + std::strerror(errno)};
}

Status make_pair(int type, FileDescriptor& ours, FileDescriptor& theirs) {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return system_failure("cannot make a socket pair");
  ours = FileDescriptor(ends[0]);
  theirs = FileDescriptor(ends[1]);
  return {};
}

// The file as an open descriptor, in a message of its own.
Status send_file(int socket, const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid())
    return {StatusCode::not_found, "cannot read " + path + ": " + std::strerror(errno)};
  const std::array<int, 1> descriptors{file.get()};
  if (send_descriptors(socket, descriptors)) return {};
  return system_failure("cannot give a proxy " + path);
}

}  // namespace

bool send_descriptors(int socket, std::span<const int> descriptors) {
  constexpr std::size_t kMost = 3;
  char nothing = 0;
  iovec text{&nothing, 1};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMost * sizeof(int))> control{};
  const std::size_t count = std::min(descriptors.size(), kMost);
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(count * sizeof(int));
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(count * sizeof(int));
  std::memcpy(CMSG_DATA(rights), descriptors.data(), count * sizeof(int));
  const bool sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
  return sent || errno == EPIPE || errno == ECONNRESET;
}

Result<ProxyLink::Made> ProxyLink::make_ends() {
  Made made;
  auto memory = SlotMemory::make_file();
  if (!memory.ok()) return memory.status();
  made.ours.memory = std::move(memory).value();
  made.theirs.memory = FileDescriptor(::fcntl(made.ours.memory.get(), F_DUPFD_CLOEXEC, 0));
  if (!made.theirs.memory.valid()) return system_failure("cannot share memory");
  auto paired = make_pair(SOCK_STREAM, made.ours.control, made.theirs.control);
  if (paired.ok()) paired = make_pair(SOCK_SEQPACKET, made.ours.files, made.theirs.files);
  if (!paired.ok()) return paired;
  return made;
}

ProxyLink::ProxyLink(const asio::any_io_executor& executor, ProxyCallbacks callbacks)
    : callbacks_(std::move(callbacks)), deadline_(executor) {}

void ProxyLink::connect(ProxyEnds ours) {
  memory_file_ = std::move(ours.memory);
  files_ = std::move(ours.files);
  asio::local::stream_protocol::socket socket(deadline_.get_executor());
  socket.assign(asio::local::stream_protocol(), ours.control.release());
  connection_ =
      net::Connection::start(net::StreamSocket(std::move(socket)), net::ConnectionOptions(), *this);
}

Status ProxyLink::load(serve::LoadModels models, const SlotOptions& slots) {
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
  loads();
  send(std::move(models));
  return {};
}

std::optional<MutableBytes> ProxyLink::take_slot(std::size_t bytes) {
  return memory_ == nullptr ? std::nullopt : memory_->take(bytes);
}

bool ProxyLink::holds(const Bytes& input) const {
  return memory_ != nullptr && memory_->slot_of(input).has_value();
}

void ProxyLink::run(serve::RunBatch batch, Bytes input) {
  const auto slot = memory_->slot_of(input).value();
  batch.input_offset = slot.input_offset;
  batch.input_bytes = input.size();
  batch.output_offset = slot.output_offset;
  batch.output_capacity = slot.output_capacity;
  in_flight_.push_back({batch.id, std::move(input)});
  send(std::move(batch));
}

void ProxyLink::send(const serve::ProxyCommand& command) {
  if (connection_ != nullptr) connection_->send(net::encode(command));
}

ProxyCallbacks ProxyLink::drop() {
  connection_.reset();
  deadline_.cancel();
  return std::exchange(callbacks_, {});
}

void ProxyLink::tell_exit(const Status& reason) {
  deadline_.cancel();
  const auto on_exit = std::exchange(callbacks_.on_exit, nullptr);
  if (on_exit != nullptr) on_exit(reason);
}

void ProxyLink::after(Duration delay, std::function<void()> then) {
  deadline_.expires_after(delay);
  deadline_.async_wait([weak = weak_from_this(), then = std::move(then)](const error_code& error) {
    const auto self = weak.lock();
    if (self != nullptr && !error) then();
  });
}

void ProxyLink::close_channel() {
  if (connection_ != nullptr)
    connection_->close({StatusCode::timeout, "the channel of " + name() + " stayed open"});
}

// ---- what comes

Result<MutableBytes> ProxyLink::payload_memory(const net::FrameHeader& header,
                                               std::span<const std::byte> /*message*/) {
  return Status(StatusCode::malformed,
                "a proxy sends no payload; had " + std::to_string(header.payload_bytes) + " bytes");
}

void ProxyLink::on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                         MutableBytes /*payload*/) {
  auto decoded = net::decode_proxy_message(header, message);
  if (!decoded.ok()) {
    broken(decoded.status());
    return;
  }
  const auto alive = shared_from_this();  // the callback may drop the owner
  std::visit([this](auto& kind) { on_message(kind); }, decoded.value());
}

void ProxyLink::on_closed(const Status& reason) {
  const auto alive = shared_from_this();
  channel_closed_ = true;
  connection_.reset();
  closed(reason);
}

void ProxyLink::on_message(serve::ProxyIdle& /*idle*/) {
  if (callbacks_.on_idle != nullptr) callbacks_.on_idle();
}

void ProxyLink::on_message(serve::ProxyReady& ready) {
  answered_load_ = true;
  if (ready.device == partition::DeviceHealth::lost) lost_device(ready.status);
  if (callbacks_.on_ready != nullptr) callbacks_.on_ready(std::move(ready));
}

void ProxyLink::on_message(serve::BatchRan& ran) {
  if (in_flight_.empty() || in_flight_.front().id != ran.id) {
    broken({StatusCode::malformed,
            name() + " answered batch " + std::to_string(ran.id.value) + " out of turn"});
    return;
  }
  const auto input = std::move(in_flight_.front().input);
  in_flight_.pop_front();
  if (ran.output_bytes > memory_->slot_of(input)->output_capacity) {
    broken({StatusCode::malformed, name() + " tells of " + std::to_string(ran.output_bytes) +
                                       " output bytes, more than it had room for"});
    return;
  }
  if (ran.device == partition::DeviceHealth::lost) lost_device(ran.status);
  auto outputs = ran.status.ok() ? memory_->outputs_beside(input, ran.output_bytes) : Bytes();
  if (callbacks_.on_ran != nullptr) callbacks_.on_ran(std::move(ran), std::move(outputs));
}

}  // namespace gpulet::backend

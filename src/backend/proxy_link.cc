#include "backend/proxy_link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>
#include <variant>

#include "gpulet/protocol/codec.h"
#include "gpulet/protocol/proxy_messages.h"

namespace gpulet::backend {

// ---- the memory

namespace {

constexpr std::uint32_t kMaxSlots = 64;  // the bits of taken_

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes == 0 ? 1 : (bytes + page - 1) / page) * page;
}

Status system_failure(const std::string& what) {
  return {StatusCode::unavailable, fmt::format("{}: {}", what, std::strerror(errno))};
}

Status no_memory(const char* verb, std::size_t bytes) {
  return system_failure(fmt::format("cannot {} {} bytes of shared memory", verb, bytes));
}

}  // namespace

Result<FileDescriptor> SlotMemory::make_file() {
  FileDescriptor file(::memfd_create("gpulet-slots", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return no_memory("create a file of", 0);
  return file;
}

Result<std::shared_ptr<SlotMemory>> SlotMemory::create(FileDescriptor file, std::uint32_t slots,
                                                       std::size_t input_capacity,
                                                       std::size_t output_capacity) {
  constexpr auto kMaxCapacity =
      std::numeric_limits<std::size_t>::max() / (std::size_t{4} * kMaxSlots);
  if (slots == 0 || slots > kMaxSlots || input_capacity > kMaxCapacity ||
      output_capacity > kMaxCapacity) {
    return Status(StatusCode::invalid,
                  fmt::format("shared memory has 1..{} slots; requested were {} of {} and {} bytes",
                              kMaxSlots, slots, input_capacity, output_capacity));
  }
  const auto input_bytes = whole_pages(input_capacity);
  const auto output_bytes = whole_pages(output_capacity);
  const auto size = slots * (input_bytes + output_bytes);
  if (::ftruncate(file.get(), static_cast<off_t>(size)) != 0) return no_memory("reserve", size);
  // Access to a file that the proxy has shrunk would cause a SIGBUS here.
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return no_memory("seal", size);
  struct stat sealed {};
  if (::fstat(file.get(), &sealed) != 0) return no_memory("check", size);
  if (static_cast<std::size_t>(sealed.st_size) != size) {
    return Status(
        StatusCode::unavailable,
        fmt::format("the proxy changed the size of its shared memory to {} bytes", sealed.st_size));
  }
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) return no_memory("map", size);
  return std::shared_ptr<SlotMemory>(
      new SlotMemory({static_cast<std::byte*>(address), size}, slots, input_bytes, output_bytes));
}

SlotMemory::SlotMemory(std::span<std::byte> bytes, std::uint32_t slots, std::size_t input_bytes,
                       std::size_t output_bytes)
    : bytes_(bytes),
      slots_(slots),
      input_bytes_(input_bytes),
      output_bytes_(output_bytes),
      zeros_(slots, 0) {}

SlotMemory::~SlotMemory() { ::munmap(bytes_.data(), bytes_.size()); }

std::optional<std::uint32_t> SlotMemory::take_free(std::size_t bytes) {
  if (bytes > input_bytes_) return std::nullopt;
  const auto taken = taken_.load(std::memory_order_acquire);
  for (std::uint32_t slot = 0; slot < slots_; ++slot) {
    const auto bit = std::uint64_t{1} << slot;
    if ((taken & bit) != 0) continue;
    taken_.fetch_or(bit, std::memory_order_relaxed);
    return slot;
  }
  return std::nullopt;
}

MutableBytes SlotMemory::input_of(std::uint32_t slot, std::size_t bytes) {
  auto* begin = bytes_.data() + slot * (input_bytes_ + output_bytes_);
  // Release order: all access to the slot must happen before the next take.
  std::shared_ptr<void> owner(static_cast<void*>(begin), [self = shared_from_this(), slot](void*) {
    self->taken_.fetch_and(~(std::uint64_t{1} << slot), std::memory_order_release);
  });
  return MutableBytes(std::move(owner), {begin, bytes});
}

std::optional<MutableBytes> SlotMemory::take(std::size_t bytes) {
  const auto slot = take_free(bytes);
  if (!slot) return std::nullopt;
  zeros_[*slot] = 0;
  return input_of(*slot, bytes);
}

std::optional<MutableBytes> SlotMemory::take_zeros(std::size_t bytes) {
  const auto slot = take_free(bytes);
  if (!slot) return std::nullopt;
  return input_of(*slot, bytes);
}

std::size_t SlotMemory::number_of(const Bytes& input) const {
  return static_cast<std::size_t>(input.view().data() - bytes_.data()) /
         (input_bytes_ + output_bytes_);
}

bool SlotMemory::has_zeros(const Bytes& input) const {
  return zeros_[number_of(input)] >= input.size();
}

void SlotMemory::set_zeros(const Bytes& input) {
  std::size_t& zeros = zeros_[number_of(input)];
  zeros = std::max(zeros, input.size());
}

std::optional<SlotMemory::Slot> SlotMemory::slot_of(const Bytes& input) const {
  const auto* begin = input.view().data();
  if (begin < bytes_.data() || begin >= bytes_.data() + bytes_.size()) return std::nullopt;
  const auto offset = static_cast<std::size_t>(begin - bytes_.data());
  if (offset % (input_bytes_ + output_bytes_) != 0 || input.size() > input_bytes_)
    return std::nullopt;
  return Slot{offset, offset + input_bytes_, output_bytes_};
}

Bytes SlotMemory::outputs_beside(const Bytes& input, std::size_t bytes) const {
  const auto offset = static_cast<std::size_t>(input.view().data() - bytes_.data()) + input_bytes_;
  return {std::make_shared<const Bytes>(input), bytes_.subspan(offset, bytes)};
}

// ---- the channel

namespace {

namespace asio = net::asio;
using boost::system::error_code;

// Sends an open descriptor of the file in a message of its own.
Status send_file(int socket, const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid())
    return {StatusCode::not_found, fmt::format("cannot read {}: {}", path, std::strerror(errno))};
  const std::array<int, 1> descriptors{file.get()};
  if (send_descriptors(socket, descriptors)) return {};
  return system_failure("cannot send a proxy " + path);
}

}  // namespace

Status make_socket_pair(int type, FileDescriptor& ours, FileDescriptor& theirs) {
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return system_failure("cannot make a socket pair");
  ours = FileDescriptor(ends[0]);
  theirs = FileDescriptor(ends[1]);
  return {};
}

bool send_descriptors(int socket, std::span<const int> descriptors) {
  constexpr std::size_t kMaxDescriptors = 3;
  char nothing = 0;
  iovec text{&nothing, 1};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(kMaxDescriptors * sizeof(int))> control{};
  const std::size_t count = std::min(descriptors.size(), kMaxDescriptors);
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

Result<ProxyLink::Ends> ProxyLink::make_ends() {
  Ends made;
  GPULET_TRY(auto memory, SlotMemory::make_file());
  made.ours.memory = std::move(memory);
  made.theirs.memory = FileDescriptor(::fcntl(made.ours.memory.get(), F_DUPFD_CLOEXEC, 0));
  if (!made.theirs.memory.valid()) return system_failure("cannot duplicate a descriptor");
  auto paired = make_socket_pair(SOCK_STREAM, made.ours.control, made.theirs.control);
  if (paired.ok()) paired = make_socket_pair(SOCK_SEQPACKET, made.ours.files, made.theirs.files);
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

Status ProxyLink::load(LoadModels models, const SlotOptions& slots) {
  GPULET_TRY(auto memory, SlotMemory::create(std::move(memory_file_), slots.slots,
                                             slots.input_capacity, slots.output_capacity));
  memory_ = std::move(memory);
  for (const auto& model : models.models) {
    if (model.file.empty()) continue;
    auto sent = send_file(files_.get(), model.file);
    if (!sent.ok()) return sent.within("model '" + model.name + "'");
  }
  files_.reset();
  models.memory_bytes = memory_->size();
  on_load();
  send(std::move(models));
  return {};
}

std::optional<MutableBytes> ProxyLink::take_slot(std::size_t bytes) {
  return memory_ == nullptr ? std::nullopt : memory_->take(bytes);
}

std::optional<MutableBytes> ProxyLink::take_zeros(std::size_t bytes) {
  return memory_ == nullptr ? std::nullopt : memory_->take_zeros(bytes);
}

bool ProxyLink::holds(const Bytes& input) const {
  return memory_ != nullptr && memory_->slot_of(input).has_value();
}

void ProxyLink::run(RunBatch batch, Bytes input) {
  const auto slot = memory_->slot_of(input).value();
  batch.input_offset = slot.input_offset;
  batch.input_bytes = input.size();
  batch.output_offset = slot.output_offset;
  batch.output_capacity = slot.output_capacity;
  const bool synthetic = batch.synthetic;
  batch.synthetic = synthetic && !memory_->has_zeros(input);
  in_flight_.push_back({batch.id, std::move(input), synthetic});
  send(std::move(batch));
}

void ProxyLink::send(const ProxyCommand& command) {
  if (connection_ != nullptr) connection_->send(protocol::encode(command));
}

ProxyCallbacks ProxyLink::drop() {
  connection_.reset();
  deadline_.cancel();
  return std::exchange(callbacks_, {});
}

void ProxyLink::report_exit(const Status& reason) {
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

// ---- messages of the proxy

Result<MutableBytes> ProxyLink::payload_memory(const protocol::FrameHeader& header,
                                               std::span<const std::byte> /*message*/) {
  return Status(
      StatusCode::malformed,
      fmt::format("a proxy must not send a payload; it sent {} bytes", header.payload_bytes));
}

void ProxyLink::on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                         MutableBytes /*payload*/) {
  auto decoded = protocol::decode<ProxyMessage>(header, message);
  if (!decoded.ok()) {
    on_violation(decoded.status());
    return;
  }
  const auto alive = shared_from_this();  // the callback may drop the owner
  std::visit([this](auto& kind) { on_message(kind); }, decoded.value());
}

void ProxyLink::on_closed(const Status& reason) {
  const auto alive = shared_from_this();
  channel_closed_ = true;
  connection_.reset();
  on_channel_closed(reason);
}

void ProxyLink::on_message(ProxyIdle& /*idle*/) {
  if (callbacks_.on_idle != nullptr) callbacks_.on_idle();
}

void ProxyLink::on_message(ProxyReady& ready) {
  answered_load_ = true;
  if (ready.device == partition::DeviceHealth::lost) on_device_lost(ready.status);
  if (callbacks_.on_ready != nullptr) callbacks_.on_ready(std::move(ready));
}

void ProxyLink::on_message(BatchRan& ran) {
  if (in_flight_.empty() || in_flight_.front().id != ran.id) {
    on_violation({StatusCode::malformed,
                  fmt::format("{} answered batch {} out of order", name(), ran.id.value)});
    return;
  }
  const auto input = std::move(in_flight_.front().input);
  const bool synthetic = in_flight_.front().synthetic;
  in_flight_.pop_front();
  if (ran.output_bytes > memory_->slot_of(input)->output_capacity) {
    on_violation(
        {StatusCode::malformed, fmt::format("{} reported {} output bytes, more than its slot holds",
                                            name(), ran.output_bytes)});
    return;
  }
  if (ran.device == partition::DeviceHealth::lost) on_device_lost(ran.status);
  if (synthetic && ran.status.ok()) memory_->set_zeros(input);
  auto outputs = ran.status.ok() ? memory_->outputs_beside(input, ran.output_bytes) : Bytes();
  if (callbacks_.on_ran != nullptr) callbacks_.on_ran(std::move(ran), std::move(outputs));
}

}  // namespace gpulet::backend

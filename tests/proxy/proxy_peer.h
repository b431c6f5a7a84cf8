// The backend's side of a proxy's control channel and shared memory, for tests: a socket pair and a
// memfd.
#pragma once

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gpulet/protocol/codec.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/protocol/proxy_messages.h"

namespace gpulet::proxy {

class ProxyPeer {
 public:
  explicit ProxyPeer(std::size_t memory_bytes) {
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets_.data()) != 0)
      throw std::runtime_error("socketpair");
    memory_fd_ = ::memfd_create("gpulet-test", MFD_CLOEXEC);
    if (memory_fd_ < 0 || ::ftruncate(memory_fd_, static_cast<off_t>(memory_bytes)) != 0) {
      throw std::runtime_error("memfd");
    }
    void* address =
        ::mmap(nullptr, memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd_, 0);
    if (address == MAP_FAILED) throw std::runtime_error("mmap");
    memory_ = {static_cast<std::byte*>(address), memory_bytes};
  }
  ~ProxyPeer() {
    close_channel();
    ::close(sockets_[1]);
    ::close(memory_fd_);
    ::munmap(memory_.data(), memory_.size());
  }
  ProxyPeer(const ProxyPeer&) = delete;
  ProxyPeer& operator=(const ProxyPeer&) = delete;

  [[nodiscard]] int proxy_socket() const { return sockets_[1]; }
  [[nodiscard]] int memory_fd() const { return memory_fd_; }
  [[nodiscard]] std::span<std::byte> memory() const { return memory_; }

  void write(std::size_t offset, std::string_view text) {
    std::memcpy(memory_.subspan(offset).data(), text.data(), text.size());
  }
  [[nodiscard]] std::string read(std::size_t offset, std::size_t bytes) const {
    return {reinterpret_cast<const char*>(memory_.subspan(offset, bytes).data()), bytes};
  }

  void send_bytes(std::string_view bytes) const {
    if (::send(sockets_[0], bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size())) {
      throw std::runtime_error("send");
    }
  }
  void send(const ProxyCommand& command) const { send_bytes(protocol::encode(command).head); }

  // Sends LoadModels with the size of this memory.
  void load(LoadModels models) const {
    models.memory_bytes = memory_.size();
    send(models);
  }

  // The proxy's next message; empty at the end of the stream.
  [[nodiscard]] std::optional<ProxyMessage> receive() const {
    std::array<std::byte, protocol::kFrameHeaderBytes> head{};
    if (::recv(sockets_[0], head.data(), head.size(), MSG_WAITALL) !=
        static_cast<ssize_t>(head.size()))
      return {};
    const protocol::FrameHeader header = protocol::decode_frame_header(head, {}).value();
    std::vector<std::byte> message(header.message_bytes);
    if (!message.empty()) (void)::recv(sockets_[0], message.data(), message.size(), MSG_WAITALL);
    return protocol::decode<ProxyMessage>(header, message).value();
  }
  // The proxy's next message that is not ProxyIdle.
  template <typename Message>
  [[nodiscard]] Message receive_as() const {
    ProxyMessage message = receive().value();
    if (std::holds_alternative<ProxyIdle>(message)) message = receive().value();
    return std::get<Message>(message);
  }
  [[nodiscard]] ProxyReady receive_ready() const { return receive_as<ProxyReady>(); }
  [[nodiscard]] BatchRan receive_ran() const { return receive_as<BatchRan>(); }

  // Waits until the proxy has read everything that was sent.
  void wait_until_read() const {
    for (int unread = 1; unread > 0; std::this_thread::yield())
      ::ioctl(sockets_[0], SIOCOUTQ, &unread);
  }

  void close_channel() {
    if (sockets_[0] >= 0) ::close(sockets_[0]);
    sockets_[0] = -1;
  }
  // Closes the parent's copy of the end that a child process inherited.
  void close_proxy_socket() {
    ::close(sockets_[1]);
    sockets_[1] = -1;
  }

 private:
  std::array<int, 2> sockets_{-1, -1};
  int memory_fd_ = -1;
  std::span<std::byte> memory_;
};

}  // namespace gpulet::proxy

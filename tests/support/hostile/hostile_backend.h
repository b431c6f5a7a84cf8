// A scripted backend for tests and benchmarks: it sends any messages in any order, and records the
// frontend's messages.
//
// It runs on the calling thread, and only inside run_until(): between two calls it neither sends
// nor receives. The script must send heartbeats itself.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/connection.h"
#include "gpulet/protocol/codec.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::testing {

class HostileBackend final : private net::ConnectionHandler {
 public:
  // Connects to the frontend's port for backends on loopback, with TLS if files are given. Throws
  // std::runtime_error if the connection fails.
  explicit HostileBackend(std::uint16_t port, const std::optional<config::TlsFiles>& tls = {});
  ~HostileBackend() override;
  HostileBackend(const HostileBackend&) = delete;
  HostileBackend& operator=(const HostileBackend&) = delete;

  void say(const BackendMessage& message);
  // Sends a frame that the codec would not make.
  void say_frame(protocol::OutgoingFrame frame);
  // Sends the header and message of a frame whose payload never follows.
  void announce_payload(protocol::MessageType type, const std::string& message,
                        std::uint32_t bytes);

  // Runs the connection until the condition holds; false after the timeout.
  bool run_until(const std::function<bool()>& condition,
                 Duration patience = std::chrono::seconds(20));
  // Waits until the frontend has closed the connection. Returns the refusal; empty if there was
  // none or it is still connected.
  std::optional<Status> wait_until_refused(Duration patience = std::chrono::seconds(20));
  bool wait_until_welcome(Duration patience = std::chrono::seconds(20));

  [[nodiscard]] bool closed() const { return closed_.has_value(); }
  // Why the connection ended; empty while it is open.
  [[nodiscard]] const std::optional<Status>& closed_because() const { return closed_; }
  template <typename Command>
  [[nodiscard]] std::vector<Command> heard() const {
    std::vector<Command> found;
    for (const BackendCommand& command : heard_) {
      if (const auto* one = std::get_if<Command>(&command)) found.push_back(*one);
    }
    return found;
  }
  [[nodiscard]] std::optional<Status> refused() const;

 private:
  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  void on_closed(const Status& reason) override { closed_ = reason; }

  net::asio::io_context io_{1};
  std::deque<BackendCommand> heard_;
  std::optional<Status> closed_;
  std::shared_ptr<net::Connection> connection_;
};

// A Hello with simulated devices of that type, which a frontend accepts.
[[nodiscard]] Hello plain_hello(const std::string& node, std::uint32_t devices,
                                const std::string& type = "card");
// A report of a gpulet on device 0 with these models, for a Hello.
[[nodiscard]] GpuletReport plain_report(GpuletId id, GpuletState state,
                                        std::vector<partition::RunningModel> models = {});

}  // namespace gpulet::testing

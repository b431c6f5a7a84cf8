// A backend as a script: it says what it is told to, in any order, true or not, and keeps what the
// frontend answers. For tests and benchmarks of what a frontend takes from its backends.
//
// It runs on the thread that calls it, and only inside run_until(): between two calls it neither
// sends nor receives. Heartbeats are the script's own matter.
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

#include "gpulet/config/security_config.h"
#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/codec/codec.h"
#include "gpulet/net/connection.h"
#include "gpulet/serve/messages.h"

namespace gpulet::testing {

class HostileBackend final : private net::ConnectionHandler {
 public:
  // Connects to the frontend's port for backends on loopback, under TLS with those files where they
  // are given. Throws std::runtime_error where nobody takes the connection.
  explicit HostileBackend(std::uint16_t port, const std::optional<config::TlsFiles>& tls = {});
  ~HostileBackend() override;
  HostileBackend(const HostileBackend&) = delete;
  HostileBackend& operator=(const HostileBackend&) = delete;

  void say(const serve::BackendMessage& message);
  // A frame that no codec would make.
  void say_frame(net::OutgoingFrame frame);
  // Bytes that claim to be a frame of that type, with a payload of which nothing follows.
  void announce_payload(net::MessageType type, const std::string& message, std::uint32_t bytes);

  // Runs the connection until the condition holds; false where it does not within the time.
  bool run_until(const std::function<bool()>& condition,
                 Duration patience = std::chrono::seconds(20));
  // Until the frontend has closed the connection. Returns what it was told before; nothing where
  // it was told nothing, or is still connected.
  std::optional<Status> wait_until_refused(Duration patience = std::chrono::seconds(20));
  bool wait_until_welcome(Duration patience = std::chrono::seconds(20));

  [[nodiscard]] bool closed() const { return closed_.has_value(); }
  // Why the connection ended on this side; nothing while it lasts.
  [[nodiscard]] const std::optional<Status>& closed_because() const { return closed_; }
  template <typename Command>
  [[nodiscard]] std::vector<Command> heard() const {
    std::vector<Command> found;
    for (const serve::BackendCommand& command : heard_) {
      if (const auto* one = std::get_if<Command>(&command)) found.push_back(*one);
    }
    return found;
  }
  [[nodiscard]] std::optional<Status> refused() const;

 private:
  Result<MutableBytes> payload_memory(const net::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  void on_closed(const Status& reason) override { closed_ = reason; }

  net::asio::io_context io_{1};
  std::deque<serve::BackendCommand> heard_;
  std::optional<Status> closed_;
  std::shared_ptr<net::Connection> connection_;
};

// A Hello that a frontend accepts: that many simulated devices of the type.
[[nodiscard]] serve::Hello plain_hello(const std::string& node, std::uint32_t devices,
                                       const std::string& type = "card");
// A report of a gpulet on device 0 that serves the models, as a backend would bring it with its
// Hello.
[[nodiscard]] serve::GpuletReport plain_report(GpuletId id, serve::GpuletState state,
                                               std::vector<schedule::LoadedModel> models = {});

}  // namespace gpulet::testing

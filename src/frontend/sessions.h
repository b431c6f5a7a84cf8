// One connection of a client or a backend: frames to values and back. A session tells its owner
// through callbacks; on_closed is the last of them, and the owner destroys the session later,
// outside of any callback of it.
#pragma once

#include <functional>
#include <memory>

#include "gpulet/core/status.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/listener.h"
#include "gpulet/serve/messages.h"
#include "model_sender.h"

namespace gpulet::frontend {

class ClientSession final : public net::ConnectionHandler {
 public:
  struct Callbacks {
    std::function<void(serve::ClientMessage)> on_message;
    std::function<void(const Status&)> on_closed;
  };
  ClientSession(net::StreamSocket socket, net::ConnectionSlot slot,
                const net::ConnectionOptions& options, net::BufferPool& buffers,
                Callbacks callbacks);

  void send(const serve::FrontendReply& reply);
  void close_after_sending() { connection_->close_after_sending(); }

 private:
  Result<MutableBytes> payload_memory(const net::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  std::optional<net::OutgoingFrame> goodbye(const Status& failure) override;
  void on_closed(const Status& reason) override;

  net::ConnectionSlot slot_;
  net::BufferPool& buffers_;
  Callbacks callbacks_;
  std::shared_ptr<net::Connection> connection_;
};

class BackendSession final : public net::ConnectionHandler {
 public:
  struct Callbacks {
    std::function<void(serve::BackendMessage)> on_message;
    std::function<void(const Status&)> on_closed;
  };
  BackendSession(net::StreamSocket socket, net::ConnectionSlot slot,
                 const net::ConnectionOptions& options, net::BufferPool& buffers,
                 Callbacks callbacks);

  void send(const serve::BackendCommand& command);
  void close(const Status& reason) { connection_->close(reason); }
  ModelSender& models() { return models_; }
  void pump_models() { models_.pump(*connection_); }

 private:
  Result<MutableBytes> payload_memory(const net::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  void on_closed(const Status& reason) override;

  net::ConnectionSlot slot_;
  net::BufferPool& buffers_;
  Callbacks callbacks_;
  ModelSender models_;
  std::shared_ptr<net::Connection> connection_;
};

}  // namespace gpulet::frontend

#include "sessions.h"

#include <utility>

#include "gpulet/net/codec/codec.h"

namespace gpulet::frontend {

ClientSession::ClientSession(net::StreamSocket socket, net::ConnectionSlot slot,
                             const net::ConnectionOptions& options, net::BufferPool& buffers,
                             Callbacks callbacks)
    : slot_(std::move(slot)),
      buffers_(buffers),
      callbacks_(std::move(callbacks)),
      connection_(net::Connection::start(std::move(socket), options, *this)) {}

void ClientSession::send(const serve::FrontendReply& reply) {
  connection_->send(net::encode(reply));
}

Result<MutableBytes> ClientSession::payload_memory(const net::FrameHeader& header,
                                                   std::span<const std::byte>) {
  return buffers_.take(header.payload_bytes);
}

void ClientSession::on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                             MutableBytes payload) {
  Result<serve::ClientMessage> decoded =
      net::decode_client_message(header, message, payload.freeze());
  if (decoded.ok()) {
    callbacks_.on_message(std::move(decoded).value());
    return;
  }
  // The frame's bounds held, so the next one can be read; but whoever sends such bytes does not
  // speak the protocol.
  if (auto farewell = goodbye(decoded.status())) connection_->send(std::move(*farewell));
  connection_->close_after_sending();
}

std::optional<net::OutgoingFrame> ClientSession::goodbye(const Status& failure) {
  serve::InferReply reply;
  reply.status = failure;
  return net::encode(serve::FrontendReply(std::move(reply)));
}

void ClientSession::on_closed(const Status& reason) { callbacks_.on_closed(reason); }

BackendSession::BackendSession(net::StreamSocket socket, net::ConnectionSlot slot,
                               const net::ConnectionOptions& options, net::BufferPool& buffers,
                               Callbacks callbacks)
    : slot_(std::move(slot)),
      buffers_(buffers),
      callbacks_(std::move(callbacks)),
      connection_(net::Connection::start(std::move(socket), options, *this)) {}

void BackendSession::send(const serve::BackendCommand& command) {
  connection_->send(net::encode(command));
}

Result<MutableBytes> BackendSession::payload_memory(const net::FrameHeader& header,
                                                    std::span<const std::byte>) {
  return buffers_.take(header.payload_bytes);
}

void BackendSession::on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                              MutableBytes payload) {
  Result<serve::BackendMessage> decoded =
      net::decode_backend_message(header, message, payload.freeze());
  if (decoded.ok()) {
    callbacks_.on_message(std::move(decoded).value());
  } else {
    connection_->close(decoded.status());
  }
}

void BackendSession::on_closed(const Status& reason) { callbacks_.on_closed(reason); }

}  // namespace gpulet::frontend

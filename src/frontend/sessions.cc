#include "sessions.h"

#include <utility>

#include "gpulet/net/codec/codec.h"

namespace gpulet::frontend {

Session::Session(net::StreamSocket socket, net::ConnectionSlot slot,
                 const net::ConnectionOptions& options, net::BufferPool& buffers,
                 OnClosed on_closed)
    : slot_(std::move(slot)),
      buffers_(buffers),
      on_closed_(std::move(on_closed)),
      connection_(net::Connection::start(std::move(socket), options, *this)) {}

Result<MutableBytes> Session::payload_memory(const net::FrameHeader& header,
                                             std::span<const std::byte> /*message*/) {
  return buffers_.take(header.payload_bytes);
}

void Session::on_closed(const Status& reason) { on_closed_(reason); }

ClientSession::ClientSession(net::StreamSocket socket, net::ConnectionSlot slot,
                             const net::ConnectionOptions& options, net::BufferPool& buffers,
                             OnMessage on_message, OnClosed on_closed)
    : Session(std::move(socket), std::move(slot), options, buffers, std::move(on_closed)),
      on_message_(std::move(on_message)) {}

void ClientSession::send(const serve::FrontendReply& reply) {
  connection().send(net::encode(reply));
}

void ClientSession::on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                             MutableBytes payload) {
  Result<serve::ClientMessage> decoded =
      net::decode_client_message(header, message, payload.freeze());
  if (decoded.ok()) {
    on_message_(std::move(decoded).value());
    return;
  }
  // The frame's bounds held, so the next one can be read; but whoever sends such bytes does not
  // speak the protocol.
  if (auto farewell = goodbye(decoded.status())) connection().send(std::move(*farewell));
  connection().close_after_sending();
}

std::optional<net::OutgoingFrame> ClientSession::goodbye(const Status& failure) {
  serve::InferReply reply;
  reply.status = failure;
  return net::encode(serve::FrontendReply(std::move(reply)));
}

BackendSession::BackendSession(net::StreamSocket socket, net::ConnectionSlot slot,
                               const net::ConnectionOptions& options, net::BufferPool& buffers,
                               OnMessage on_message, OnClosed on_closed)
    : Session(std::move(socket), std::move(slot), options, buffers, std::move(on_closed)),
      on_message_(std::move(on_message)) {}

void BackendSession::send(const serve::BackendCommand& command) {
  connection().send(net::encode(command));
}

void BackendSession::on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                              MutableBytes payload) {
  Result<serve::BackendMessage> decoded =
      net::decode_backend_message(header, message, payload.freeze());
  if (decoded.ok()) {
    on_message_(std::move(decoded).value());
  } else {
    connection().close(decoded.status());
  }
}

}  // namespace gpulet::frontend

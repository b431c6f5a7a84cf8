#include "backend/frontend_link.h"

#include <spdlog/spdlog.h>

#include <variant>

#include "gpulet/net/event_loop.h"
#include "gpulet/protocol/codec.h"

namespace gpulet::backend {

FrontendLink::FrontendLink(const net::asio::any_io_executor& executor,
                           const config::Endpoint& frontend, net::TlsContextPointer tls,
                           std::string node, Host& host)
    : name_(config::to_string(frontend)),
      node_(std::move(node)),
      host_(host),
      buffers_(net::BufferPoolOptions()),
      connector_(executor, frontend.host, frontend.port, {.tls = std::move(tls)}) {}

void FrontendLink::stop() {
  stopping_ = true;
  connector_.close();
}

std::optional<FrontendId> FrontendLink::connected() const {
  return connection_ == nullptr ? std::nullopt : std::optional(id_);
}

void FrontendLink::send(protocol::OutgoingFrame frame) {
  if (connection_ != nullptr) connection_->send(std::move(frame));
}

void FrontendLink::close(const Status& reason) {
  if (connection_ != nullptr) connection_->close(reason);
}

void FrontendLink::close_after_sending() {
  if (connection_ != nullptr) connection_->close_after_sending();
}

// ---- connecting

void FrontendLink::connect(Duration min_delay) {
  connector_.connect_with_retry(
      [this](net::Stream stream) { on_connected(std::move(stream)); },
      [this](const Status& failure, Duration) { on_unreachable(failure); }, min_delay);
}

void FrontendLink::on_unreachable(const Status& failure) {
  if (!reconnect_.on_unreachable(net::now())) return;
  spdlog::info("waiting for the frontend at {}: {}", name_, failure.message());
}

void FrontendLink::on_connected(net::Stream stream) {
  welcomed_ = false;
  id_ = host_.next_frontend();
  connection_ = net::Connection::start(std::move(stream), net::ConnectionOptions(), *this);
  host_.on_connected(id_);
}

void FrontendLink::on_closed(const Status& reason) {
  const bool refused = !welcomed_ && !stopping_;
  const Duration delay = reconnect_.on_closed(refused);
  if (refused) {
    spdlog::warn("frontend {}: rejected this backend: {}; retrying in {:.0f} s", name_,
                 reason.message(), to_seconds(delay));
  } else {
    spdlog::warn("frontend {}: {}", name_, reason.message());
  }
  connection_.reset();
  batch_began_.reset();
  decoder_ = {};
  host_.on_disconnected(id_);
  if (!stopping_) connect(delay);
}

void FrontendLink::on_welcome() {
  const Duration unreachable = reconnect_.on_welcome(net::now());
  welcomed_ = true;
  if (unreachable > Duration::zero()) {
    spdlog::info("frontend {}: connected as node {}, after {:.1f} s", name_, node_,
                 to_seconds(unreachable));
  } else {
    spdlog::info("frontend {}: connected as node {}", name_, node_);
  }
}

// ---- messages

// Receives a batch directly into the memory of its proxy.
Result<MutableBytes> FrontendLink::payload_memory(const protocol::FrameHeader& header,
                                                  std::span<const std::byte> message) {
  if (header.type == protocol::MessageType::batch) {
    batch_began_ = net::now();
    const auto command = decoder_.announce(header, message);
    if (!command.ok()) return command.status();
    const GpuletId gpulet = std::get<Batch>(*command.value()).gpulet;
    auto memory = host_.batch_memory(id_, gpulet, header.payload_bytes);
    if (memory) return std::move(*memory);
  }
  return buffers_.take(header.payload_bytes);
}

void FrontendLink::on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                            MutableBytes payload) {
  auto command = decoder_.finish(header, message, payload.freeze());
  if (!command.ok()) return close(command.status());
  if (auto* const refused = std::get_if<Refused>(&command.value())) {
    // on_closed() logs the reason.
    welcomed_ = false;
    return close(refused->why.ok() ? Status(StatusCode::unavailable, "no reason given")
                                   : std::move(refused->why));
  }
  if (std::holds_alternative<Welcome>(command.value())) on_welcome();
  const Time began = std::exchange(batch_began_, std::nullopt).value_or(net::now());
  host_.on_command(id_, std::move(command).value(), began);
}

}  // namespace gpulet::backend

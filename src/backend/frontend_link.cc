#include "backend/frontend_link.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <span>
#include <variant>
#include <vector>

#include "gpulet/net/event_loop.h"
#include "gpulet/net/listener.h"
#include "gpulet/protocol/codec.h"

namespace gpulet::backend {
namespace {

constexpr std::size_t kMostBatchBytes = protocol::FrameLimits().max_payload_bytes;

}  // namespace

FrontendLink::FrontendLink(const net::asio::any_io_executor& executor,
                           const config::Endpoint& frontend, Options options, Host& host)
    : executor_(executor),
      name_(config::to_string(frontend)),
      node_(std::move(options.node)),
      host_(host),
      buffers_(net::BufferPoolOptions()),
      connector_(executor, frontend.host, frontend.port, {.tls = std::move(options.tls)}),
      local_(options.local_socket) {}

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
  local_.on_closed(net::now());
  local_socket_.reset();
  shared_.reset();
  batch_began_.reset();
  decoder_ = {};
  host_.on_disconnected(id_);
  if (!stopping_) connect(delay);
}

void FrontendLink::on_welcome(Welcome& welcome) {
  const Duration unreachable = reconnect_.on_welcome(net::now());
  welcomed_ = true;
  if (unreachable > Duration::zero()) {
    spdlog::info("frontend {}: connected as node {}, after {:.1f} s", name_, node_,
                 to_seconds(unreachable));
  } else {
    spdlog::info("frontend {}: connected as node {}", name_, node_);
  }
  if (const auto offer = std::exchange(welcome.local, std::nullopt)) take(*offer);
}

// ---- one machine

// A frontend of another machine makes the offer, too: its socket is not here.
void FrontendLink::take(const LocalOffer& offer) {
  if (!local_.takes_offer() || local_socket_) return;
  auto opened = net::open_local(executor_, offer.name, offer.user, offer.secret);
  if (!opened.ok()) {
    spdlog::debug("frontend {}: stays with TCP: {}", name_, opened.status().message());
    return;
  }
  local_socket_ = std::move(opened).value();
}

void FrontendLink::on_moved() {
  if (!local_socket_) {
    return connection_->close(
        {StatusCode::malformed, "the frontend went on over a Unix socket that is not open here"});
  }
  local_.on_moved(net::now());  // what follows may fail
  net::StreamSocket socket = *std::exchange(local_socket_, std::nullopt);
  const Result<FileDescriptor> memory = net::receive_descriptor(socket);
  if (!memory.ok()) return connection_->close(memory.status());
  if (memory.value().valid()) {
    auto mapped = net::SharedView::map(memory.value());
    if (!mapped.ok()) return connection_->close(mapped.status());
    shared_ = std::move(mapped).value();
  }
  connection_->move_to(net::Stream(std::move(socket)));
  if (!connection_->follow()) return;
  spdlog::info("frontend {}: goes on over its Unix socket{}", name_,
               shared_ == nullptr ? "" : ", with shared memory");
}

// Copies the inputs into the memory of the batch's process. The frontend keeps them until the batch
// is answered, so no later request has taken their place.
Status FrontendLink::read_shared(Batch& batch) {
  const std::vector<SharedSlice> slices = std::exchange(batch.shared, {});
  if (slices.empty()) return {};
  std::vector<std::span<const std::byte>> pieces;
  std::size_t total = 0;
  for (const SharedSlice& slice : slices) {
    const auto piece = shared_ == nullptr ? std::nullopt : shared_->find(slice);
    if (!piece || piece->size() > kMostBatchBytes - total) {
      return {StatusCode::malformed,
              fmt::format("batch {}: {} bytes at {} are not in shared memory, or too many",
                          batch.id.value, slice.bytes, slice.offset)};
    }
    total += piece->size();
    pieces.push_back(*piece);
  }
  auto memory = host_.batch_memory(id_, batch, total);
  if (!memory) {
    GPULET_TRY(MutableBytes taken, buffers_.take(total));
    memory = std::move(taken);
  }
  std::span<std::byte> room = memory->view();
  for (const std::span<const std::byte> piece : pieces) {
    if (room.size() < piece.size()) break;  // the host discards the input
    std::copy(piece.begin(), piece.end(), room.begin());
    room = room.subspan(piece.size());
  }
  batch.inputs.assign(1, std::move(*memory).freeze());
  return {};
}

// ---- messages

// Receives a batch directly into the memory of its proxy.
Result<MutableBytes> FrontendLink::payload_memory(const protocol::FrameHeader& header,
                                                  std::span<const std::byte> message) {
  if (header.type == protocol::MessageType::batch) {
    batch_began_ = net::now();
    const auto command = decoder_.announce(header, message);
    if (!command.ok()) return command.status();
    const auto& batch = std::get<Batch>(*command.value());
    auto memory = host_.batch_memory(id_, batch, header.payload_bytes);
    if (memory) return std::move(*memory);
  } else if (header.type == protocol::MessageType::rows) {
    const auto command = decoder_.announce(header, message);
    if (!command.ok()) return command.status();
    const auto& rows = std::get<Rows>(*command.value());
    auto memory = host_.rows_memory(id_, rows, header.payload_bytes);
    if (memory) return std::move(*memory);
  }
  return buffers_.take(header.payload_bytes);
}

void FrontendLink::on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                            MutableBytes payload) {
  if (header.type == protocol::MessageType::moved) return on_moved();
  auto command = decoder_.finish(header, message, payload.freeze());
  if (!command.ok()) return close(command.status());
  if (auto* const refused = std::get_if<Refused>(&command.value())) {
    // on_closed() logs the reason.
    welcomed_ = false;
    return close(refused->why.ok() ? Status(StatusCode::unavailable, "no reason given")
                                   : std::move(refused->why));
  }
  if (auto* const welcome = std::get_if<Welcome>(&command.value())) on_welcome(*welcome);
  if (auto* const batch = std::get_if<Batch>(&command.value())) {
    if (!batch->shared.empty()) batch_began_ = net::now();
    if (Status read = read_shared(*batch); !read.ok()) return close(read);
  }
  const Time began = std::exchange(batch_began_, std::nullopt).value_or(net::now());
  host_.on_command(id_, std::move(command).value(), began);
}

}  // namespace gpulet::backend

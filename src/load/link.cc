#include "load/link.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace gpulet::load {

namespace asio = net::asio;

Wire::Wire(Owner& owner, net::Stream stream, const std::string& token) : owner_(owner) {
  net::ConnectionOptions options;
  // Queued frames share the inputs with the pool; the generator limits their number.
  options.max_queued_bytes = std::numeric_limits<std::size_t>::max() / 2;
  connection_ = net::Connection::start(std::move(stream), options, *this);
  // Also without a token: the frontend closes connections that send nothing.
  connection_->send(protocol::encode(ClientMessage(Authenticate{token})));
}

void Wire::send(std::uint64_t tag, protocol::OutgoingFrame frame) {
  waiting_.insert(tag);
  connection_->send(std::move(frame));
}

// Replies are not used after on_frame: one buffer is enough.
Result<MutableBytes> Wire::payload_memory(const protocol::FrameHeader& header,
                                          std::span<const std::byte> /*message*/) {
  if (!buffer_ || buffer_.use_count() > 1) buffer_ = std::make_shared<std::vector<std::byte>>();
  buffer_->resize(std::max<std::size_t>(buffer_->size(), header.payload_bytes));
  return MutableBytes(buffer_, std::span(*buffer_).first(header.payload_bytes));
}

void Wire::on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                    MutableBytes payload) {
  Result<FrontendReply> reply = protocol::decode<FrontendReply>(header, message, payload.freeze());
  if (!reply.ok()) return connection_->close(reply.status());
  auto* const infer = std::get_if<InferReply>(&reply.value());
  if (infer == nullptr) {
    return connection_->close(
        Status(StatusCode::malformed, "the target sent a reply that is not an inference reply"));
  }
  waiting_.erase(infer->tag);
  owner_.on_reply(*this, std::move(*infer), !waiting_.empty());
}

void Wire::on_closed(const Status& reason) {
  owner_.on_lost(*this, std::exchange(waiting_, {}), reason);
}

Link::Link(LinkOwner& owner, asio::io_context& context, const LoadOptions& options,
           std::vector<config::Endpoint> endpoints, std::size_t first)
    : owner_(owner),
      context_(context),
      options_(options),
      endpoints_(std::move(endpoints)),
      endpoint_(first) {}

void Link::open(std::function<void(const Status&)> done) {
  next_connector().connect([this, done = std::move(done)](Result<net::Stream> stream) {
    const Status status = stream.status();
    if (status.ok()) use(std::move(stream).value());
    done(status);
  });
}

net::Connector& Link::next_connector() {
  const config::Endpoint& endpoint = endpoints_[endpoint_++ % endpoints_.size()];
  connector_ = std::make_unique<net::Connector>(
      context_.get_executor(), endpoint.host, endpoint.port,
      net::ConnectorOptions{.timeout = options_.connect_timeout, .tls = options_.target.tls});
  return *connector_;
}

void Link::reconnect() {
  next_connector().connect([this](Result<net::Stream> stream) {
    if (stream.ok()) return use(std::move(stream).value());
    retry_.expires_after(kReconnectPause);
    retry_.async_wait([this](boost::system::error_code error) {
      if (!error) reconnect();
    });
  });
}

void Link::use(net::Stream stream) {
  replacing_ = false;
  if (wire_ != nullptr && wire_->waits()) leaving_.push_back(std::move(wire_));
  wire_ = std::make_unique<Wire>(static_cast<Wire::Owner&>(*this), std::move(stream),
                                 options_.target.token);
}

void Link::on_reply(Wire& wire, InferReply reply, bool waiting) {
  const bool leaving = reply.leaving;
  owner_.on_reply(std::move(reply));
  if (&wire != wire_.get()) {
    if (!waiting) forget(wire);
  } else if (leaving && !std::exchange(replacing_, true)) {
    if (endpoints_.size() == 1) stop_using();
    reconnect();
  }
}

void Link::on_lost(Wire& wire, std::unordered_set<std::uint64_t> waiting, const Status& reason) {
  const bool current = &wire == wire_.get();
  forget(wire);
  if (current && !std::exchange(replacing_, true)) reconnect();
  owner_.on_link_lost(waiting, reason);
}

void Link::stop_using() {
  leaving_.push_back(std::move(wire_));
  if (!leaving_.back()->waits()) forget(*leaving_.back());
}

void Link::forget(Wire& wire) {
  std::unique_ptr<Wire> ended;
  if (&wire == wire_.get()) {
    ended = std::move(wire_);
  } else {
    const auto found = std::find_if(leaving_.begin(), leaving_.end(),
                                    [&](const auto& one) { return one.get() == &wire; });
    ended = std::move(*found);
    leaving_.erase(found);
  }
  asio::post(context_, [ended = std::shared_ptr(std::move(ended))] {});
}

}  // namespace gpulet::load

#include "net/grpc/acceptor.h"

#include <utility>

#include "net/grpc/socket_facts.h"

namespace gpulet::net::grpc_api {
namespace {

// The library does not report the end of a connection, so that all are polled.
constexpr Duration kSweepPeriod = std::chrono::milliseconds(500);
// Nor does it report calls in progress: without a byte for this long a connection counts as idle.
constexpr std::chrono::seconds kIdleAfter{60};

}  // namespace

// A connection that the library owns, identified by descriptor and socket cookie, because the
// descriptor may have been reused.
class Acceptor::Connection final : private ConnectionSlot::Holder {
 public:
  Connection(int descriptor, std::uint64_t cookie, ConnectionSlotPointer slot)
      : descriptor_(descriptor), cookie_(cookie), slot_(std::move(slot)) {
    slot_->set_holder(this);
  }

  [[nodiscard]] bool ended() const { return cookie_of(descriptor_) != cookie_; }

 private:
  [[nodiscard]] Activity activity() const override {
    const std::optional<Traffic> traffic = traffic_of(descriptor_, cookie_);
    if (!traffic) return {State::busy, since_};
    if (!traffic->any_received) return {State::silent, since_};
    if (traffic->since_last < kIdleAfter) return {State::busy, since_};
    return {State::idle, std::chrono::steady_clock::now() - traffic->since_last};
  }
  void evict() override { end_connection(descriptor_, cookie_); }

  const int descriptor_;
  const std::uint64_t cookie_;
  const ConnectionSlot::TimePoint since_ = std::chrono::steady_clock::now();
  ConnectionSlotPointer slot_;
};

Acceptor::Acceptor(const asio::any_io_executor& executor, HandOver hand_over)
    : hand_over_(std::move(hand_over)), sweep_timer_(executor) {}
Acceptor::~Acceptor() = default;

Result<std::unique_ptr<Acceptor>> Acceptor::listen(const asio::any_io_executor& executor,
                                                   const std::string& host, std::uint16_t port,
                                                   const ListenerOptions& options,
                                                   HandOver hand_over) {
  std::unique_ptr<Acceptor> made(new Acceptor(executor, std::move(hand_over)));
  Result<std::unique_ptr<Listener>> listener =
      Listener::listen(executor, host, port, options,
                       [self = made.get()](Stream stream, ConnectionSlotPointer slot) {
                         self->on_socket(std::move(stream), std::move(slot));
                       });
  if (!listener.ok()) return listener.status();
  made->listener_ = std::move(listener).value();
  return made;
}

void Acceptor::on_socket(Stream stream, ConnectionSlotPointer slot) {
  stream.prepare();
  const int descriptor = stream.release();
  const std::optional<std::uint64_t> cookie = cookie_of(descriptor);
  if (cookie) {
    connections_.push_back(std::make_unique<Connection>(descriptor, *cookie, std::move(slot)));
    if (!sweeps_) sweep_later();
  }
  hand_over_(descriptor);
}

void Acceptor::close() {
  listener_->close();
  sweep_timer_.cancel();
  sweeps_ = true;  // for good
}

void Acceptor::sweep_later() {
  sweeps_ = true;
  sweep_timer_.set_after(kSweepPeriod, [this] { sweep(); });
}

void Acceptor::sweep() {
  connections_.remove_if([](const auto& connection) { return connection->ended(); });
  sweeps_ = false;
  if (!connections_.empty()) sweep_later();
}

}  // namespace gpulet::net::grpc_api

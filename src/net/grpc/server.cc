#include "gpulet/net/grpc/server.h"

#include <unistd.h>

#include <algorithm>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpulet/net/event_loop.h"
#include "net/grpc/connection.h"
#include "net/grpc/server_state.h"
#include "net/grpc/services.h"

namespace gpulet::net::grpc_api {
namespace {

constexpr Duration kSweepPeriod = std::chrono::milliseconds(50);
// Between the announcement of the end to the clients and the end: they learn it meanwhile.
constexpr Duration kNotice = std::chrono::milliseconds(250);
constexpr std::size_t kMostThreads = 4;

std::size_t threads_of(const GrpcServerOptions& options) {
  if (options.threads > 0) return options.threads;
  return std::clamp<std::size_t>(std::thread::hardware_concurrency() / 4, 1, kMostThreads);
}

SessionOptions session_options(const GrpcServerOptions& options) {
  SessionOptions session;
  session.max_calls = options.max_calls_of_connection;
  session.pace = options.pace;
  session.frames.pings.interval = options.min_ping_interval;
  return session;
}

// ---- threads

// A thread with its connections. The other threads post to it.
class Worker {
 public:
  explicit Worker(std::size_t number)
      : alarm_(thread_->io), work_(asio::make_work_guard(thread_->io)) {
    runner_ = std::jthread([this, number] {
      name_thread("grpc-" + std::to_string(number));
      thread_->io.run();
    });
  }
  // REQUIRES: finish() was called.
  ~Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  [[nodiscard]] const IoThreadPointer& thread() const { return thread_; }

  // Takes over a socket's descriptor.
  void add(int descriptor, const TlsContextPointer& tls, Connection::Parts parts) {
    parts.thread = thread_;
    asio::post(thread_->io, [this, descriptor, tls, parts = std::move(parts)]() mutable {
      Stream::Error error;
      StreamSocket socket(thread_->io);
      socket.assign(asio::generic::stream_protocol(asio::ip::tcp::v4()), descriptor, error);
      if (error || finishing_) {
        if (error) ::close(descriptor);
        return parts.on_closed();
      }
      const auto connection =
          std::make_shared<Connection>(Stream(std::move(socket), tls), std::move(parts));
      thread_->connections.push_back(connection);
      connection->start();
      if (!sweeps_) sweep_later();
    });
  }

  template <typename Act>
  void for_each(Act act) {
    asio::post(thread_->io, [this, act = std::move(act)] { act_on_all(act); });
  }

  // Ends all connections. The thread ends with the last one.
  void finish(const CallEnd& why) {
    asio::post(thread_->io, [this, why] {
      finishing_ = true;
      act_on_all([&why](Connection& connection) { connection.end(why); });
      if (thread_->connections.empty()) alarm_.cancel();
      work_.reset();
    });
  }
  void join() { runner_.join(); }

 private:
  // `act` may close connections.
  template <typename Act>
  void act_on_all(const Act& act) {
    const std::list<std::shared_ptr<Connection>> all = thread_->connections;
    for (const auto& connection : all) act(*connection);
  }

  // One timer checks the deadlines of all connections.
  void sweep_later() {
    sweeps_ = true;
    alarm_.set_after(kSweepPeriod, [this] {
      const auto now = std::chrono::steady_clock::now();
      act_on_all([now](Connection& connection) { connection.check_deadlines(now); });
      sweeps_ = false;
      if (!thread_->connections.empty()) sweep_later();
    });
  }

  const IoThreadPointer thread_ = std::make_shared<IoThread>();
  Alarm alarm_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  bool sweeps_ = false;
  bool finishing_ = false;
  std::jthread runner_;
};

// ---- connections

// A connection as its slot sees it. Executor thread.
class AcceptedConnection final : private ConnectionSlot::Holder {
 public:
  AcceptedConnection(std::shared_ptr<ConnectionActivity> activity, ConnectionSlotPointer slot)
      : activity_(std::move(activity)), slot_(std::move(slot)) {
    slot_->set_holder(*this);
  }

 private:
  [[nodiscard]] Activity activity() const override { return {activity_->state, activity_->since}; }
  void evict() override { activity_->evicted = true; }

  const std::shared_ptr<ConnectionActivity> activity_;
  const ConnectionSlotPointer slot_;
};
using AcceptedConnections = std::list<AcceptedConnection>;

}  // namespace

class GrpcServer::Impl {
 public:
  explicit Impl(ServerStatePointer state)
      : state_(std::move(state)), health_(state_), reflection_(state_), alarm_(state_->executor) {}

  ~Impl() {
    state_->open = false;
    if (listener_) listener_->close();
    for (const auto& worker : workers_) worker->finish(end_of(stopping()));
    for (const auto& worker : workers_) worker->join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status listen(const std::string& host, std::uint16_t port) {
    const GrpcServerOptions& options = state_->options;
    if (!options.tls.certificate.empty()) {
      GPULET_TRY(TlsContextPointer tls, TlsContext::http2_server(options.tls));
      tls_ = std::move(tls);
    }
    MethodTable methods;
    add_inference_methods(state_, methods);
    health_.add_methods(methods);
    reflection_.add_methods(methods);
    shared_ = std::shared_ptr<SessionShared>(
        new SessionShared{session_options(options), std::move(methods),
                          std::make_shared<MemoryBudget>(options.max_buffered_bytes),
                          state_->buffers, state_->max_message_bytes});
    ListenerOptions listens;
    listens.connections = options.connections;
    listens.last_descriptor = options.last_descriptor;
    GPULET_TRY(auto listener, Listener::listen(state_->executor, host, port, listens,
                                               [this](Stream stream, ConnectionSlotPointer slot) {
                                                 on_socket(std::move(stream), std::move(slot));
                                               }));
    listener_ = std::move(listener);
    for (std::size_t i = 0; i < threads_of(options); ++i)
      workers_.push_back(std::make_unique<Worker>(i));
    return {};
  }

  [[nodiscard]] const Listener& listener() const { return *listener_; }
  [[nodiscard]] std::size_t connections() const { return accepted_->size(); }

  void take_messages_up_to(std::size_t bytes) {
    if (bytes > *state_->max_message_bytes) *state_->max_message_bytes = bytes;
  }

  void use_certificate(const TlsTexts& texts) {
    if (auto tls = TlsContext::http2_server(texts); tls.ok()) tls_ = std::move(tls).value();
  }
  void tokens_changed() {
    std::erase_if(state_->streams, [](const auto& stream) { return stream.expired(); });
    const auto streams = state_->streams;  // a copy: an ending stream may change the list
    for (const auto& one : streams) {
      if (const auto stream = one.lock()) stream->tokens_changed();
    }
  }

  void start_leaving() {
    health_.drain();
    reflection_.drain();
  }

  void drain(Duration patience) {
    if (std::exchange(draining_, true)) return;
    listener_->close();
    start_leaving();
    if (accepted_->empty()) return;  // a pending alarm would keep the executor running
    for_each([](Connection& connection) { connection.start_drain(); });
    alarm_.set_after(std::min(kNotice, patience), [this, patience] {
      for_each([](Connection& connection) { connection.finish_drain(); });
      alarm_.set_after(std::max(patience - kNotice, Duration()), [this] {
        for_each([](Connection& connection) { connection.end(end_of(stopping())); });
      });
    });
  }

 private:
  void on_socket(Stream stream, ConnectionSlotPointer slot) {
    Connection::Parts parts;
    parts.shared = shared_;
    parts.times = {.handshake = state_->options.handshake_timeout,
                   .idle = state_->options.idle_timeout,
                   .write = state_->options.write_timeout};
    parts.activity = std::make_shared<ConnectionActivity>();
    parts.reserved = slot->reserved();
    const auto place = accepted_->emplace(accepted_->end(), parts.activity, std::move(slot));
    // On the executor thread, to which the slots belong.
    parts.on_closed = [this, executor = state_->executor, accepted = std::weak_ptr(accepted_),
                       place] {
      asio::post(executor, [this, accepted, place] {
        const auto there = accepted.lock();
        if (there == nullptr) return;  // the server is gone
        there->erase(place);
        if (draining_ && there->empty()) alarm_.cancel();
      });
    };
    next_ = (next_ + 1) % workers_.size();
    workers_[next_]->add(stream.release(), tls_, std::move(parts));
  }

  template <typename Act>
  void for_each(const Act& act) {
    for (const auto& worker : workers_) worker->for_each(act);
  }

  ServerStatePointer state_;
  HealthService health_;
  Reflection reflection_;
  TlsContextPointer tls_;  // of new connections; null: plain
  std::shared_ptr<SessionShared> shared_;
  std::shared_ptr<AcceptedConnections> accepted_ = std::make_shared<AcceptedConnections>();
  std::vector<std::unique_ptr<Worker>> workers_;
  std::size_t next_ = 0;
  std::unique_ptr<Listener> listener_;
  Alarm alarm_;
  bool draining_ = false;
};

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() = default;

Result<std::unique_ptr<GrpcServer>> GrpcServer::listen(
    const asio::io_context::executor_type& executor, const std::string& host, std::uint16_t port,
    const GrpcServerOptions& options, BufferPool& buffers, kserve::ProtocolHost& protocol_host,
    kserve::SharedMemory& regions) {
  auto impl = std::make_unique<Impl>(std::make_shared<ServerState>(
      ServerState{executor, options, buffers, protocol_host, regions}));
  if (const Status listening = impl->listen(host, port); !listening.ok()) return listening;
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

std::uint16_t GrpcServer::port() const { return impl_->listener().port(); }
std::size_t GrpcServer::connections() const { return impl_->connections(); }
const ConnectionSlots& GrpcServer::slots() const { return impl_->listener().slots(); }
void GrpcServer::use_certificate(TlsTexts tls) { impl_->use_certificate(tls); }
void GrpcServer::tokens_changed() { impl_->tokens_changed(); }
void GrpcServer::take_messages_up_to(std::size_t bytes) { impl_->take_messages_up_to(bytes); }
void GrpcServer::start_leaving() { impl_->start_leaving(); }
void GrpcServer::drain(Duration patience) { impl_->drain(patience); }

}  // namespace gpulet::net::grpc_api

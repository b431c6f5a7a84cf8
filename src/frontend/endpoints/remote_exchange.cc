#include "frontend/endpoints/remote_exchange.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

#include "frontend/loop/done.h"
#include "gpulet/access/tokens.h"
#include "gpulet/net/asio.h"

namespace gpulet::frontend {
namespace {

namespace asio = net::asio;
namespace http = net::http;

// A callback of the handler, which its owner may take back until it is called. Engine's thread.
using Callback = std::shared_ptr<Done>;

// Has `callback` called on the engine's thread, unless it was taken back.
Done crossing(RemoteEngine& engine, const Callback& callback) {
  return [&engine, callback] {
    engine.call([callback] {
      if (const auto call = std::exchange(*callback, nullptr)) call();
    });
  };
}

}  // namespace

// The exchanges and streams of one I/O thread that the engine has, by number. The engine's side has
// the numbers alone: it may outlive the thread and its io_context, which sockets must not.
struct RemoteRequests::Held {
  explicit Held(RemoteEngine& of) : engine(of) {}

  RemoteEngine& engine;
  std::uint64_t next = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<http::Exchange>> exchanges;
  std::unordered_map<std::uint64_t, std::unique_ptr<http::ResponseStream>> streams;

  [[nodiscard]] std::unique_ptr<http::Exchange> take(std::uint64_t number) {
    const auto found = exchanges.extract(number);
    return found.empty() ? nullptr : std::move(found.mapped());
  }
};

// What the engine's thread holds of them. Nothing happens once the thread has ended.
class RemoteRequests::Crossing {
 public:
  Crossing(const std::shared_ptr<Held>& held, std::uint64_t number)
      : held_(held), number_(number) {}

  [[nodiscard]] std::uint64_t number() const { return number_; }
  // Calls act(held) on the I/O thread.
  template <typename Act>
  void post(Act act) const {
    auto held = held_.lock();
    if (held == nullptr) return;
    asio::io_context& io = held->engine.io();
    asio::post(io, [held = std::move(held), act = std::move(act)]() mutable { act(*held); });
  }

 private:
  std::weak_ptr<Held> held_;
  std::uint64_t number_;
};

// A response in parts.
class RemoteRequests::Stream final : public http::ResponseStream {
 public:
  Stream(Crossing there, std::shared_ptr<std::atomic<bool>> over)
      : there_(std::move(there)), over_(std::move(over)) {}
  ~Stream() override {
    *drained_ = nullptr;
    there_.post([number = there_.number()](Held& held) { held.streams.erase(number); });
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // The end of the connection is noticed one part later.
  bool send(std::string part) override {
    on_stream([part = std::move(part), over = over_](Held&, http::ResponseStream& stream) mutable {
      if (!stream.send(std::move(part))) *over = true;
    });
    return !*over_;
  }
  void on_drained(Done drained) override {
    *drained_ = nullptr;
    drained_ = std::make_shared<Done>(std::move(drained));
    on_stream([callback = drained_](Held& held, http::ResponseStream& stream) {
      stream.on_drained(crossing(held.engine, callback));
    });
  }
  void abort() override {
    on_stream([](Held&, http::ResponseStream& stream) { stream.abort(); });
  }

 private:
  template <typename Act>
  void on_stream(Act act) {
    there_.post([number = there_.number(), act = std::move(act)](Held& held) mutable {
      const auto found = held.streams.find(number);
      if (found != held.streams.end()) act(held, *found->second);
    });
  }

  const Crossing there_;
  const std::shared_ptr<std::atomic<bool>> over_;  // nothing more can be sent
  Callback drained_ = std::make_shared<Done>();
};

class RemoteRequests::Exchange final : public http::Exchange {
 public:
  explicit Exchange(Crossing there) : there_(std::move(there)) {}
  ~Exchange() override {
    *gone_ = nullptr;
    if (!answered_)
      there_.post([number = there_.number()](Held& held) { held.exchanges.erase(number); });
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void answer(http::HttpResponse response) override {
    begin_answer();
    there_.post([number = there_.number(), response = std::move(response)](Held& held) mutable {
      if (const auto exchange = held.take(number)) exchange->answer(std::move(response));
    });
  }
  std::unique_ptr<http::ResponseStream> stream(http::HttpResponse head) override {
    begin_answer();
    there_.post([number = there_.number(), head = std::move(head)](Held& held) mutable {
      if (const auto exchange = held.take(number))
        held.streams.emplace(number, exchange->stream(std::move(head)));
    });
    return std::make_unique<Stream>(there_, std::make_shared<std::atomic<bool>>(false));
  }
  void on_gone(Done gone) override {
    if (answered_) return;
    *gone_ = nullptr;
    gone_ = std::make_shared<Done>(std::move(gone));
    there_.post([number = there_.number(), callback = gone_](Held& held) {
      const auto found = held.exchanges.find(number);
      if (found != held.exchanges.end()) found->second->on_gone(crossing(held.engine, callback));
    });
  }

 private:
  void begin_answer() {
    *gone_ = nullptr;
    answered_ = true;
  }

  const Crossing there_;
  bool answered_ = false;
  Callback gone_ = std::make_shared<Done>();
};

RemoteRequests::RemoteRequests(RemoteEngine& engine) : held_(std::make_shared<Held>(engine)) {}
RemoteRequests::~RemoteRequests() = default;

void RemoteRequests::hand_over(http::HttpRequest request, std::unique_ptr<http::Exchange> exchange,
                               EndpointRouter& engine) {
  // The connection's next request may change its own.
  if (request.peer) request.peer = std::make_shared<access::PeerIdentity>(*request.peer);
  const Crossing there(held_, held_->next++);
  held_->exchanges.emplace(there.number(), std::move(exchange));
  held_->engine.call([&engine, there, request = std::move(request)]() mutable {
    engine.take_over(std::move(request), std::make_unique<Exchange>(std::move(there)));
  });
}

}  // namespace gpulet::frontend

// An Http2Session with a service of its own, without sockets: "/test/Echo" returns its message,
// "/test/Chat" every message of a stream, "/test/Large" 1 MB, "/test/Hold" never ends.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "net/grpc/session.h"
#include "tests/net/grpc/http2_bytes.h"

namespace gpulet::net::grpc_api::testing {

inline constexpr std::size_t kMostBytes = 1U << 20U;

inline Bytes bytes_of(std::string text) {
  const auto owner = std::make_shared<const std::string>(std::move(text));
  return {owner, std::as_bytes(std::span(*owner))};
}

class World final : public SessionOwner {
 public:
  using TimePoint = Http2Session::TimePoint;

  explicit World(SessionOptions options = {}, std::size_t budget = 64U << 20U)
      : shared_{std::move(options), methods(), std::make_shared<MemoryBudget>(budget), buffers,
                std::make_shared<std::atomic<std::size_t>>(kMostBytes)},
        session_(std::make_unique<Http2Session>(shared_, *this, "127.0.0.1", false, now)) {}

  // Bytes of the client; then everything that follows from them.
  void receive(std::string_view bytes) {
    session_->receive(std::as_bytes(std::span(bytes)), now);
    settle();
  }
  void greet(std::string_view entries = {}) {
    constexpr std::uint8_t kAcknowledges = 1;
    receive(std::string(kPreface) + settings(entries) + frame(NGHTTP2_SETTINGS, kAcknowledges, 0));
  }
  void settle() {
    do {
      most_taken = std::max(most_taken, shared_.budget->taken());
      session_->produce();
      drain_output();
    } while (run_one());
  }
  void check_deadlines() {
    session_->check_deadlines(now);
    settle();
  }
  void close() { session_.reset(); }

  [[nodiscard]] Http2Session& session() { return *session_; }
  [[nodiscard]] std::size_t budget_taken() const { return shared_.budget->taken(); }

  BufferPool buffers{{}};
  Answers answers;
  TimePoint now{};
  std::size_t most_taken = 0;
  std::size_t begun = 0;
  std::size_t cancelled = 0;

 private:
  using Task = std::function<void()>;

  class Direct final : public Responder {
   public:
    Direct(World& world, std::int32_t stream) : world_(world), stream_(stream) {}
    void respond(std::optional<WireMessage> message, std::optional<CallEnd> end) override {
      world_.tasks_.push_back([&world = world_, stream = stream_, message = std::move(message),
                               end = std::move(end)]() mutable {
        world.session_->respond(stream, std::move(message), std::move(end));
      });
    }

   private:
    World& world_;
    const std::int32_t stream_;
  };

  enum class Kind { echo, chat, large, hold };

  class Service final : public CallHandler {
   public:
    Service(World& world, Kind kind, ResponderPointer responder)
        : world_(world), kind_(kind), responder_(std::move(responder)) {}

    void on_message(Bytes message) override {
      std::string content(reinterpret_cast<const char*>(message.view().data()), message.size());
      if (kind_ == Kind::large) content = std::string(kMostBytes, 'l');
      answer_ = {{bytes_of(testing::message(content))}};
      if (kind_ != Kind::chat) return;
      sending_ = true;
      responder_->send(std::move(answer_));
    }
    void on_end() override {
      if (kind_ == Kind::echo || kind_ == Kind::large) responder_->answer(std::move(answer_));
      ended_ = true;
      if (kind_ == Kind::chat && !sending_) responder_->finish({});
    }
    void on_sent() override {
      sending_ = false;
      if (ended_) responder_->finish({});
    }
    bool takes_messages() override { return !sending_; }
    void on_cancel(const Status& /*why*/) override { ++world_.cancelled; }

   private:
    World& world_;
    const Kind kind_;
    const ResponderPointer responder_;
    WireMessage answer_;
    bool sending_ = false;
    bool ended_ = false;
  };

  MethodTable methods() {
    const auto method = [this](Kind kind) {
      return Method{.takes_several = kind == Kind::chat,
                    .infers = false,
                    .most_bytes = 0,
                    .start = [this, kind](const CallHead&, const ResponderPointer& responder) {
                      ++begun;
                      return std::make_shared<Service>(*this, kind, responder);
                    }};
    };
    MethodTable table;
    table.emplace("/test/Echo", method(Kind::echo));
    table.emplace("/test/Chat", method(Kind::chat));
    table.emplace("/test/Large", method(Kind::large));
    table.emplace("/test/Hold", method(Kind::hold));
    return table;
  }

  ResponderPointer responder_of(std::int32_t stream) override {
    return std::make_shared<Direct>(*this, stream);
  }
  void continue_later(std::int32_t stream) override {
    tasks_.push_back([this, stream] { session_->continue_call(stream, now); });
  }

  void drain_output() {
    OutputQueue& output = session_->output();
    while (!output.empty()) {
      std::size_t bytes = 0;
      for (const asio::const_buffer& piece : output.front()) {
        answers.read({static_cast<const char*>(piece.data()), piece.size()});
        bytes += piece.size();
      }
      output.written(bytes);
      session_->produce();
    }
  }
  bool run_one() {
    if (tasks_.empty()) return false;
    const Task task = std::move(tasks_.front());
    tasks_.pop_front();
    task();
    return true;
  }

  SessionShared shared_;
  std::deque<Task> tasks_;
  std::unique_ptr<Http2Session> session_;
};

}  // namespace gpulet::net::grpc_api::testing

// ReplyRouter: the way back from the engine. Every client of the engine, be it a connection of
// gpulet's own protocol, another frontend, or a call over HTTP or gRPC, has an id and a sink; a
// reply finds its sink by one look-up.
//
// A router belongs to one thread, and so do its sinks. The engine's thread has one. Each I/O thread
// has one of its own; its clients' ids tell the engine's router the thread, whose ReplyOutbox
// brings the replies there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <variant>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/protocol/frame.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::frontend {

// Where the replies of one client go.
class ReplySink {
 public:
  // The outcome of one of its requests.
  virtual void reply(InferReply reply) = 0;
  // Another frontend serves the model of the request with that tag. Sent to frontends only.
  virtual void reply_elsewhere(std::uint64_t /*tag*/) {}
  // An answer to a message of the client that is no inference. Calls over HTTP and gRPC send none.
  virtual void send(const protocol::OutgoingFrame& /*answer*/) {}

 protected:
  ~ReplySink() = default;
};

class ReplyOutbox;

// Which of the frontend's threads a connection belongs to: 0 is the engine's, 1, 2, ... are the I/O
// threads.
struct ThreadOfConnections {
  std::size_t number = 0;
  std::size_t of = 1;  // threads in all
};

class ReplyRouter {
 public:
  explicit ReplyRouter(ThreadOfConnections thread = {})
      : thread_(thread), next_(thread.number == 0 ? thread.of : thread.number) {}

  // A number that no client and no backend of this process has had.
  [[nodiscard]] std::uint64_t new_connection() {
    const std::uint64_t number = next_;
    next_ += thread_.of;
    return number;
  }
  [[nodiscard]] ClientId new_client() { return ClientId{new_connection()}; }

  // REQUIRES: the sink outlives its entry.
  void add(ClientId client, ReplySink& sink) { sinks_.emplace(client.value, &sink); }
  void remove(ClientId client) { sinks_.erase(client.value); }
  // Null: the client is gone, and so is its interest in a reply; or it belongs to another thread.
  [[nodiscard]] ReplySink* find(ClientId client) const {
    const auto found = sinks_.find(client.value);
    return found == sinks_.end() ? nullptr : found->second;
  }

  // The outboxes of the I/O threads, in their order. Call before the first connection. REQUIRES:
  // this is the engine's router; they outlive it.
  void connect(std::vector<ReplyOutbox*> outboxes) { outboxes_ = std::move(outboxes); }

  // As reply() and send() of ReplySink, whichever thread the client belongs to. Nothing where it is
  // gone.
  void reply(ClientId client, InferReply reply) const;
  void send(ClientId client, const protocol::OutgoingFrame& answer) const;

 private:
  // Null: the client belongs to this thread.
  [[nodiscard]] ReplyOutbox* outbox_of(ClientId client) const {
    const std::size_t thread = client.value % thread_.of;
    return thread == thread_.number ? nullptr : outboxes_.at(thread - 1);
  }

  const ThreadOfConnections thread_;
  std::uint64_t next_;
  std::unordered_map<std::uint64_t, ReplySink*> sinks_;  // by ClientId
  std::vector<ReplyOutbox*> outboxes_;
};

// What the engine has for the clients of one I/O thread. All of it that a turn of the engine's
// io_context brings about crosses in one post, in its order. Belongs to the engine's thread.
class ReplyOutbox {
 public:
  // `there`: the router of the thread that runs `io`. Both io_contexts must have stopped before
  // this object or the router is destroyed.
  ReplyOutbox(net::asio::io_context& engine_io, net::asio::io_context& io, const ReplyRouter& there)
      : engine_io_(engine_io), io_(io), there_(there) {}
  ReplyOutbox(const ReplyOutbox&) = delete;
  ReplyOutbox& operator=(const ReplyOutbox&) = delete;

  void add(ClientId client, InferReply reply) { put({client, std::move(reply)}); }
  void add(ClientId client, const protocol::OutgoingFrame& answer) { put({client, answer}); }

 private:
  struct Item {
    ClientId client;
    std::variant<InferReply, protocol::OutgoingFrame> content;
  };
  void put(Item item);
  void flush();
  static void deliver(std::vector<Item>& items, const ReplyRouter& router);

  net::asio::io_context& engine_io_;
  net::asio::io_context& io_;
  const ReplyRouter& there_;
  std::vector<Item> items_;  // not empty: flush() is posted
};

}  // namespace gpulet::frontend

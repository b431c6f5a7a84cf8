// ReplyRouter: the way back from the engine. Every client of the engine, be it a connection of
// gpulet's own protocol, another frontend, or a call over HTTP or gRPC, has an id and a sink; a
// reply finds its sink by one look-up. Belongs to the thread of the io_context.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "gpulet/core/ids.h"
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

class ReplyRouter {
 public:
  // A number that no client and no backend of this process has had.
  [[nodiscard]] std::uint64_t new_connection() { return next_++; }
  [[nodiscard]] ClientId new_client() { return ClientId{new_connection()}; }

  // REQUIRES: the sink outlives its entry.
  void add(ClientId client, ReplySink& sink) { sinks_.emplace(client.value, &sink); }
  void remove(ClientId client) { sinks_.erase(client.value); }
  // Null: the client is gone, and so is its interest in a reply.
  [[nodiscard]] ReplySink* find(ClientId client) const {
    const auto found = sinks_.find(client.value);
    return found == sinks_.end() ? nullptr : found->second;
  }

 private:
  std::uint64_t next_ = 1;
  std::unordered_map<std::uint64_t, ReplySink*> sinks_;  // by ClientId
};

}  // namespace gpulet::frontend

// A gRPC call between its connection and its service. The connection calls the handler on its own
// thread, one call at a time; the service responds on any thread. Private to net/grpc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"

namespace gpulet::net::grpc_api {

// gRPC's status codes.
enum class GrpcCode : std::uint8_t {
  ok = 0,
  cancelled = 1,
  invalid_argument = 3,
  deadline_exceeded = 4,
  not_found = 5,
  permission_denied = 7,
  resource_exhausted = 8,
  unimplemented = 12,
  internal = 13,
  unavailable = 14,
  unauthenticated = 16,
};

// The end of a call: its trailers.
struct CallEnd {
  GrpcCode code = GrpcCode::ok;
  std::string message{};
  std::optional<Duration> retry_after{};  // grpc-retry-pushback-ms
};

// A message with its prefix, in pieces that are sent one after another.
struct WireMessage {
  std::vector<Bytes> pieces;

  [[nodiscard]] std::size_t size() const {
    return std::accumulate(
        pieces.begin(), pieces.end(), std::size_t{0},
        [](std::size_t total, const Bytes& piece) { return total + piece.size(); });
  }
};

// What the headers of a call say.
struct CallHead {
  std::string path;           // "/package.Service/Method"
  std::string authorization;  // empty: none
  std::string address;        // of the peer, without the port
};

// Responds to one call. Any thread. Dropped once the call has ended.
class Responder {
 public:
  // Sends a message, ends the call, or both.
  virtual void respond(std::optional<WireMessage> message, std::optional<CallEnd> end) = 0;
  void send(WireMessage message) { respond(std::move(message), std::nullopt); }
  void finish(CallEnd end) { respond(std::nullopt, std::move(end)); }
  void answer(WireMessage message) { respond(std::move(message), CallEnd()); }
  virtual ~Responder() = default;
  Responder() = default;
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;
};
using ResponderPointer = std::shared_ptr<Responder>;

class CallHandler {
 public:
  // A message has arrived, decompressed. REQUIRES: takes_messages().
  virtual void on_message(Bytes message) = 0;
  // The client sends no more messages.
  virtual void on_end() = 0;
  // The last message of send() is on its way.
  virtual void on_sent() {}
  // The call ended without its service: the client cancelled or disconnected, the deadline passed,
  // or it broke a limit. The last call.
  virtual void on_cancel(const Status& why) = 0;
  // False while further messages have to wait. Asked after on_message() and on_sent().
  [[nodiscard]] virtual bool takes_messages() { return true; }
  virtual ~CallHandler() = default;
  CallHandler() = default;
  CallHandler(const CallHandler&) = delete;
  CallHandler& operator=(const CallHandler&) = delete;
};
using CallHandlerPointer = std::shared_ptr<CallHandler>;

struct Method {
  bool takes_several = false;  // messages from the client; else exactly one
  bool infers = false;         // not served on a reserved connection
  std::size_t most_bytes = 0;  // of a message; 0: the server's limit
  // Checks the right of the caller before any message is received. Null: refused, and the responder
  // has been told.
  std::function<CallHandlerPointer(const CallHead&, const ResponderPointer&)> start;
};
// By path.
using MethodTable = std::map<std::string, Method, std::less<>>;

}  // namespace gpulet::net::grpc_api

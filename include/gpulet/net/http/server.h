// HttpServer: HTTP/1.1 on one address (Boost.Beast), plain or under TLS. Keep-alive and pipelining:
// requests of one connection are answered one at a time, in their order. It knows nothing of what
// is asked.
//
// Everything bounded: connections, the size of headers and bodies, the time that a peer may take to
// send what it began or to read what it is sent. Each bound has its own answer (503, 431, 413, 408)
// and costs nobody else anything. Bodies are received straight into the pool's memory; gzip and
// deflate are taken off, bounded by the same size, and put on where the client asks for it and the
// answer is large enough to gain. "Expect: 100-continue" is answered at once.
// Single-strand type: every call and every callback happens on the executor, none from within a
// call. Destroying it closes all connections without a callback.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/http/message.h"
#include "gpulet/net/pace.h"
#include "gpulet/net/peer_identity.h"
#include "gpulet/net/places.h"
#include "gpulet/net/tls.h"

namespace gpulet::net::http {

// A long answer whose parts are sent as they come (server-sent events). Dropping it ends the answer
// and the connection.
class ResponseStream {
 public:
  // Queues a part. Returns false where the client is gone, or reads so slowly that more than the
  // server's bound is queued: then the connection is closed.
  virtual bool send(std::string part) = 0;
  // Called once, not from within a call, when the kernel has taken all that was sent, or the client
  // is gone: whoever sends much waits for it. Replaces one that is still to come.
  virtual void on_drained(std::function<void()> drained) = 0;
  // Closes the connection without the answer's end, so that the client sees that something is
  // missing.
  virtual void abort() = 0;
  virtual ~ResponseStream() = default;
};

// One request that waits for its answer. It is answered once, by either call; dropping it
// unanswered answers 500. Answering after the client has gone does nothing.
class Exchange {
 public:
  virtual void answer(HttpResponse response) = 0;
  // Begins an answer without an end: status and headers of `head`, no body yet.
  [[nodiscard]] virtual std::unique_ptr<ResponseStream> stream(HttpResponse head) = 0;
  // The client hung up before it was answered; called at most once, not from within a call. The
  // exchange may be dropped inside.
  virtual void on_gone(std::function<void()> gone) = 0;
  virtual ~Exchange() = default;
};

class RequestHandler {
 public:
  virtual ~RequestHandler() = default;
  // The headers are here (`head` has no body). An answer refuses the request before its body is
  // read: the body is discarded where it is short, else the connection closes.
  [[nodiscard]] virtual std::optional<HttpResponse> refuse(const HttpRequest& head) = 0;
  struct BodyBound {
    std::size_t max_bytes = std::numeric_limits<std::size_t>::max();  // sent, and once decompressed
    std::optional<HttpResponse> refusal{};                            // none, in place of a body
  };
  // What body the request may have. Asked after refuse(), before anything is reserved for it, where
  // the body is long (above kUnaskedBodyBytes) or of unknown length, is encoded, or belongs to a
  // GET or HEAD. The server's own bound holds as well.
  [[nodiscard]] virtual BodyBound body_bound(const HttpRequest& head);
  static constexpr std::size_t kUnaskedBodyBytes = 64U << 10U;
  // Whether the request is served although all general places are taken: it looks how the server
  // is, or administers it.
  [[nodiscard]] virtual bool may_use_reserve(const HttpRequest& head);
  virtual void on_request(HttpRequest request, std::unique_ptr<Exchange> exchange) = 0;
  // What an error of the connection's own looks like (400, 408, 413, 415, 431, 503): a body in the
  // handler's own shape.
  [[nodiscard]] virtual HttpResponse error(unsigned status, const std::string& message) = 0;
};

struct HttpServerOptions {
  // Beyond the general places a connection serves one request, where the handler lets it.
  PlaceLimits places{.general = 16384, .reserve = 64};
  int last_descriptor = std::numeric_limits<int>::max();  // as of ListenerOptions
  std::size_t max_header_bytes = 16U << 10U;
  std::size_t max_body_bytes = 64U << 20U;   // also once decompressed
  std::size_t max_stream_bytes = 4U << 20U;  // queued of one ResponseStream
  // From a request's first byte to its body; a TLS handshake counts as a request's first byte.
  Duration header_timeout = std::chrono::seconds(30);
  Duration progress_timeout = std::chrono::seconds(30);  // of a body or an answer without a byte
  PaceLimits pace{};                                     // of a body
  Duration idle_timeout = std::chrono::minutes(10);      // between requests
  Duration first_timeout = std::chrono::minutes(10);     // before the first one begins
  TlsContextPointer tls{};                               // null: plain HTTP
};

class HttpServer {
 public:
  // Binds and listens. Port 0: any free one. Fails with invalid (not an address) or unavailable (in
  // use, not permitted), naming address and port. The handler and the pool outlive the server.
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> listen(
      const asio::any_io_executor& executor, const std::string& host, std::uint16_t port,
      const HttpServerOptions& options, BufferPool& buffers, RequestHandler& handler);

  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::string local_address() const;
  [[nodiscard]] std::size_t connections() const;
  [[nodiscard]] const Places& places() const;

  // Of connections that are accepted from now on.
  void use_tls(TlsContextPointer tls);
  // Closes the connections of those peers, requests under way included.
  void close_those(const std::function<bool(const PeerIdentity&)>& who);

  // Accepts no more connections and no more requests: those that are waiting are answered with
  // "Connection: close"; idle connections close.
  void drain();

  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

 private:
  class Impl;
  explicit HttpServer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // shared with the operations in flight
};

}  // namespace gpulet::net::http

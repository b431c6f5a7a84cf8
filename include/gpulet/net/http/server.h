// HttpServer: HTTP/1.1 on one address, plain or under TLS. Supports keep-alive and pipelining: the
// requests of a connection are handled one at a time, in order. Knows nothing about their meaning.
//
// Connections, header and body sizes and the time to send or receive are limited. Each limit has a
// response of its own (503, 431, 413, 408) and affects no other connection. Bodies are received
// straight into the pool's memory. gzip and deflate bodies are decoded under the same size limit;
// responses are compressed where the client accepts it and the size makes it worthwhile.
// "Expect: 100-continue" is answered at once. An HTTP/2 client is told in its own protocol to use
// HTTP/1.1.
//
// Framing is read as RFC 9112 has it, without its tolerances: another server in front may read the
// same bytes otherwise, and then one client's bytes could pass for another's request.
//
// The server belongs to the executor that it listens on. Each connection belongs to one executor
// with its handler, that of the server or another: calls of its exchanges and callbacks happen
// there; no callback is made from within a call. Destroying the server closes all connections
// without a callback.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/access/tokens.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/http/message.h"
#include "gpulet/net/listener.h"

namespace gpulet::net::http {

// A response whose body is sent in parts as they become available (server-sent events). Destroying
// it ends the response and the connection.
class ResponseStream {
 public:
  // Queues a part. Returns false if the client disconnected or reads so slowly that more than the
  // server's limit is queued; the connection is then closed.
  virtual bool send(std::string part) = 0;
  // Calls `drained` once the kernel has taken all parts or the client disconnected; never from
  // within a call. Replaces a pending callback.
  virtual void on_drained(std::function<void()> drained) = 0;
  // Closes the connection without ending the body, so that the client notices the loss.
  virtual void abort() = 0;
  virtual ~ResponseStream() = default;
};

// One request that awaits its response. Exactly one of answer() and stream() is called; destroying
// it without either sends 500. Both do nothing once the client has disconnected.
class Exchange {
 public:
  virtual void answer(HttpResponse response) = 0;
  // Starts a response of unknown length with the status and headers of `head`.
  [[nodiscard]] virtual std::unique_ptr<ResponseStream> stream(HttpResponse head) = 0;
  // Calls `gone` if the client disconnects before the response; at most once, never from within a
  // call. The callback may destroy the exchange.
  virtual void on_gone(std::function<void()> gone) = 0;
  virtual ~Exchange() = default;
};

class RequestHandler {
 public:
  virtual ~RequestHandler() = default;
  // The head has arrived: called once for each request, before all other functions. The result is
  // HttpRequest::route from then on.
  [[nodiscard]] virtual std::shared_ptr<const RequestRoute> route(const HttpRequest& head);
  // `head` has no body. A response rejects the request before its body is read: a short body is
  // discarded, with a long one the connection closes.
  [[nodiscard]] virtual std::optional<HttpResponse> refuse(const HttpRequest& head) = 0;
  struct BodyBound {
    std::size_t max_bytes = std::numeric_limits<std::size_t>::max();  // encoded and decoded
    std::optional<HttpResponse> refusal{};                            // set: no body is accepted
    std::string reason{};  // what the limit follows from, for the error of a longer body
  };
  // Limits the body below the server's own limit. Called after refuse(), before memory is reserved,
  // for a body above kUnaskedBodyBytes, of unknown length, encoded, or of a GET or HEAD.
  [[nodiscard]] virtual BodyBound body_bound(const HttpRequest& head);
  static constexpr std::size_t kUnaskedBodyBytes = 64U << 10U;
  // True if the request may use a reserved slot: it observes or administers the server.
  [[nodiscard]] virtual bool may_use_reserve(const HttpRequest& head);
  virtual void on_request(HttpRequest request, std::unique_ptr<Exchange> exchange) = 0;
  // Formats an error of the connection itself (400, 408, 413, 415, 431, 503).
  [[nodiscard]] virtual HttpResponse error(unsigned status, const std::string& message) = 0;
};

struct HttpServerOptions {
  // A connection in a reserved slot serves one request, if the handler allows it.
  ConnectionLimits connections{.general = 16384, .reserve = 64};
  int last_descriptor = std::numeric_limits<int>::max();  // as in ListenerOptions
  std::size_t max_header_bytes = 16U << 10U;
  std::size_t max_body_bytes = 64U << 20U;   // encoded and decoded
  std::size_t max_stream_bytes = 4U << 20U;  // queued by one ResponseStream
  // From the first byte of a request, or the start of a TLS handshake, to the body.
  Duration header_timeout = std::chrono::seconds(30);
  Duration progress_timeout = std::chrono::seconds(30);  // in a body or response, without a byte
  PaceLimits pace{};                                     // for bodies
  Duration idle_timeout = std::chrono::minutes(10);      // between requests
  Duration first_timeout = std::chrono::minutes(10);     // before the first request
  TlsContextPointer tls{};                               // null: plain HTTP
};

class HttpServer {
 public:
  // An executor of connections, and the handler of their requests.
  struct Place {
    asio::any_io_executor executor;
    RequestHandler& handler;
  };

  // Binds and listens. Port 0: any free port. Fails as Listener::listen. REQUIRES: handler and pool
  // outlive the server.
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> listen(
      const asio::any_io_executor& executor, const std::string& host, std::uint16_t port,
      const HttpServerOptions& options, BufferPool& buffers, RequestHandler& handler);
  // The same with connections at several places, which take turns. What is called on the server
  // then takes effect there soon, in the order of the calls. REQUIRES: at least one; other
  // executors do not run any more when the server is destroyed.
  [[nodiscard]] static Result<std::unique_ptr<HttpServer>> listen(
      const asio::any_io_executor& executor, const std::string& host, std::uint16_t port,
      const HttpServerOptions& options, BufferPool& buffers, const std::vector<Place>& places);

  [[nodiscard]] std::uint16_t port() const;
  [[nodiscard]] std::string local_address() const;
  [[nodiscard]] std::size_t connections() const;
  [[nodiscard]] const ConnectionSlots& slots() const;

  // Applies to connections accepted from now on.
  void use_tls(TlsContextPointer tls);
  // Closes the connections of matching peers, including those with a request in flight. `matches`
  // is called where the connections are.
  void close_matching(const std::function<bool(const access::PeerIdentity&)>& matches);

  // Answers every request with "Connection: close" from now on, so that clients go elsewhere.
  void start_leaving();
  // Accepts no more connections.
  void stop_listening();
  // Accepts no more connections or requests. Pending requests are answered with "Connection:
  // close"; idle connections close.
  void drain();

  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

 private:
  class Sessions;
  HttpServer(std::vector<std::shared_ptr<Sessions>> sessions, std::unique_ptr<Listener> listener,
             asio::any_io_executor executor);
  void each(const std::function<void(Sessions&)>& act);

  const std::vector<std::shared_ptr<Sessions>> sessions_;  // shared with the operations in flight
  const std::unique_ptr<Listener> listener_;
  const asio::any_io_executor executor_;
};

}  // namespace gpulet::net::http

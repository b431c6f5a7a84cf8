// The syntax of HTTP/1.1, without sockets: RequestReader splits a connection's bytes into requests,
// response_head() formats responses. Private to net/http. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gpulet/base/status.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/http/message.h"
#include "net/http/chunks.h"
#include "net/http/coding.h"

namespace gpulet::net::http {

inline constexpr unsigned kBadRequest = 400;
inline constexpr unsigned kContentTooLarge = 413;
inline constexpr unsigned kUnavailable = 503;

// ---- requests

struct RequestLimits {
  std::size_t max_header_bytes = 0;
  std::size_t max_body_bytes = 0;
};

// A body of known length gets pooled memory and may be received straight from the socket. A chunked
// body passes through read(). A failure is final: the start of the next request is unknown.
class RequestReader {
 public:
  enum class Event : std::uint8_t {
    need_more,  // pass the bytes that were not taken again, with more behind them
    head,       // head() is complete: call take_body() or drop_body()
    whole,      // the request is complete: call take()
    failed,     // see failure()
  };
  struct Step {
    Event event = Event::need_more;
    std::size_t taken = 0;  // bytes consumed
  };
  struct Failure {
    unsigned status = 0;
    std::string message;
    bool http2 = false;  // the peer speaks HTTP/2; see refusal_of_http2()
  };

  RequestReader(const RequestLimits& limits, BufferPool& buffers);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  [[nodiscard]] Step read(std::span<const std::byte> bytes);
  // True from the first byte of a request to take().
  [[nodiscard]] bool inside() const { return parser_ != nullptr; }
  [[nodiscard]] bool inside_body() const { return stage_ > Stage::undecided; }
  [[nodiscard]] bool inside_chunks() const { return stage_ == Stage::chunks; }
  [[nodiscard]] const Failure& failure() const { return failure_; }

  // ---- valid from `head` to take()
  [[nodiscard]] const HttpRequest& head() const;
  void set_peer(std::shared_ptr<access::PeerIdentity> peer);
  void set_route(std::shared_ptr<const RequestRoute> route);
  [[nodiscard]] bool keep_alive() const;
  [[nodiscard]] bool http_1_1() const;
  // The length of the body; empty if chunked.
  [[nodiscard]] std::optional<std::uint64_t> body_bytes() const;
  // Accepts a body of at most `max_bytes` and the limit. Fails with overloaded (the pool's limit is
  // reached) or invalid (a longer body is announced).
  [[nodiscard]] Status take_body(std::size_t max_bytes);
  void drop_body();

  // The memory to receive the rest of the body into, instead of read(); empty: use read().
  [[nodiscard]] std::span<std::byte> body_space() const;
  // The first `bytes` of body_space() were received; continue with read().
  void body_received(std::size_t bytes) { filled_ += bytes; }

  // The request with its encoded body; the next one may start. REQUIRES: read() returned whole.
  [[nodiscard]] HttpRequest take();

 private:
  class Parser;
  enum class Stage : std::uint8_t { head, undecided, taking, dropping, chunks };

  [[nodiscard]] Step read_head(std::span<const std::byte> bytes);
  [[nodiscard]] Step check_framing(std::size_t taken);
  [[nodiscard]] Step go_on(std::size_t taken);
  [[nodiscard]] Step read_sized(std::span<const std::byte> bytes);
  [[nodiscard]] Step read_chunks(std::span<const std::byte> bytes);
  [[nodiscard]] Step fail_in_chunks(const ChunkReader::Step& step, std::size_t taken);
  [[nodiscard]] Step fail(unsigned status, std::string message, std::size_t taken);

  const RequestLimits limits_;
  BufferPool& buffers_;
  std::unique_ptr<Parser> parser_;  // of the current request
  Stage stage_ = Stage::head;
  std::size_t head_bytes_ = 0;
  IncomingBytes body_;
  std::size_t filled_ = 0;  // received or dropped bytes of a body of known length
  std::optional<ChunkReader> chunk_reader_;
  GrowingMemory chunks_;
  bool drops_chunks_ = false;
  Failure failure_;
};

// ---- responses

// The Date header, formatted at most once a second.
class DateText {
 public:
  [[nodiscard]] std::string_view now();

 private:
  std::time_t made_at_ = 0;
  std::string text_;
};

struct ResponseFormat {
  bool http_1_1 = true;
  bool keep_alive = true;
  std::optional<std::size_t> body_bytes{};  // empty: unknown
  Coding coding = Coding::identity;
};

// Without body_bytes the body is chunked, or for HTTP/1.0 ends with the connection.
[[nodiscard]] std::string response_head(const HttpResponse& response, const ResponseFormat& format,
                                        std::string_view date);

// True for statuses whose responses have no body.
[[nodiscard]] bool has_no_body(unsigned status);

// Formats one chunk. REQUIRES: not empty, which would end the body.
[[nodiscard]] std::string chunk_of(std::string_view part);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";
inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// The frames that tell an HTTP/2 client, in its own protocol, to use HTTP/1.1: SETTINGS, which a
// server must send first, and GOAWAY with the message for people.
[[nodiscard]] std::string refusal_of_http2(std::string_view message);

}  // namespace gpulet::net::http

// RequestReader: one HTTP request after another out of the bytes of a connection, without a socket.
// Private to net/http. One thread at a time.
//
// A body whose length the head tells is taken into memory of the pool, and may be received there
// straight from the socket; a chunked one goes through read() and grows. A failure is final: the
// place where the next request would begin is not known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/http/message.h"

namespace gpulet::net::http {

struct RequestLimits {
  std::size_t max_header_bytes = 0;
  std::size_t max_body_bytes = 0;
};

class RequestReader {
 public:
  enum class Event : std::uint8_t {
    need_more,  // of the bytes; those that were not taken must be there again
    head,       // head() is whole, its body is to come: take_body() or drop_body() decides
    whole,      // take() has it
    failed,     // failure() says why
  };
  struct Step {
    Event event = Event::need_more;
    std::size_t taken = 0;  // of the bytes, from their front
  };
  struct Failure {
    unsigned status = 0;
    std::string message;
  };

  RequestReader(const RequestLimits& limits, BufferPool& buffers);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  [[nodiscard]] Step read(std::span<const std::byte> bytes);
  // Whether a request has begun and is not taken yet.
  [[nodiscard]] bool inside() const { return parser_ != nullptr; }
  [[nodiscard]] bool inside_body() const { return stage_ > Stage::undecided; }
  [[nodiscard]] bool inside_chunks() const { return stage_ == Stage::chunks; }
  [[nodiscard]] const Failure& failure() const { return failure_; }

  // ---- from `head` to take()
  [[nodiscard]] const HttpRequest& head() const;
  void set_peer(std::shared_ptr<PeerIdentity> peer);
  [[nodiscard]] bool keep_alive() const;
  [[nodiscard]] bool http_1_1() const;
  // Bytes of the body; nothing where it is chunked.
  [[nodiscard]] std::optional<std::uint64_t> body_bytes() const;
  // Of at most so many bytes, where that is less than the limit. Fails with overloaded (the pool
  // has no memory for it) or invalid (it announces more).
  [[nodiscard]] Status take_body(std::size_t max_bytes);
  void drop_body();

  // Where the rest of the body may be received without passing it through read(); empty where it
  // may not.
  [[nodiscard]] std::span<std::byte> body_space() const;
  // So many bytes were received there; read() goes on.
  void body_received(std::size_t bytes) { filled_ += bytes; }

  // After `whole`: the request, its body as it was sent. The next one may begin.
  [[nodiscard]] HttpRequest take();

 private:
  class Parser;
  enum class Stage : std::uint8_t { head, undecided, taking, dropping, chunks };

  [[nodiscard]] Step read_head(std::span<const std::byte> bytes);
  [[nodiscard]] Step read_sized(std::span<const std::byte> bytes);
  [[nodiscard]] Step read_chunks(std::span<const std::byte> bytes);
  [[nodiscard]] Step fail(unsigned status, std::string message, std::size_t taken);

  const RequestLimits limits_;
  BufferPool& buffers_;
  std::unique_ptr<Parser> parser_;  // of the request under way
  Stage stage_ = Stage::head;
  std::size_t head_bytes_ = 0;
  IncomingBytes body_;
  std::size_t filled_ = 0;  // of the body whose length is known, or dropped of it
  Failure failure_;
};

}  // namespace gpulet::net::http

// ChunkReader: the chunked transfer coding of a request body (RFC 9112, section 7.1), without
// sockets. Private to net/http. One thread at a time.
//
// Every line ends with CR LF, and neither occurs anywhere else in a line: servers that disagree
// about the end of a line read different requests from the same bytes. Extensions and trailers are
// checked and dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpulet::net::http {

class ChunkReader {
 public:
  enum class Event : std::uint8_t {
    need_more,      // all bytes are taken, and the body goes on
    data,           // `data` is a part of the body
    end,            // of the body and its trailers
    malformed,      // final; see fault()
    body_too_long,  // final: the announced chunks exceed the limit
  };
  struct Step {
    Event event = Event::need_more;
    std::size_t taken = 0;    // bytes consumed
    std::string_view data{};  // refers to the bytes read
  };

  // `max_line_bytes`: of the line before a chunk, and of all trailers together.
  ChunkReader(std::uint64_t max_body_bytes, std::size_t max_line_bytes)
      : max_body_bytes_(max_body_bytes), max_line_bytes_(max_line_bytes) {}

  [[nodiscard]] Step read(std::string_view bytes);
  [[nodiscard]] const std::string& fault() const { return fault_; }

 private:
  enum class State : std::uint8_t {
    size_begin,  // before the first digit of a chunk's size
    size,
    size_space,       // behind the size, before an extension
    extension_begin,  // behind the first ';'
    extension,
    size_line_end,  // behind the CR
    data,
    data_cr,        // behind a chunk's data
    data_line_end,  // behind the CR
    trailer_begin,  // before a trailer, or before the empty line that ends the body
    trailer_name,
    trailer_value,
    trailer_line_end,
    last_line_end,
    end,
    failed,
  };

  [[nodiscard]] Event take(char letter);
  [[nodiscard]] Event take_digit(char letter);
  [[nodiscard]] Event end_of_size_line();
  [[nodiscard]] Event go(State state);
  [[nodiscard]] Event fail(Event event, std::string fault);

  State state_ = State::size_begin;
  Event failure_ = Event::malformed;
  const std::uint64_t max_body_bytes_;
  const std::size_t max_line_bytes_;
  std::uint64_t announced_ = 0;  // by all chunks so far
  std::uint64_t size_ = 0;       // of the chunk; in State::data what is left of it
  std::size_t line_bytes_ = 0;
  std::string fault_;
};

}  // namespace gpulet::net::http

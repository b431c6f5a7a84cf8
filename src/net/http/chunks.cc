#include "net/http/chunks.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace gpulet::net::http {
namespace {

constexpr unsigned kHexBits = 4;
constexpr std::uint64_t kMostBeforeDigit = ~std::uint64_t{0} >> kHexBits;

std::optional<unsigned> hex_value(char letter) {
  if (letter >= '0' && letter <= '9') return static_cast<unsigned>(letter - '0');
  if (letter >= 'a' && letter <= 'f') return static_cast<unsigned>(letter - 'a' + 10);
  if (letter >= 'A' && letter <= 'F') return static_cast<unsigned>(letter - 'A' + 10);
  return std::nullopt;
}

bool is_space(char letter) { return letter == ' ' || letter == '\t'; }

bool is_token_character(char letter) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9') || kOthers.find(letter) != std::string_view::npos;
}

bool is_line_character(char letter) {
  const auto byte = static_cast<unsigned char>(letter);
  return letter == '\t' || (byte >= 0x20 && byte != 0x7f);
}

}  // namespace

ChunkReader::Step ChunkReader::read(std::string_view bytes) {
  if (state_ == State::failed) return {failure_, 0, {}};
  std::size_t taken = 0;
  while (taken < bytes.size() && state_ != State::end) {
    if (state_ == State::data) {
      const auto count =
          static_cast<std::size_t>(std::min<std::uint64_t>(size_, bytes.size() - taken));
      size_ -= count;
      if (size_ == 0) state_ = State::data_cr;
      return {Event::data, taken + count, bytes.substr(taken, count)};
    }
    const Event event = take(bytes[taken]);
    ++taken;
    if (event != Event::need_more) return {event, taken, {}};
  }
  return {state_ == State::end ? Event::end : Event::need_more, taken, {}};
}

ChunkReader::Event ChunkReader::go(State state) {
  state_ = state;
  return Event::need_more;
}

ChunkReader::Event ChunkReader::fail(Event event, std::string fault) {
  state_ = State::failed;
  failure_ = event;
  fault_ = std::move(fault);
  return event;
}

ChunkReader::Event ChunkReader::take(char letter) {
  if (++line_bytes_ > max_line_bytes_)
    return fail(Event::malformed, "the line before a chunk, or the trailers, are too long");
  switch (state_) {
    case State::size_begin:
    case State::size:
      return take_digit(letter);
    case State::size_space:
      if (is_space(letter)) return Event::need_more;
      if (letter == ';') return go(State::extension_begin);
      return fail(Event::malformed, "a chunk's size is followed by other text");
    case State::extension_begin:
      if (is_space(letter)) return Event::need_more;
      if (is_token_character(letter)) return go(State::extension);
      return fail(Event::malformed, "a chunk's extension has no name");
    case State::extension:
      if (letter == '\r') return go(State::size_line_end);
      if (is_line_character(letter)) return Event::need_more;
      return fail(Event::malformed, "a chunk's extension holds a control character");
    case State::size_line_end:
      return letter == '\n'
                 ? end_of_size_line()
                 : fail(Event::malformed, "the line before a chunk does not end with CR LF");
    case State::data_cr:
      return letter == '\r' ? go(State::data_line_end)
                            : fail(Event::malformed, "a chunk is longer than its size");
    case State::data_line_end:
      line_bytes_ = 0;
      return letter == '\n' ? go(State::size_begin)
                            : fail(Event::malformed, "a chunk does not end with CR LF");
    case State::trailer_begin:
      if (letter == '\r') return go(State::last_line_end);
      [[fallthrough]];
    case State::trailer_name:
      if (letter == ':' && state_ == State::trailer_name) return go(State::trailer_value);
      return is_token_character(letter) ? go(State::trailer_name)
                                        : fail(Event::malformed, "a trailer has no valid name");
    case State::trailer_value:
      if (letter == '\r') return go(State::trailer_line_end);
      return is_line_character(letter)
                 ? Event::need_more
                 : fail(Event::malformed, "a trailer holds a control character");
    case State::trailer_line_end:
      return letter == '\n' ? go(State::trailer_begin)
                            : fail(Event::malformed, "a trailer does not end with CR LF");
    case State::last_line_end:
      if (letter != '\n') return fail(Event::malformed, "the body does not end with CR LF");
      state_ = State::end;
      return Event::end;
    case State::data:
    case State::end:
    case State::failed:
      break;
  }
  return failure_;
}

ChunkReader::Event ChunkReader::take_digit(char letter) {
  if (const std::optional<unsigned> digit = hex_value(letter)) {
    if (size_ > kMostBeforeDigit) return fail(Event::malformed, "a chunk's size exceeds 64 bits");
    size_ = (size_ << kHexBits) | *digit;
    return go(State::size);
  }
  if (state_ == State::size) {
    if (letter == '\r') return go(State::size_line_end);
    if (letter == ';') return go(State::extension_begin);
    if (is_space(letter)) return go(State::size_space);
  }
  return fail(Event::malformed, "a chunk's size is not a hexadecimal number");
}

ChunkReader::Event ChunkReader::end_of_size_line() {
  line_bytes_ = 0;
  if (size_ == 0) return go(State::trailer_begin);
  if (size_ > max_body_bytes_ - announced_) {
    return fail(Event::body_too_long, "the chunked body exceeds the limit of " +
                                          std::to_string(max_body_bytes_) + " bytes");
  }
  announced_ += size_;
  return go(State::data);
}

}  // namespace gpulet::net::http

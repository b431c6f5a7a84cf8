// HTTP/2 as bytes: frames and calls as a client writes them, well formed or not, and the headers
// that the server sends, by stream.
#pragma once

#include <nghttp2/nghttp2.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>

namespace gpulet::net::grpc_api::testing {

inline constexpr std::uint8_t kEndStream = 1;
inline constexpr std::uint8_t kEndHeaders = 4;
inline constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

inline std::string big_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i)
    text += static_cast<char>(value >> (8U * static_cast<unsigned>(i)) & 0xFFU);
  return text;
}

inline std::string frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream,
                         std::string_view payload = {}) {
  return big_endian(payload.size(), 3) + static_cast<char>(type) + static_cast<char>(flags) +
         big_endian(stream, 4) + std::string(payload);
}

inline std::string settings(std::string_view entries = {}) {
  return frame(NGHTTP2_SETTINGS, 0, 0, entries);
}
inline std::string ping() { return frame(NGHTTP2_PING, 0, 0, std::string(8, 'p')); }

// A text of HPACK, not compressed.
inline std::string hpack_text(std::string_view text) {
  constexpr std::size_t kOneByte = 127;
  std::string coded;
  if (text.size() < kOneByte) {
    coded += static_cast<char>(text.size());
  } else {
    coded += static_cast<char>(kOneByte);
    std::size_t rest = text.size() - kOneByte;
    for (; rest >= 128; rest /= 128) coded += static_cast<char>(rest % 128 + 128);
    coded += static_cast<char>(rest);
  }
  return coded + std::string(text);
}
inline std::string hpack_field(std::string_view name, std::string_view value) {
  return '\0' + hpack_text(name) + hpack_text(value);
}

inline std::string call_fields(std::string_view path) {
  return hpack_field(":method", "POST") + hpack_field(":scheme", "http") +
         hpack_field(":path", path) + hpack_field(":authority", "here") +
         hpack_field("te", "trailers") + hpack_field("content-type", "application/grpc");
}
inline std::string headers(std::uint32_t stream, std::string_view path,
                           std::string_view more_fields = {}) {
  return frame(NGHTTP2_HEADERS, kEndHeaders, stream, call_fields(path) + std::string(more_fields));
}

inline std::string message(std::string_view content, bool compressed = false) {
  return std::string(1, compressed ? '\1' : '\0') + big_endian(content.size(), 4) +
         std::string(content);
}

// Bytes as DATA frames, the last of which ends the stream.
inline std::string data(std::uint32_t stream, std::string_view bytes, bool ends = true) {
  constexpr std::size_t kMost = 16384;
  std::string frames;
  do {
    const std::string_view part = bytes.substr(0, kMost);
    bytes.remove_prefix(part.size());
    frames += frame(NGHTTP2_DATA, ends && bytes.empty() ? kEndStream : 0, stream, part);
  } while (!bytes.empty());
  return frames;
}

// What a server has sent.
class Answers {
 public:
  using Fields = std::map<std::string, std::string>;

  Answers() {
    if (nghttp2_hd_inflate_new(&inflater_) != 0) throw std::runtime_error("no memory");
  }
  ~Answers() { nghttp2_hd_inflate_del(inflater_); }
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;

  void read(std::string_view bytes) {
    constexpr std::size_t kHead = 9;
    rest_ += bytes;
    while (rest_.size() >= kHead) {
      const auto byte = [this](std::size_t at) { return static_cast<std::uint8_t>(rest_[at]); };
      const std::size_t length = byte(0) * 65536U + byte(1) * 256U + byte(2);
      if (rest_.size() < kHead + length) break;
      const std::uint32_t stream = byte(7) * 256U + byte(8);
      on_frame(byte(3), stream, rest_.substr(kHead, length));
      rest_.erase(0, kHead + length);
    }
  }

  std::map<std::uint32_t, Fields> fields;  // also the trailers
  std::map<std::uint32_t, std::string> bodies;
  std::map<std::uint8_t, std::size_t> frames;  // how many, by type
  std::uint32_t goaway = 0;                    // its error

  // "grpc-status" of a call; empty: none yet.
  std::string status(std::uint32_t stream) { return fields[stream]["grpc-status"]; }

 private:
  void on_frame(std::uint8_t type, std::uint32_t stream, const std::string& payload) {
    ++frames[type];
    if (type == NGHTTP2_DATA) bodies[stream] += payload;
    if (type == NGHTTP2_GOAWAY) goaway = static_cast<std::uint8_t>(payload.at(7));
    if (type != NGHTTP2_HEADERS) return;
    std::string_view left = payload;
    for (;;) {
      nghttp2_nv field{};
      int flags = 0;
      const ssize_t taken = nghttp2_hd_inflate_hd2(
          inflater_, &field, &flags, reinterpret_cast<const std::uint8_t*>(left.data()),
          left.size(), 1);
      if (taken < 0) throw std::runtime_error("a header block is broken");
      left.remove_prefix(static_cast<std::size_t>(taken));
      if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0)
        fields[stream][text(field.name, field.namelen)] = text(field.value, field.valuelen);
      if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) break;
    }
    nghttp2_hd_inflate_end_headers(inflater_);
  }
  static std::string text(const std::uint8_t* bytes, std::size_t size) {
    return {reinterpret_cast<const char*>(bytes), size};
  }

  nghttp2_hd_inflater* inflater_ = nullptr;
  std::string rest_;
};

}  // namespace gpulet::net::grpc_api::testing

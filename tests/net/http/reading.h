// Reads a whole stream of requests, some bytes at a time, into text that can be compared. For tests
// and the fuzz target.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "net/http/http1.h"

namespace gpulet::net::http::testing {

struct Reading {
  std::vector<std::string> requests;
  std::string failure;

  friend bool operator==(const Reading&, const Reading&) = default;
};

inline std::string shown(const HttpRequest& request) {
  std::string text = request.method + '\n' + request.target + '\n';
  for (const Header& header : request.headers) text += header.name + '\n' + header.value + '\n';
  const auto body = request.body.view();
  return text + '\n' + std::string(reinterpret_cast<const char*>(body.data()), body.size());
}

inline Reading read_stream(std::string_view stream, std::size_t step) {
  BufferPool buffers({.max_idle_bytes = 0, .max_used_bytes = 1U << 22U});
  RequestReader reader({.max_header_bytes = 4096, .max_body_bytes = 1U << 16U}, buffers);
  Reading reading;
  std::string there;
  for (;;) {
    const auto next = reader.read(std::as_bytes(std::span(there)));
    there.erase(0, next.taken);
    if (next.event == RequestReader::Event::head) {
      if (!reader.take_body(1U << 16U).ok()) return reading;
    } else if (next.event == RequestReader::Event::whole) {
      reading.requests.push_back(shown(reader.take()));
    } else if (next.event == RequestReader::Event::failed) {
      reading.failure = reader.failure().message;
      return reading;
    } else {
      if (stream.empty()) return reading;
      const std::span<std::byte> space = reader.body_space();
      const std::size_t room = space.empty() ? step : std::min(step, space.size());
      const std::size_t count = std::min(room, stream.size());
      if (space.empty()) {
        there += stream.substr(0, count);
      } else {
        std::memcpy(space.data(), stream.data(), count);
        reader.body_received(count);
      }
      stream.remove_prefix(count);
    }
  }
}

}  // namespace gpulet::net::http::testing

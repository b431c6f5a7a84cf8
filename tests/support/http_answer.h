// Fields of an HTTP answer that was read as text. Tests only.
#pragma once

#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>

namespace gpulet::support {

// 0: `answer` does not begin with a status line.
[[nodiscard]] inline unsigned http_status(std::string_view answer) {
  unsigned status = 0;
  if (answer.starts_with("HTTP/1.") && answer.size() >= 12)
    (void)std::from_chars(answer.data() + 9, answer.data() + 12, status);
  return status;
}

// The value of the header called `name`, written as the server writes it; empty without one.
[[nodiscard]] inline std::string http_header(std::string_view answer, std::string_view name) {
  const std::string_view head = answer.substr(0, answer.find("\r\n\r\n"));
  const std::string start = "\r\n" + std::string(name) + ": ";
  const std::size_t at = head.find(start);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = head.substr(at + start.size());
  return std::string(rest.substr(0, rest.find("\r\n")));
}

// What follows the head. REQUIRES: it is not sent in chunks.
[[nodiscard]] inline std::string http_body(std::string_view answer) {
  const std::size_t head = answer.find("\r\n\r\n");
  return head == std::string_view::npos ? std::string() : std::string(answer.substr(head + 4));
}

}  // namespace gpulet::support

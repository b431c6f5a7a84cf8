// Url: the place of a file in a remote store. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "gpulet/base/status.h"

namespace gpulet {

inline constexpr std::size_t kLongestUrl = 2048;  // bytes

struct Url {
  enum class Scheme : std::uint8_t { http, https, s3 };

  Scheme scheme = Scheme::https;
  std::string host;        // in lower case; an IPv6 address keeps its brackets; s3: the bucket
  std::uint16_t port = 0;  // 0: the scheme's own
  // As written: the path, which begins with a slash, and the query. s3: the key, which is never
  // percent-decoded.
  std::string target;

  // The text that parse_url() reads back as an equal value.
  [[nodiscard]] std::string text() const;
  // For logs and errors: as text(), with "?..." in the place of a query, which may hold a secret.
  [[nodiscard]] std::string shown() const;
  // The name of the file: the last part of the path or key. Never empty.
  [[nodiscard]] std::string file_name() const;
  // Scheme, host and port: what one server answers for.
  [[nodiscard]] std::string origin() const;

  friend bool operator==(const Url&, const Url&) = default;
};

// Whether the text begins with a scheme and "://", known or not. No path of a file should.
[[nodiscard]] bool looks_like_url(std::string_view text);

// Fails with invalid; the message never repeats the query or a password. Rejects user names and
// passwords, which belong in the environment, and fragments, which no server sees.
[[nodiscard]] Result<Url> parse_url(std::string_view text);

}  // namespace gpulet

// HTTP requests and responses as values, independent of the library that reads and writes them. Any
// thread.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/bytes.h"

namespace gpulet::access {
struct PeerIdentity;
}  // namespace gpulet::access

namespace gpulet::net::http {

struct Header {
  std::string name;
  std::string value;

  friend bool operator==(const Header&, const Header&) = default;
};
using Headers = std::vector<Header>;

// What a handler found a request to be: its endpoint and what its target names.
struct RequestRoute {
  virtual ~RequestRoute() = default;
};

struct HttpRequest {
  std::string method;  // "GET", "POST", ...
  std::string target;  // path and query, as sent
  Headers headers;
  Bytes body;  // whole and decoded
  // Shared by all requests of a connection; the handler completes it.
  std::shared_ptr<access::PeerIdentity> peer{};
  // Found by the handler when the head had arrived; null: it looks for none.
  std::shared_ptr<const RequestRoute> route{};
};

struct HttpResponse {
  unsigned status = 200;
  Headers headers;          // besides Content-Length, Connection and those of a compression
  std::vector<Bytes> body;  // pieces, in order
};

// Compares ASCII text and ignores its case, independent of the locale.
[[nodiscard]] inline bool same_ignoring_case(std::string_view one, std::string_view other) {
  const auto lower = [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  };
  return std::equal(one.begin(), one.end(), other.begin(), other.end(),
                    [&lower](char a, char b) { return lower(a) == lower(b); });
}

// The value of the first header of that name, in any case; empty where there is none.
[[nodiscard]] inline std::string_view find_header(const Headers& headers, std::string_view name) {
  for (const Header& header : headers) {
    if (same_ignoring_case(header.name, name)) return header.value;
  }
  return {};
}

[[nodiscard]] inline Bytes bytes_of(std::string text) {
  auto owner = std::make_shared<const std::string>(std::move(text));
  const auto view = std::as_bytes(std::span(*owner));
  return {std::move(owner), view};
}

[[nodiscard]] inline HttpResponse text_response(unsigned status, std::string_view content_type,
                                                std::string text) {
  HttpResponse response;
  response.status = status;
  if (text.empty()) return response;
  response.headers.push_back({"Content-Type", std::string(content_type)});
  response.body.push_back(bytes_of(std::move(text)));
  return response;
}

}  // namespace gpulet::net::http

// An HTTP request and its answer as values, without the library that reads and writes them. Values;
// any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/core/bytes.h"
#include "gpulet/net/peer_identity.h"

namespace gpulet::net::http {

struct Header {
  std::string name;
  std::string value;

  friend bool operator==(const Header&, const Header&) = default;
};
using Headers = std::vector<Header>;

// The value of the first header of that name, in any case of letters; empty where there is none.
[[nodiscard]] std::string_view find_header(const Headers& headers, std::string_view name);

struct HttpRequest {
  std::string method;  // "GET", "POST", ...
  std::string target;  // path and query, as sent
  Headers headers;
  Bytes body;  // whole, after any Content-Encoding was taken off
  // Whose connection it came over: the same for all its requests, and the handler's to complete.
  std::shared_ptr<PeerIdentity> peer{};
};

struct HttpResponse {
  unsigned status = 200;
  Headers headers;          // besides Content-Length, Connection and what a compression adds
  std::vector<Bytes> body;  // one after another
};

[[nodiscard]] Bytes bytes_of(std::string text);
[[nodiscard]] HttpResponse text_response(unsigned status, std::string_view content_type,
                                         std::string text);

}  // namespace gpulet::net::http

// http_get(): one GET, without following redirects, within limits of time and size. Blocks on the
// network. Any thread; several at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "store/remote/address_class.h"
#include "store/remote/response_head.h"

namespace gpulet::store::remote {

struct GetLimits {
  Duration connect{};
  Duration total{};
  std::uint32_t min_bytes_per_second = 0;
  Duration stall{};                   // slower than that for so long: it fails
  std::filesystem::path authority{};  // certificates; empty: the system's
};

struct GetRequest {
  std::string url;  // http or https
  std::vector<std::pair<std::string, std::string>> headers;
  // Connects to global addresses and to those of this class only, whatever the host's name resolves
  // to. Empty: to any.
  std::optional<AddressClass> reaches{};
};

struct GetCalls {
  // The head of a response with status 200 or 206, before its body. A failure ends the transfer
  // and becomes the result.
  std::function<Status(const ResponseHead&)> begin;
  // The next bytes of such a body. As begin().
  std::function<Status(std::string_view)> data;
  // Asked about once a second at least. True: the transfer fails with cancelled.
  std::function<bool()> cancelled;
};

struct GetResponse {
  ResponseHead head;
  std::string redirect;                       // the absolute URL of a redirect; empty: none
  AddressClass peer = AddressClass::special;  // of the connection
  std::string error;  // the first 4 KB of a body that is neither of 200 nor of 206
};

// Fails with timeout or unavailable where the store does not answer, or the transfer breaks off;
// with invalid where its certificate cannot be trusted, or all its addresses are of another class
// than `reaches`. Messages do not contain the URL.
[[nodiscard]] Result<GetResponse> http_get(const GetRequest& request, const GetLimits& limits,
                                           const GetCalls& calls);

}  // namespace gpulet::store::remote

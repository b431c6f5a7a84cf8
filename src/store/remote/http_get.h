// http_get(): one GET request within limits of time, which follows no redirect. Blocks on the
// network. Any number of threads.
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
  Duration connect{};                      // until the connection is established
  Duration total{};                        // of the whole transfer
  std::uint32_t min_bytes_per_second = 0;  // a transfer that is slower for `stall` fails
  Duration stall{};                        // in whole seconds, at least 1
  std::filesystem::path authority{};       // file of trusted certificates; empty: the system's
};

struct GetRequest {
  std::string url;  // http or https
  std::vector<std::pair<std::string, std::string>> headers;
  // The class of addresses, besides the global ones, to which it may connect; it skips others that
  // the host's name resolves to. Empty: it may connect to any.
  std::optional<AddressClass> reaches{};
};

// Callbacks, which run within http_get(). REQUIRES: all are set, and none throws.
struct GetCalls {
  // The head of a response with status 200 or 206, before its body. A failure ends the transfer
  // and becomes the result.
  std::function<Status(const ResponseHead&)> begin;
  // The next bytes of the body of such a response. A failure is as that of begin().
  std::function<Status(std::string_view)> data;
  // Called at least about once a second. True: the transfer fails with cancelled.
  std::function<bool()> cancelled;
};

struct GetResponse {
  ResponseHead head;
  std::string redirect;                       // the absolute URL of a redirect; empty: none
  AddressClass peer = AddressClass::special;  // of the server's address
  std::string error;  // the first 4 KB of the body of a status other than 200 and 206
};

// Fails with timeout or unavailable where the store does not answer, or the transfer breaks off;
// with invalid where its certificate cannot be trusted, or all its addresses are of another class
// than `reaches`. Messages do not contain the URL.
[[nodiscard]] Result<GetResponse> http_get(const GetRequest& request, const GetLimits& limits,
                                           const GetCalls& calls);

}  // namespace gpulet::store::remote

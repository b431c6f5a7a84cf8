// One request to a frontend and its reply: frames (call) or HTTP (fetch_page). For commands.
// Blocking; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/net/tls.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::load {

struct Target {
  Target() = default;
  Target(config::Endpoint address)  // NOLINT(google-explicit-constructor): without TLS and token
      : endpoint(std::move(address)) {}
  Target(std::string host, std::uint16_t port) : endpoint{std::move(host), port} {}

  config::Endpoint endpoint;
  net::TlsContextPointer tls{};  // a client context; null: no TLS
  std::string token{};           // empty: none
};

inline constexpr Duration kCallTimeout = std::chrono::seconds(5);

// Returns the first reply of `target` to `request`. Fails with unavailable (no listener, connection
// lost), timeout, or malformed (another protocol). The message names the target.
[[nodiscard]] Result<FrontendReply> call(const Target& target, const ClientMessage& request,
                                         Duration timeout = kCallTimeout);

// All models and the problems of their files, fetched in pages; `timeout` applies to each page.
[[nodiscard]] Result<ModelsReply> fetch_model_list(const Target& target,
                                                   Duration timeout = kCallTimeout);
// Only the models.
[[nodiscard]] Result<std::vector<ModelInfo>> fetch_models(const Target& target,
                                                          Duration timeout = kCallTimeout);

// Registers or unregisters models; returns the affected models after the change. Also fails with
// the frontend's status if it refuses.
[[nodiscard]] Result<std::vector<ModelInfo>> change_models(const Target& target,
                                                           const ModelsChange& change,
                                                           Duration timeout = kCallTimeout);

// Whose status: that of the frontend that leads the target's cluster, or the target's own.
enum class StatusOf : std::uint8_t { cluster, target };
// The status document (docs/status.md).
[[nodiscard]] Result<std::string> fetch_status(const Target& target,
                                               Duration timeout = kCallTimeout,
                                               StatusOf of = StatusOf::cluster);

// Polled about ten times a second; false cancels the call.
using KeepWaiting = std::function<bool()>;

// The body at `path` of the frontend's HTTP address. An HTTP error becomes a Status with the body
// as its message. Also fails with unavailable (no listener), timeout, malformed (not HTTP) or
// cancelled (keep_waiting returned false). The message names the target.
[[nodiscard]] Result<std::string> fetch_page(const Target& target, const std::string& path,
                                             Duration timeout, const KeepWaiting& keep_waiting);

}  // namespace gpulet::load

// The objects that secure a port, as both daemons' files hold them. Private to config.
#pragma once

#include <filesystem>

#include "gpulet/config/json.h"
#include "gpulet/config/security_config.h"

namespace gpulet::config {

// {"certificate":F,"key":F}
[[nodiscard]] TlsFiles read_tls(const JsonCursor& cursor, const std::filesystem::path& file);
// {"certificate":F,"key":F,"authority":F}
[[nodiscard]] TlsFiles read_mutual_tls(const JsonCursor& cursor, const std::filesystem::path& file);
// {"admin":F,"inference":F,"observe":F}, one of them at least
[[nodiscard]] TokenFiles read_tokens(const JsonCursor& cursor, const std::filesystem::path& file);

// {"requests_per_s":N,"device_ms_per_s":N,"max_requests":N}, one of them at least
[[nodiscard]] ClientLimits read_client_limits(const JsonCursor& cursor);

}  // namespace gpulet::config

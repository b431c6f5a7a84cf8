// The logging and trace extensions: Triton's settings, mapped to those of this server. HTTP and
// gRPC use the same names and values. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"

namespace gpulet::net::kserve {

// A setting with its values as text.
struct Setting {
  std::string name;
  std::vector<std::string> values;  // empty: null, which requests the default

  friend bool operator==(const Setting&, const Setting&) = default;
};

// Parses a JSON object of scalars and lists of scalars. Fails with invalid.
[[nodiscard]] Result<std::vector<Setting>> read_settings(const Bytes& body);

// The least severe messages that the daemon logs.
enum class LogLevel : std::uint8_t { off, error, warning, info, debug, trace };

// The switches that Triton has instead of a level.
struct LogSwitches {
  bool error = true;
  bool warning = true;
  bool info = true;
  std::uint32_t verbose = 0;  // 1: debug; 2 and more: trace
};
[[nodiscard]] LogSwitches switches_of(LogLevel level);

// The level after applying the settings. Fails (invalid) for an unknown or fixed setting, or if the
// switches are not a level: one is on while a more severe one is off.
[[nodiscard]] Result<LogLevel> change_log(LogLevel level, std::span<const Setting> settings);

// Which requests are traced without being asked for (docs/tracing.md).
struct TraceSampling {
  static constexpr std::uint32_t kDefaultEvery = 1000;

  bool on = false;
  std::uint32_t every = kDefaultEvery;  // at least 1; kept while off

  friend bool operator==(const TraceSampling&, const TraceSampling&) = default;
};

// trace_level, trace_rate and so on, in the order of the protocol.
[[nodiscard]] std::vector<Setting> settings_of(const TraceSampling& sampling);

// The sampling after applying the settings. Fails (invalid) for an unknown or unsupported setting.
[[nodiscard]] Result<TraceSampling> change_tracing(TraceSampling sampling,
                                                   std::span<const Setting> settings);
// Checks one model's settings. All models share one sampling: also fails if they would change it.
[[nodiscard]] Status check_model_tracing(const TraceSampling& sampling,
                                         std::span<const Setting> settings);

}  // namespace gpulet::net::kserve

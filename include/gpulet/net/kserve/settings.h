// The logging and trace extensions: the settings that Triton's clients know, in terms of what there
// is here. HTTP and gRPC have the same names and values. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"

namespace gpulet::net::kserve {

// A setting as a client gives it or is told it: numbers and truths in words.
struct Setting {
  std::string name;
  std::vector<std::string> values;  // empty: null, which asks for the default

  friend bool operator==(const Setting&, const Setting&) = default;
};

// From a JSON object of scalars and lists of scalars. Fails (invalid) where it is none.
[[nodiscard]] Result<std::vector<Setting>> read_settings(const Bytes& body);

// What the daemon's log shows: messages of that severity and above.
enum class LogLevel : std::uint8_t { off, error, warning, info, debug, trace };

// The switches that Triton has in place of one level.
struct LogSwitches {
  bool error = true;
  bool warning = true;
  bool info = true;
  std::uint32_t verbose = 0;  // 1: debug; 2 and more: trace
};
[[nodiscard]] LogSwitches switches_of(LogLevel level);

// The level once the settings are in force. Fails (invalid) where one is unknown, asks for what
// cannot be changed in a running daemon, or together they are no level: one that is on beside a
// more severe one that is off.
[[nodiscard]] Result<LogLevel> change_log(LogLevel level, std::span<const Setting> settings);

// Which requests are traced by themselves (docs/tracing.md).
struct TraceSampling {
  static constexpr std::uint32_t kDefaultEvery = 1000;

  bool on = false;
  std::uint32_t every = kDefaultEvery;  // at least 1; kept while it is off

  friend bool operator==(const TraceSampling&, const TraceSampling&) = default;
};

// trace_level, trace_rate and so on, in the order in which they are told.
[[nodiscard]] std::vector<Setting> settings_of(const TraceSampling& sampling);

// The sampling once the settings are in force. Fails (invalid) where one is unknown or asks for
// what there is not.
[[nodiscard]] Result<TraceSampling> change_tracing(TraceSampling sampling,
                                                   std::span<const Setting> settings);
// The same of one model. There is one sampling for all models: fails also where the settings ask
// for another.
[[nodiscard]] Status check_model_tracing(const TraceSampling& sampling,
                                         std::span<const Setting> settings);

}  // namespace gpulet::net::kserve

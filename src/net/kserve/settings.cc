#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "gpulet/base/text.h"
#include "gpulet/net/kserve/host.h"
#include "net/kserve/json.h"

namespace gpulet::net::kserve {
namespace {

constexpr std::size_t kMostSettings = 64;
constexpr std::size_t kMostValues = 16;

struct InWords {
  std::string operator()(std::monostate) const { return {}; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(std::string_view value) const { return std::string(value); }
  std::string operator()(auto number) const { return std::to_string(number); }
};

class SettingsReader final : public JsonReader {
 public:
  std::vector<Setting> settings;

  bool scalar(const Scalar& value) override {
    if (depth() == 0) return refuse("the request's JSON must be an object; was " + shown(value));
    std::vector<std::string>& values = settings.back().values;
    if (std::holds_alternative<std::monostate>(value)) return depth() == 1 || wrong();
    if (values.size() == kMostValues) return refuse("a setting has too many values");
    values.push_back(std::visit(InWords(), value));
    return true;
  }
  bool key(std::string_view name) override {
    if (settings.size() == kMostSettings) return refuse("too many settings");
    settings.push_back({std::string(name), {}});
    return true;
  }
  bool open(bool array) override {
    if (depth() == 0 && array) return refuse("the request's JSON must be an object; was an array");
    if (depth() > 1 || (depth() == 1 && !array)) return wrong();
    return JsonReader::open(array);
  }

 private:
  bool wrong() {
    return refuse(fmt::format("setting {} must be a value or a list of values",
                              in_quotes(settings.back().name)));
  }
};

Status wrong(const Setting& setting, std::string_view expected) {
  std::string given = "null";
  if (!setting.values.empty()) given = in_quotes(setting.values.front());
  if (setting.values.size() > 1) given += " and more";
  return invalid(
      fmt::format("setting {} must be {}; was {}", in_quotes(setting.name), expected, given));
}

std::string_view only_value(const Setting& setting) {
  return setting.values.size() == 1 ? std::string_view(setting.values.front()) : std::string_view();
}

Status take(const Setting& setting, bool& into) {
  const std::string_view value = only_value(setting);
  if (value != "true" && value != "false") return wrong(setting, "true or false");
  into = value == "true";
  return {};
}

Status take(const Setting& setting, std::uint32_t& into, std::uint32_t least) {
  const std::string_view value = only_value(setting);
  const std::optional<std::uint32_t> number = parse_number<std::uint32_t>(value);
  if (!number || *number < least)
    return wrong(setting, fmt::format("an integer of at least {}", least));
  into = *number;
  return {};
}

// Accepts only the fixed value of a setting, or null.
Status keep(const Setting& setting, std::string_view value, std::string_view why) {
  if (setting.values.empty() || (setting.values.size() == 1 && setting.values.front() == value))
    return {};
  return invalid(
      fmt::format("setting {} must be {}: {}", in_quotes(setting.name), in_quotes(value), why));
}

Status unknown(const Setting& setting, std::string_view known) {
  return invalid(
      fmt::format("setting {} is unknown; known settings: {}", in_quotes(setting.name), known));
}

Result<LogLevel> level_of(const LogSwitches& switches) {
  const auto needs = [](const char* one, const char* other) {
    return invalid(fmt::format(
        "{} needs {}: the log has a single level that includes more severe messages; set both", one,
        other));
  };
  if (switches.verbose > 0 && !switches.info) return needs("log_verbose_level", "log_info");
  if (switches.info && !switches.warning) return needs("log_info", "log_warning");
  if (switches.warning && !switches.error) return needs("log_warning", "log_error");
  if (switches.verbose > 1) return LogLevel::trace;
  if (switches.verbose == 1) return LogLevel::debug;
  if (switches.info) return LogLevel::info;
  if (switches.warning) return LogLevel::warning;
  return switches.error ? LogLevel::error : LogLevel::off;
}

Status take_level(const Setting& setting, TraceSampling& sampling) {
  if (setting.values.empty()) {
    sampling.on = TraceSampling().on;
    return {};
  }
  for (const std::string& value : setting.values) {
    if (value == "TENSORS") {
      return invalid("setting 'trace_level' does not support TENSORS; use TIMESTAMPS or OFF");
    }
    if (value != "TIMESTAMPS" && value != "OFF") return wrong(setting, "TIMESTAMPS or OFF");
  }
  if (setting.values.size() > 1) return wrong(setting, "one of TIMESTAMPS and OFF");
  sampling.on = setting.values.front() == "TIMESTAMPS";
  return {};
}

Status take(const Setting& setting, TraceSampling& sampling) {
  if (setting.name == "trace_level") return take_level(setting, sampling);
  if (setting.name == "trace_rate") {
    if (!setting.values.empty()) return take(setting, sampling.every, 1);
    sampling.every = TraceSampling::kDefaultEvery;
    return {};
  }
  if (setting.name == "trace_count")
    return keep(setting, "-1", "sampling continues until trace_level is OFF");
  if (setting.name == "log_frequency" || setting.name == "trace_file") {
    return keep(setting, setting.name == "trace_file" ? "" : "0",
                "traces are kept in memory; GET /gpulet/trace?seconds=0 returns them");
  }
  if (setting.name == "trace_mode")
    return keep(setting, "triton", "OpenTelemetry export is not supported");
  return unknown(setting,
                 "trace_level, trace_rate, trace_count, log_frequency, trace_file, trace_mode");
}

}  // namespace

Result<std::vector<Setting>> read_settings(const Bytes& body) {
  SettingsReader reader;
  if (Status read = read_json(text_of(body.view()), reader); !read.ok()) return read;
  return std::move(reader.settings);
}

LogSwitches switches_of(LogLevel level) {
  return {.error = level >= LogLevel::error,
          .warning = level >= LogLevel::warning,
          .info = level >= LogLevel::info,
          .verbose = level == LogLevel::trace   ? 2U
                     : level == LogLevel::debug ? 1U
                                                : 0U};
}

Result<LogLevel> change_log(LogLevel level, std::span<const Setting> settings) {
  LogSwitches switches = switches_of(level);
  const auto take_one = [&switches](const Setting& setting) -> Status {
    if (setting.name == "log_error") return take(setting, switches.error);
    if (setting.name == "log_warning") return take(setting, switches.warning);
    if (setting.name == "log_info") return take(setting, switches.info);
    if (setting.name == "log_verbose_level") return take(setting, switches.verbose, 0);
    if (setting.name == "log_file")
      return keep(setting, "", "the daemon logs to its standard error");
    if (setting.name == "log_format") return keep(setting, "default", "the log has one format");
    return unknown(setting,
                   "log_file, log_info, log_warning, log_error, log_verbose_level, log_format");
  };
  for (const Setting& setting : settings) {
    if (Status taken = take_one(setting); !taken.ok()) return taken;
  }
  return level_of(switches);
}

std::vector<Setting> settings_of(const TraceSampling& sampling) {
  return {{"trace_level", {sampling.on ? "TIMESTAMPS" : "OFF"}},
          {"trace_rate", {std::to_string(sampling.every)}},
          {"trace_count", {"-1"}},
          {"log_frequency", {"0"}},
          {"trace_file", {""}},
          {"trace_mode", {"triton"}}};
}

Result<TraceSampling> change_tracing(TraceSampling sampling, std::span<const Setting> settings) {
  for (const Setting& setting : settings) {
    if (Status taken = take(setting, sampling); !taken.ok()) return taken;
  }
  return sampling;
}

Status check_model_tracing(const TraceSampling& sampling, std::span<const Setting> settings) {
  for (const Setting& setting : settings) {
    if (setting.values.empty()) continue;  // null: the value of all models
    TraceSampling changed = sampling;
    if (Status taken = take(setting, changed); !taken.ok()) return taken;
    if (changed != sampling) {
      return invalid(fmt::format("setting {} applies to all models; change it at /v2/trace/setting",
                                 in_quotes(setting.name)));
    }
  }
  return {};
}

}  // namespace gpulet::net::kserve

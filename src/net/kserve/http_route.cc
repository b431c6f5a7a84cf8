#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/net/kserve/http_api.h"
#include "net/kserve/json.h"

namespace gpulet::net::kserve {
namespace {

// {M}: a model, {V}: its version, {R}: a region. The first match counts.
struct Pattern {
  std::string_view path;
  std::string_view method;
  Endpoint endpoint;
};
constexpr std::array<Pattern, 34> kPatterns{{
    {"v2/models/{M}/infer", "POST", Endpoint::infer},
    {"v2/models/{M}/versions/{V}/infer", "POST", Endpoint::infer},
    {"v2", "GET", Endpoint::server_metadata},
    {"v2/", "GET", Endpoint::server_metadata},
    {"v2/health/live", "GET", Endpoint::server_live},
    {"v2/health/ready", "GET", Endpoint::server_ready},
    {"v2/models/stats", "GET", Endpoint::model_statistics},
    {"v2/models/{M}", "GET", Endpoint::model_metadata},
    {"v2/models/{M}/versions/{V}", "GET", Endpoint::model_metadata},
    {"v2/models/{M}/ready", "GET", Endpoint::model_ready},
    {"v2/models/{M}/versions/{V}/ready", "GET", Endpoint::model_ready},
    {"v2/models/{M}/config", "GET", Endpoint::model_config},
    {"v2/models/{M}/versions/{V}/config", "GET", Endpoint::model_config},
    {"v2/models/{M}/stats", "GET", Endpoint::model_statistics},
    {"v2/models/{M}/versions/{V}/stats", "GET", Endpoint::model_statistics},
    {"v2/repository/index", "POST", Endpoint::repository_index},
    {"v2/repository/models/{M}/load", "POST", Endpoint::repository_load},
    {"v2/repository/models/{M}/unload", "POST", Endpoint::repository_unload},
    {"v2/logging", "GET", Endpoint::log_settings},
    {"v2/logging", "POST", Endpoint::change_log_settings},
    {"v2/trace/setting", "GET", Endpoint::trace_settings},
    {"v2/trace/setting", "POST", Endpoint::change_trace_settings},
    {"v2/models/{M}/trace/setting", "GET", Endpoint::trace_settings},
    {"v2/models/{M}/trace/setting", "POST", Endpoint::change_trace_settings},
    {"v2/systemsharedmemory/status", "GET", Endpoint::shared_memory_status},
    {"v2/systemsharedmemory/region/{R}/status", "GET", Endpoint::shared_memory_status},
    {"v2/systemsharedmemory/region/{R}/register", "POST", Endpoint::shared_memory_register},
    {"v2/systemsharedmemory/unregister", "POST", Endpoint::shared_memory_unregister},
    {"v2/systemsharedmemory/region/{R}/unregister", "POST", Endpoint::shared_memory_unregister},
    {"v2/cudasharedmemory/status", "GET", Endpoint::cuda_memory_status},
    {"v2/cudasharedmemory/region/{R}/status", "GET", Endpoint::cuda_memory_status},
    {"v2/cudasharedmemory/region/{R}/register", "POST", Endpoint::cuda_memory_register},
    {"v2/cudasharedmemory/unregister", "POST", Endpoint::cuda_memory_unregister},
    {"v2/cudasharedmemory/region/{R}/unregister", "POST", Endpoint::cuda_memory_unregister},
}};
constexpr std::size_t kMostSegments = 6;

std::optional<unsigned> hex_digit(char letter) {
  if (letter >= '0' && letter <= '9') return static_cast<unsigned>(letter - '0');
  if (letter >= 'a' && letter <= 'f') return static_cast<unsigned>(letter - 'a' + 10);
  if (letter >= 'A' && letter <= 'F') return static_cast<unsigned>(letter - 'A' + 10);
  return std::nullopt;
}

// Empty if the percent-encoding is invalid or encodes a control character.
std::optional<std::string> decoded(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    char letter = text[i];
    if (letter == '%') {
      if (text.size() - i < 3) return std::nullopt;
      const auto high = hex_digit(text[i + 1]);
      const auto low = hex_digit(text[i + 2]);
      if (!high || !low) return std::nullopt;
      letter = static_cast<char>(*high * 16 + *low);
      i += 2;
    }
    if (static_cast<unsigned char>(letter) < 0x20) return std::nullopt;
    result += letter;
  }
  return result;
}

// Removes the first segment from the path and returns it.
std::string_view next_segment(std::string_view& path) {
  const std::size_t end = path.find('/');
  const std::string_view segment = path.substr(0, end);
  path.remove_prefix(end == std::string_view::npos ? path.size() : end + 1);
  return segment;
}

// The segments of a target. They refer to it unless percent-encoded.
struct Path {
  std::array<std::string_view, kMostSegments> segments;
  std::size_t count = 0;
  std::vector<std::string> decoded;
};

bool is_unencoded(std::string_view segment) {
  return std::all_of(segment.begin(), segment.end(), [](char letter) {
    return letter != '%' && static_cast<unsigned char>(letter) >= 0x20;
  });
}

std::optional<Path> path_of(std::string_view target) {
  constexpr std::string_view kAbsolute = "http://";
  if (target.starts_with(kAbsolute)) {  // the form for proxies
    target.remove_prefix(kAbsolute.size());
    target.remove_prefix(std::min(target.find('/'), target.size()));
  }
  target = target.substr(0, target.find('?'));
  if (!target.starts_with('/')) return std::nullopt;
  target.remove_prefix(1);
  Path path;
  for (bool more = true; more;) {
    if (path.count == kMostSegments) return std::nullopt;
    more = target.find('/') != std::string_view::npos;
    std::string_view segment = next_segment(target);
    if (!is_unencoded(segment)) {
      std::optional<std::string> text = decoded(segment);
      if (!text) return std::nullopt;
      path.decoded.reserve(kMostSegments);  // keeps the references valid
      segment = path.decoded.emplace_back(std::move(*text));
    }
    path.segments[path.count++] = segment;
  }
  return path;
}

bool is_version(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

struct Names {
  std::string_view model;
  std::string_view version;
  std::string_view region;
};

bool take_segment(std::string_view expected, std::string_view given, Names& names) {
  if (!expected.starts_with('{')) return expected == given;
  if (expected == "{V}") {
    names.version = given;
    return is_version(given);
  }
  (expected == "{M}" ? names.model : names.region) = given;
  return !given.empty();
}

std::optional<Names> matched(const Pattern& pattern, const Path& path) {
  Names names;
  std::string_view expected = pattern.path;
  for (std::size_t i = 0; i < path.count; ++i) {
    const bool last = expected.find('/') == std::string_view::npos;
    if (!take_segment(next_segment(expected), path.segments[i], names)) return std::nullopt;
    if (last) return i + 1 == path.count ? std::optional(names) : std::nullopt;
  }
  return std::nullopt;
}

// Makes "007" and "7" the same version.
std::string_view without_zeros(std::string_view version) {
  const std::size_t first = version.find_first_not_of('0');
  return first == std::string_view::npos ? version.substr(0, 0) : version.substr(first);
}

}  // namespace

Result<Route> find_route(std::string_view method, std::string_view target, std::string* allow) {
  const auto unknown = [] { return Status(StatusCode::not_found, "Not Found"); };
  const std::optional<Path> path = path_of(target);
  if (!path) return unknown();
  std::string others;
  for (const Pattern& pattern : kPatterns) {
    const std::optional<Names> names = matched(pattern, *path);
    if (!names) continue;
    if (pattern.method == method) {
      return Route{pattern.endpoint, std::string(names->model), std::string(names->version),
                   std::string(names->region)};
    }
    if (others.find(pattern.method) != std::string::npos) continue;
    if (!others.empty()) others += ", ";
    others += pattern.method;
  }
  if (others.empty()) return unknown();
  if (allow != nullptr) *allow = std::move(others);
  return Status(StatusCode::invalid, "Method Not Allowed");
}

Status check_model(const Model* model, const Route& route) {
  if (model == nullptr) {
    return {StatusCode::not_found,
            fmt::format("Request for unknown model: {} is not found", in_quotes(route.model))};
  }
  if (route.version.empty() || without_zeros(route.version) == without_zeros(model->version))
    return {};
  return {StatusCode::not_found,
          fmt::format("Request for unknown model: {} version {} is not found",
                      in_quotes(route.model), route.version)};
}

}  // namespace gpulet::net::kserve

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "gpulet/net/kserve/http_api.h"
#include "wording.h"

namespace gpulet::net::kserve {
namespace {

// {M}: a model, {V}: its version, {R}: a region. The first that matches counts.
struct Pattern {
  std::string_view path;
  std::string_view method;
  Endpoint endpoint;
};
constexpr std::array<Pattern, 23> kPatterns{{
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
    {"v2/systemsharedmemory/status", "GET", Endpoint::shared_memory_status},
    {"v2/systemsharedmemory/region/{R}/status", "GET", Endpoint::shared_memory_status},
    {"v2/systemsharedmemory/region/{R}/register", "POST", Endpoint::shared_memory_register},
    {"v2/systemsharedmemory/unregister", "POST", Endpoint::shared_memory_unregister},
    {"v2/systemsharedmemory/region/{R}/unregister", "POST", Endpoint::shared_memory_unregister},
}};
constexpr std::size_t kMostSegments = 6;

std::optional<unsigned> hex_digit(char letter) {
  if (letter >= '0' && letter <= '9') return static_cast<unsigned>(letter - '0');
  if (letter >= 'a' && letter <= 'f') return static_cast<unsigned>(letter - 'a' + 10);
  if (letter >= 'A' && letter <= 'F') return static_cast<unsigned>(letter - 'A' + 10);
  return std::nullopt;
}

// Nothing where it is not percent-encoding, or hides a control character.
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

// The path's next segment, taken from its front.
std::string_view next_segment(std::string_view& path) {
  const std::size_t end = path.find('/');
  const std::string_view segment = path.substr(0, end);
  path.remove_prefix(end == std::string_view::npos ? path.size() : end + 1);
  return segment;
}

struct Path {
  std::array<std::string, kMostSegments> segments;
  std::size_t count = 0;
};

std::optional<Path> path_of(std::string_view target) {
  constexpr std::string_view kAbsolute = "http://";
  if (target.starts_with(kAbsolute)) {  // as one asks a proxy
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
    std::optional<std::string> segment = decoded(next_segment(target));
    if (!segment) return std::nullopt;
    path.segments[path.count++] = std::move(*segment);
  }
  return path;
}

bool is_version(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool take_segment(std::string_view wanted, const std::string& given, Route& route) {
  if (wanted == "{M}") {
    route.model = given;
    return !given.empty();
  }
  if (wanted == "{V}") {
    route.version = given;
    return is_version(given);
  }
  if (wanted == "{R}") {
    route.region = given;
    return !given.empty();
  }
  return wanted == given;
}

std::optional<Route> matched(const Pattern& pattern, const Path& path) {
  Route route;
  route.endpoint = pattern.endpoint;
  std::string_view wanted = pattern.path;
  for (std::size_t i = 0; i < path.count; ++i) {
    const bool last = wanted.find('/') == std::string_view::npos;
    if (!take_segment(next_segment(wanted), path.segments[i], route)) return std::nullopt;
    if (last) return i + 1 == path.count ? std::optional(std::move(route)) : std::nullopt;
  }
  return std::nullopt;
}

// "007" and "7" are one version.
std::string_view without_zeros(std::string_view version) {
  const std::size_t first = version.find_first_not_of('0');
  return first == std::string_view::npos ? version.substr(0, 0) : version.substr(first);
}

}  // namespace

Result<Route> find_route(std::string_view method, std::string_view target, std::string* allow) {
  const Status unknown(StatusCode::not_found, "Not Found");
  const std::optional<Path> path = path_of(target);
  if (!path) return unknown;
  for (const Pattern& pattern : kPatterns) {
    std::optional<Route> route = matched(pattern, *path);
    if (!route) continue;
    if (pattern.method == method) return *std::move(route);
    if (allow != nullptr) *allow = pattern.method;
    return Status(StatusCode::invalid, "Method Not Allowed");
  }
  return unknown;
}

Status check_model(const Model* model, const Route& route) {
  if (model == nullptr) {
    return {StatusCode::not_found,
            "Request for unknown model: " + in_quotes(route.model) + " is not found"};
  }
  if (route.version.empty() || without_zeros(route.version) == without_zeros(model->version))
    return {};
  return {StatusCode::not_found, "Request for unknown model: " + in_quotes(route.model) +
                                     " version " + route.version + " is not found"};
}

}  // namespace gpulet::net::kserve

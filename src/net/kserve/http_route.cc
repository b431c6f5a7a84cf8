#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "gpulet/net/kserve/http_api.h"
#include "net/kserve/json.h"

namespace gpulet::net::kserve {
namespace {

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

bool is_unencoded(std::string_view segment) {
  return std::all_of(segment.begin(), segment.end(), [](char letter) {
    return letter != '%' && static_cast<unsigned char>(letter) >= 0x20;
  });
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

// Makes "007" and "7" the same version.
std::string_view without_zeros(std::string_view version) {
  const std::size_t first = version.find_first_not_of('0');
  return first == std::string_view::npos ? version.substr(0, 0) : version.substr(first);
}

}  // namespace

std::optional<TargetPath> TargetPath::of(std::string_view target) {
  constexpr std::string_view kAbsolute = "http://";
  if (target.starts_with(kAbsolute)) {  // the form for proxies
    target.remove_prefix(kAbsolute.size());
    target.remove_prefix(std::min(target.find('/'), target.size()));
  }
  target = target.substr(0, target.find('?'));
  if (!target.starts_with('/')) return std::nullopt;
  target.remove_prefix(1);
  TargetPath path;
  for (bool more = true; more;) {
    if (path.count_ == kMostSegments) return std::nullopt;
    more = target.find('/') != std::string_view::npos;
    std::string_view segment = next_segment(target);
    if (!is_unencoded(segment)) {
      std::optional<std::string> text = decoded(segment);
      if (!text) return std::nullopt;
      path.decoded_.reserve(kMostSegments);  // keeps the references valid
      segment = path.decoded_.emplace_back(std::move(*text));
    }
    path.segments_[path.count_++] = segment;
  }
  return path;
}

std::optional<Route> TargetPath::match(std::string_view pattern) const {
  Names names;
  for (std::size_t i = 0; i < count_; ++i) {
    const bool last = pattern.find('/') == std::string_view::npos;
    if (!take_segment(next_segment(pattern), segments_[i], names)) return std::nullopt;
    if (!last) continue;
    if (i + 1 < count_) return std::nullopt;
    return Route{std::string(names.model), std::string(names.version), std::string(names.region)};
  }
  return std::nullopt;
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

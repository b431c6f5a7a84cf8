#include "net/kserve/multipart.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "gpulet/net/http/message.h"
#include "net/kserve/json.h"

namespace gpulet::net::kserve {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::size_t kLongestBoundary = 70;       // RFC 2046
constexpr std::size_t kMostHeadBytes = 8U << 10U;  // of one part

std::string_view trimmed(std::string_view text) {
  const auto is_blank = [](char letter) { return letter == ' ' || letter == '\t'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

// Removes and returns what comes before the next semicolon outside of quotes.
std::string_view take_parameter(std::string_view& rest) {
  bool quoted = false;
  std::size_t at = 0;
  for (; at < rest.size() && (quoted || rest[at] != ';'); ++at) {
    if (rest[at] == '"') quoted = !quoted;
    if (rest[at] == '\\' && quoted && at + 1 < rest.size()) ++at;
  }
  const std::string_view taken = rest.substr(0, at);
  rest.remove_prefix(std::min(at + 1, rest.size()));
  return taken;
}

// The value of a header's parameter, without quotes. Empty: it has none.
std::optional<std::string_view> parameter_of(std::string_view header, std::string_view name) {
  static_cast<void>(take_parameter(header));  // the value itself
  while (!header.empty()) {
    const std::string_view one = take_parameter(header);
    const std::size_t equals = one.find('=');
    if (equals == std::string_view::npos ||
        !http::same_ignoring_case(trimmed(one.substr(0, equals)), name))
      continue;
    std::string_view value = trimmed(one.substr(equals + 1));
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"')
      value = value.substr(1, value.size() - 2);
    return value;
  }
  return std::nullopt;
}

Status broken(const std::string& why) { return invalid("the form cannot be read: " + why); }

// Takes the lines before a part's content.
Status take_head(std::string_view& rest, FormPart& part) {
  for (std::size_t taken = 0;;) {
    const std::size_t end = rest.substr(0, kMostHeadBytes).find(kLineEnd);
    if (end == std::string_view::npos || taken + end > kMostHeadBytes) {
      return broken(
          fmt::format("the headers of a part do not end within {} bytes", kMostHeadBytes));
    }
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + kLineEnd.size());
    taken += end + kLineEnd.size();
    if (line.empty()) return {};
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) return broken("a part has a header without a colon");
    const std::string_view name = trimmed(line.substr(0, colon));
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (http::same_ignoring_case(name, "Content-Type")) part.content_type = media_type(value);
    if (http::same_ignoring_case(name, "Content-Disposition"))
      part.is_file = parameter_of(value, "filename") || parameter_of(value, "filename*");
  }
}

// Skips what follows the boundary on its line. False: it is the last one.
Result<bool> begins_part(std::string_view& rest) {
  if (rest.starts_with("--")) return false;
  const std::size_t end = rest.find_first_not_of(" \t");
  rest.remove_prefix(std::min(end, rest.size()));
  if (!rest.starts_with(kLineEnd))
    return broken("a boundary is not followed by the end of its line");
  rest.remove_prefix(kLineEnd.size());
  return true;
}

}  // namespace

std::string_view media_type(std::string_view content_type) {
  return trimmed(content_type.substr(0, content_type.find(';')));
}

Result<std::vector<FormPart>> read_form(std::string_view content_type, std::string_view body,
                                        std::size_t most_parts) {
  const std::string_view boundary = parameter_of(content_type, "boundary").value_or("");
  if (boundary.empty() || boundary.size() > kLongestBoundary) {
    return broken(fmt::format("its Content-Type must have a boundary of 1 to {} characters",
                              kLongestBoundary));
  }
  const std::string delimiter = std::string(kLineEnd) + "--" + std::string(boundary);
  const std::string_view first = std::string_view(delimiter).substr(kLineEnd.size());
  std::string_view rest = body;
  // Text before the first boundary means nothing.
  const std::size_t begin = rest.starts_with(first) ? 0 : rest.find(delimiter);
  if (begin == std::string_view::npos) return broken("its boundary is not in the body");
  rest.remove_prefix(begin == 0 && rest.starts_with(first) ? first.size()
                                                           : begin + delimiter.size());
  std::vector<FormPart> parts;
  for (;;) {
    GPULET_TRY(const bool more, begins_part(rest));
    if (!more) return parts;
    if (parts.size() == most_parts)
      return broken(fmt::format("it has more than {} parts", most_parts));
    FormPart& part = parts.emplace_back();
    if (Status head = take_head(rest, part); !head.ok()) return head;
    // The content may be empty: then the line end that closed the head belongs to the delimiter.
    const std::size_t end = rest.starts_with(first) ? 0 : rest.find(delimiter);
    if (end == std::string_view::npos) return broken("it ends before its last boundary");
    part.content = rest.substr(0, end);
    rest.remove_prefix(end == 0 && rest.starts_with(first) ? first.size() : end + delimiter.size());
  }
}

}  // namespace gpulet::net::kserve

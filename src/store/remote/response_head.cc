#include "store/remote/response_head.h"

#include <algorithm>

#include "gpulet/base/text.h"

namespace gpulet::store::remote {
namespace {

constexpr std::size_t kLongestHead = 64U << 10U;
constexpr std::size_t kLongestValidator = 256;
constexpr std::size_t kLongestCode = 64;
constexpr std::size_t kLongestRegionName = 64;

bool is_word(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
}

std::string lowered(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return lower;
}

// "HTTP/1.1 200 OK"; 0: it is not a status line.
int status_of(std::string_view line) {
  constexpr std::string_view kStart = "HTTP/";
  constexpr std::size_t kDigits = 3;
  constexpr int kLeast = 100;
  if (!line.starts_with(kStart)) return 0;
  const std::size_t blank = line.find(' ');
  if (blank == std::string_view::npos) return 0;
  const auto status = parse_number<int>(line.substr(blank + 1, kDigits));
  return status && *status >= kLeast ? *status : 0;
}

}  // namespace

const std::string& Validators::for_range() const {
  return etag.empty() || etag.starts_with("W/") ? last_modified : etag;
}

bool is_validator(std::string_view text) {
  return text.size() <= kLongestValidator &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < '\x7f'; });
}

std::optional<ContentRange> parse_content_range(std::string_view value) {
  constexpr std::string_view kUnit = "bytes ";
  if (!value.starts_with(kUnit)) return std::nullopt;
  value.remove_prefix(kUnit.size());
  const std::size_t dash = value.find('-');
  const std::size_t slash = value.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash)
    return std::nullopt;
  const auto first = parse_number<std::uint64_t>(value.substr(0, dash));
  const auto last = parse_number<std::uint64_t>(value.substr(dash + 1, slash - dash - 1));
  const auto total = parse_number<std::uint64_t>(value.substr(slash + 1));
  if (!first || !last || !total || *first > *last || *last >= *total) return std::nullopt;
  return ContentRange{*first, *total};
}

void ResponseHead::clear() {
  const std::size_t bytes = bytes_;
  *this = ResponseHead();
  bytes_ = bytes;
}

bool ResponseHead::add_line(std::string_view line) {
  bytes_ += line.size();
  if (bytes_ > kLongestHead) return false;
  line = trimmed(line);
  if (const int status = status_of(line); status != 0) {
    clear();
    status_ = status;
    return true;
  }
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return true;
  const std::string name = lowered(line.substr(0, colon));
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (name == "etag" && is_validator(value)) validators_.etag = value;
  if (name == "last-modified" && is_validator(value)) validators_.last_modified = value;
  if (name == "content-range") range_ = parse_content_range(value);
  if (name == "content-length") length_ = parse_number<std::uint64_t>(value);
  if (name == "x-amz-bucket-region" && value.size() <= kLongestRegionName && is_word(value))
    region_ = value;
  return true;
}

std::string s3_error_code(std::string_view body) {
  constexpr std::string_view kOpen = "<Code>";
  const std::size_t open = body.find(kOpen);
  if (open == std::string_view::npos) return {};
  const std::string_view rest = body.substr(open + kOpen.size());
  const std::string_view code = rest.substr(0, rest.find('<'));
  return code.size() <= kLongestCode && is_word(code) ? std::string(code) : std::string();
}

}  // namespace gpulet::store::remote

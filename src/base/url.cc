#include "gpulet/base/url.h"

#include <algorithm>

#include "gpulet/base/text.h"

namespace gpulet {
namespace {

constexpr std::string_view kSeparator = "://";
constexpr std::size_t kLongestHost = 255;
constexpr std::size_t kShortestBucket = 3;
constexpr std::size_t kLongestBucket = 63;
constexpr std::size_t kLongestKey = 1024;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_letter(char c) { return is_lower(c) || (c >= 'A' && c <= 'Z'); }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string_view name_of(Url::Scheme scheme) {
  switch (scheme) {
    case Url::Scheme::http:
      return "http";
    case Url::Scheme::https:
      return "https";
    case Url::Scheme::s3:
      break;
  }
  return "s3";
}

Status invalid(std::string_view what, std::string_view fix) {
  return {StatusCode::invalid, std::string(what) + "; " + std::string(fix)};
}

bool is_bucket(std::string_view text) {
  return text.size() >= kShortestBucket && text.size() <= kLongestBucket &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return is_lower(c) || is_digit(c) || c == '.' || c == '-'; }) &&
         text.front() != '.' && text.front() != '-' && text.back() != '.' && text.back() != '-' &&
         text.find("..") == std::string_view::npos;
}

bool is_host(std::string_view text) {
  if (text.empty() || text.size() > kLongestHost) return false;
  if (text.front() == '[') {
    return text.size() > 2 && text.back() == ']' &&
           std::all_of(text.begin() + 1, text.end() - 1, [](char c) {
             return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'f') || c == ':' || c == '.';
           });
  }
  return std::all_of(text.begin(), text.end(),
                     [](char c) {
                       return is_letter(c) || is_digit(c) || c == '.' || c == '-' || c == '_';
                     }) &&
         text.front() != '.' && text.front() != '-';
}

Result<Url> parse_s3(std::string_view rest) {
  const std::size_t slash = rest.find('/');
  Url url;
  url.scheme = Url::Scheme::s3;
  url.host = std::string(rest.substr(0, slash));
  if (!is_bucket(url.host)) {
    return invalid("the name of the bucket is not valid",
                   "write s3://BUCKET/KEY with the bucket in lower case");
  }
  if (slash != std::string_view::npos) url.target = std::string(rest.substr(slash + 1));
  if (url.target.empty() || url.target.back() == '/' || url.target.size() > kLongestKey)
    return invalid("the key of the object is missing or too long", "write s3://BUCKET/KEY");
  const bool printable = std::all_of(url.target.begin(), url.target.end(), [](char c) {
    return static_cast<unsigned char>(c) >= ' ' && c != '\x7f';
  });
  if (!printable) return invalid("the key has a control character", "name the object otherwise");
  return url;
}

Result<Url> parse_http(Url::Scheme scheme, std::string_view rest) {
  // curl, proxies and servers disagree about such characters, so none of them gets any.
  const bool plain = std::all_of(rest.begin(), rest.end(), [](char c) {
    return c > ' ' && c < '\x7f' && c != '\\' && c != '"' && c != '<' && c != '>' && c != '^' &&
           c != '`' && c != '{' && c != '|' && c != '}';
  });
  if (!plain) {
    return invalid("the URL has a character that URLs may not contain",
                   "write it percent-encoded: %20 for a space");
  }
  if (rest.find('#') != std::string_view::npos)
    return invalid("the URL has a fragment", "take out \"#\" and what follows it");
  const std::string_view authority = rest.substr(0, rest.find_first_of("/?"));
  if (authority.find('@') != std::string_view::npos) {
    return invalid("the URL has a user name or a password, which would show up in logs",
                   "take it out; use a store that needs none, or s3:// with credentials in the "
                   "environment");
  }
  Url url;
  url.scheme = scheme;
  url.target = std::string(rest.substr(authority.size()));
  const std::size_t bracket = authority.rfind(']');
  const std::size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  const std::string_view host = authority.substr(0, colon);
  if (!is_host(host)) return invalid("the host is not valid", "write https://HOST/PATH");
  std::transform(host.begin(), host.end(), std::back_inserter(url.host), lower);
  if (colon != std::string_view::npos) {
    const auto port = parse_number<std::uint16_t>(authority.substr(colon + 1));
    if (!port || *port == 0)
      return invalid("the port is not valid", "write a number from 1 to 65535, or none");
    url.port = *port;
  }
  const std::string_view path = std::string_view(url.target).substr(0, url.target.find('?'));
  if (!path.starts_with('/') || path.ends_with('/'))
    return invalid("the URL names no file", "write https://HOST/PATH/FILE");
  return url;
}

}  // namespace

bool looks_like_url(std::string_view text) {
  const std::size_t end = text.find(kSeparator);
  return end != std::string_view::npos && end > 0 && is_letter(text.front()) &&
         std::all_of(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), [](char c) {
           return is_letter(c) || is_digit(c) || c == '+' || c == '-' || c == '.';
         });
}

Result<Url> parse_url(std::string_view text) {
  if (text.size() > kLongestUrl) return invalid("the URL is too long", "write at most 2048 bytes");
  const std::size_t end = text.find(kSeparator);
  if (end != std::string_view::npos) {
    std::string name(text.substr(0, end));
    std::transform(name.begin(), name.end(), name.begin(), lower);
    const std::string_view rest = text.substr(end + kSeparator.size());
    for (const Url::Scheme scheme : {Url::Scheme::http, Url::Scheme::https})
      if (name == name_of(scheme)) return parse_http(scheme, rest);
    if (name == name_of(Url::Scheme::s3)) return parse_s3(rest);
  }
  return invalid("the kind of store is not known", "write https://, http:// or s3://");
}

std::string Url::origin() const {
  std::string text = std::string(name_of(scheme)) + std::string(kSeparator) + host;
  if (port != 0) text += ":" + std::to_string(port);
  return text;
}

std::string Url::text() const { return origin() + (scheme == Scheme::s3 ? "/" : "") + target; }

std::string Url::shown() const {
  if (scheme == Scheme::s3) return escaped(text());
  const std::size_t query = target.find('?');
  return origin() + target.substr(0, query) + (query == std::string::npos ? "" : "?...");
}

std::string Url::file_name() const {
  std::string_view path = target;
  if (scheme != Scheme::s3) path = path.substr(0, path.find('?'));
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

}  // namespace gpulet

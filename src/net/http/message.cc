#include "gpulet/net/http/message.h"

#include <algorithm>
#include <memory>
#include <span>

namespace gpulet::net::http {
namespace {

// HTTP's names are ASCII: no locale has a say.
char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

bool same_name(std::string_view one, std::string_view other) {
  return one.size() == other.size() &&
         std::equal(one.begin(), one.end(), other.begin(),
                    [](char a, char b) { return lower(a) == lower(b); });
}

}  // namespace

std::string_view find_header(const Headers& headers, std::string_view name) {
  for (const Header& header : headers) {
    if (same_name(header.name, name)) return header.value;
  }
  return {};
}

Bytes bytes_of(std::string text) {
  auto owner = std::make_shared<const std::string>(std::move(text));
  const auto view = std::as_bytes(std::span(*owner));
  return {std::move(owner), view};
}

HttpResponse text_response(unsigned status, std::string_view content_type, std::string text) {
  HttpResponse response;
  response.status = status;
  if (text.empty()) return response;
  response.headers.push_back({"Content-Type", std::string(content_type)});
  response.body.push_back(bytes_of(std::move(text)));
  return response;
}

}  // namespace gpulet::net::http

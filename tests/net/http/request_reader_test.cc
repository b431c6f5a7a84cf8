#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "net/http/http1.h"
#include "tests/net/http/reading.h"

namespace gpulet::net::http {
namespace {

using namespace testing;

// A request with a body of a random kind, as bytes.
std::string any_request() {
  const int headers = *rc::gen::inRange(0, 4);
  const auto body = *rc::gen::container<std::string>(rc::gen::arbitrary<char>());
  std::string text = *rc::gen::element<std::string>("GET", "POST", "PATCH") + " /" +
                     std::string(*rc::gen::inRange<std::size_t>(0, 40), 't') + " HTTP/1.1\r\n";
  for (int i = 0; i < headers; ++i) text += "Name" + std::to_string(i) + ": some value\r\n";
  if (body.empty()) return text + "\r\n";
  if (*rc::gen::arbitrary<bool>())
    return text + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  text += "Transfer-Encoding: chunked\r\n\r\n";
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t count = *rc::gen::inRange<std::size_t>(1, body.size() - at + 1);
    std::array<char, 16> hex{};
    std::snprintf(hex.data(), hex.size(), "%zx", count);
    text += std::string(hex.data()) + "\r\n" + body.substr(at, count) + "\r\n";
    at += count;
  }
  return text + "0\r\n\r\n";
}

RC_GTEST_PROP(RequestReaderProperty, RequestsAreTheSameHoweverTheirBytesAreCut, ()) {
  std::string stream;
  const int requests = *rc::gen::inRange(1, 4);
  for (int i = 0; i < requests; ++i) stream += any_request();
  const Reading whole = read_stream(stream, stream.size());
  RC_ASSERT(whole.failure.empty());
  RC_ASSERT(whole.requests.size() == static_cast<std::size_t>(requests));
  const auto step = *rc::gen::inRange<std::size_t>(1, 60);
  RC_ASSERT(read_stream(stream, step).requests == whole.requests);
}

}  // namespace
}  // namespace gpulet::net::http

// The head of an answer: its status line and headers as bytes. Private to net/http.
#pragma once

#include <cstddef>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

#include "gpulet/net/http/message.h"
#include "net/http/coding.h"

namespace gpulet::net::http {

// The time of day as HTTP writes it, made anew once a second. One thread at a time.
class DateText {
 public:
  [[nodiscard]] std::string_view now();

 private:
  std::time_t made_at_ = 0;
  std::string text_;
};

struct AnswerForm {
  bool http_1_1 = true;
  bool keep_alive = true;
  std::optional<std::size_t> body_bytes{};  // nothing: its end is not known yet
  Coding coding = Coding::identity;
};

// With no body_bytes HTTP/1.1's body is to come in chunks, and HTTP/1.0's ends with the connection.
[[nodiscard]] std::string answer_head(const HttpResponse& response, const AnswerForm& form,
                                      std::string_view date);

// Statuses whose answers never have a body.
[[nodiscard]] bool has_no_body(unsigned status);

// A part of a body in chunks. REQUIRES: not empty, which would end the body.
[[nodiscard]] std::string chunk_of(std::string_view part);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";
inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace gpulet::net::http

#include "net/http/answer_head.h"

#include <array>
#include <charconv>

namespace gpulet::net::http {
namespace {

std::string_view reason_of(unsigned status) {
  struct Reason {
    unsigned status;
    std::string_view words;
  };
  static constexpr std::array kReasons{Reason{200, "OK"},
                                       Reason{204, "No Content"},
                                       Reason{304, "Not Modified"},
                                       Reason{400, "Bad Request"},
                                       Reason{401, "Unauthorized"},
                                       Reason{403, "Forbidden"},
                                       Reason{404, "Not Found"},
                                       Reason{405, "Method Not Allowed"},
                                       Reason{408, "Request Timeout"},
                                       Reason{413, "Content Too Large"},
                                       Reason{415, "Unsupported Media Type"},
                                       Reason{417, "Expectation Failed"},
                                       Reason{429, "Too Many Requests"},
                                       Reason{431, "Request Header Fields Too Large"},
                                       Reason{499, "Client Closed Request"},
                                       Reason{500, "Internal Server Error"},
                                       Reason{501, "Not Implemented"},
                                       Reason{503, "Service Unavailable"},
                                       Reason{504, "Gateway Timeout"},
                                       Reason{505, "HTTP Version Not Supported"}};
  for (const Reason& reason : kReasons) {
    if (reason.status == status) return reason.words;
  }
  return "Other";
}

void append_number(std::string& text, std::size_t number, int base = 10) {
  std::array<char, 24> digits{};
  const auto [end, error] =
      std::to_chars(digits.data(), digits.data() + digits.size(), number, base);
  if (error == std::errc{}) text.append(digits.data(), end);
}

}  // namespace

std::string_view DateText::now() {
  const std::time_t now = std::time(nullptr);
  if (now == made_at_ && !text_.empty()) return text_;
  made_at_ = now;
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 40> text{};
  // Days and months in English in the C locale, which a program has that does not ask for another.
  text_.assign(text.data(),
               std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts));
  return text_;
}

bool has_no_body(unsigned status) { return status == 204 || status == 304; }

std::string answer_head(const HttpResponse& response, const AnswerForm& form,
                        std::string_view date) {
  constexpr std::size_t kUsualBytes = 320;
  std::string head;
  head.reserve(kUsualBytes);
  head += form.http_1_1 ? "HTTP/1.1 " : "HTTP/1.0 ";
  append_number(head, response.status);
  head.append(" ").append(reason_of(response.status)).append("\r\nDate: ").append(date);
  for (const Header& header : response.headers)
    head.append("\r\n").append(header.name).append(": ").append(header.value);
  if (form.coding != Coding::identity) {
    head.append("\r\nContent-Encoding: ").append(to_string(form.coding));
    head.append("\r\nVary: Accept-Encoding");
  }
  if (form.body_bytes && !has_no_body(response.status)) {
    head.append("\r\nContent-Length: ");
    append_number(head, *form.body_bytes);
  } else if (!form.body_bytes && form.http_1_1) {
    head.append("\r\nTransfer-Encoding: chunked");
  }
  if (!form.keep_alive) {
    head.append("\r\nConnection: close");
  } else if (!form.http_1_1) {
    head.append("\r\nConnection: keep-alive");
  }
  head.append("\r\n\r\n");
  return head;
}

std::string chunk_of(std::string_view part) {
  constexpr int kHex = 16;
  constexpr std::size_t kFrameBytes = 20;
  std::string chunk;
  chunk.reserve(part.size() + kFrameBytes);
  append_number(chunk, part.size(), kHex);
  chunk.append("\r\n").append(part).append("\r\n");
  return chunk;
}

}  // namespace gpulet::net::http

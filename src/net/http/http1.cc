#include "net/http/http1.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/beast/http/basic_parser.hpp>
#include <charconv>
#include <cstring>
#include <limits>
#include <utility>

#include "gpulet/protocol/frame.h"

namespace gpulet::net::http {
// ---- requests

namespace {

namespace beast_http = boost::beast::http;
using boost::beast::string_view;
using boost::system::error_code;

constexpr unsigned kHeadTooLarge = 431;
constexpr unsigned kNotImplemented = 501;
constexpr int kHttp11 = 11;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The length of the empty lines that some clients send behind a request.
std::size_t empty_lines(std::string_view text) {
  std::size_t end = 0;
  while (text.substr(end).starts_with("\r\n")) end += 2;
  return end;
}

// True if a header goes on in the next line (obs-fold), where the parser would put a space.
bool has_folded_line(std::string_view head) {
  return head.find("\r\n ") != std::string_view::npos ||
         head.find("\r\n\t") != std::string_view::npos;
}

std::size_t count_of(const Headers& headers, std::string_view name) {
  return static_cast<std::size_t>(
      std::count_if(headers.begin(), headers.end(), [name](const Header& header) {
        return boost::beast::iequals({header.name.data(), header.name.size()},
                                     {name.data(), name.size()});
      }));
}

// The header that may occur once only and occurs again; empty: none. Which of two values counts
// would depend on the reader.
std::string_view repeated_header(const Headers& headers) {
  constexpr std::array<std::string_view, 7> kSingle{
      "Host",          "Content-Length",   "Transfer-Encoding",
      "Authorization", "Content-Encoding", "Inference-Header-Content-Length",
      "Expect"};
  for (const std::string_view name : kSingle) {
    if (count_of(headers, name) > 1) return name;
  }
  return {};
}

// The error for a peer that does not speak HTTP/1.1, before a whole head has arrived; empty: none.
std::string wrong_protocol(std::span<const std::byte> bytes) {
  switch (protocol::dialect_of(bytes)) {
    case protocol::Dialect::frames:
      return "this is an HTTP port and the peer speaks gpulet's stream protocol; by default "
             "clients of that protocol use port 7000 and backends 7001";
    case protocol::Dialect::http2:
      return "this is an HTTP/1.1 port and the peer speaks HTTP/2; gRPC has a port of its own, "
             "8001 by default";
    case protocol::Dialect::tls:
      return "this port speaks HTTP without TLS; use http://, or set \"tls\" in the frontend's "
             "file";
    default:
      return {};
  }
}

}  // namespace

class RequestReader::Parser final : public beast_http::basic_parser<true> {
 public:
  explicit Parser(const RequestLimits& limits) {
    header_limit(static_cast<std::uint32_t>(
        std::min<std::size_t>(limits.max_header_bytes, std::numeric_limits<std::uint32_t>::max())));
    body_limit(limits.max_body_bytes);
  }

  HttpRequest& request() { return request_; }
  [[nodiscard]] const HttpRequest& request() const { return request_; }
  [[nodiscard]] int version() const { return version_; }

 private:
  void on_request_impl(beast_http::verb, string_view method, string_view target, int version,
                       error_code&) override {
    request_.method.assign(method.data(), method.size());
    request_.target.assign(target.data(), target.size());
    version_ = version;
  }
  void on_response_impl(int, string_view, int, error_code&) override {}
  void on_field_impl(beast_http::field, string_view name, string_view value, error_code&) override {
    request_.headers.push_back(
        {std::string(name.data(), name.size()), std::string(value.data(), value.size())});
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  // Bodies bypass the parser.
  std::size_t on_body_impl(string_view body, error_code&) override { return body.size(); }
  void on_chunk_header_impl(std::uint64_t, string_view, error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, string_view body, error_code&) override {
    return body.size();
  }
  void on_finish_impl(error_code&) override {}

  HttpRequest request_;
  int version_ = kHttp11;
};

RequestReader::RequestReader(const RequestLimits& limits, BufferPool& buffers)
    : limits_(limits), buffers_(buffers), chunks_(buffers, limits.max_body_bytes) {}
RequestReader::~RequestReader() = default;

const HttpRequest& RequestReader::head() const { return parser_->request(); }
void RequestReader::set_peer(std::shared_ptr<access::PeerIdentity> peer) {
  parser_->request().peer = std::move(peer);
}
void RequestReader::set_route(std::shared_ptr<const RequestRoute> route) {
  parser_->request().route = std::move(route);
}
bool RequestReader::keep_alive() const { return parser_->keep_alive(); }
bool RequestReader::http_1_1() const { return parser_->version() >= kHttp11; }

std::optional<std::uint64_t> RequestReader::body_bytes() const {
  if (parser_->chunked()) return std::nullopt;
  return parser_->content_length().value_or(0);
}

RequestReader::Step RequestReader::read(std::span<const std::byte> bytes) {
  if (failure_.status != 0) return {Event::failed, 0};
  switch (stage_) {
    case Stage::head:
      return read_head(bytes);
    case Stage::undecided:
      return {Event::head, 0};
    case Stage::taking:
    case Stage::dropping:
      return read_sized(bytes);
    case Stage::chunks:
      break;
  }
  return read_chunks(bytes);
}

RequestReader::Step RequestReader::read_head(std::span<const std::byte> bytes) {
  std::size_t taken = 0;
  if (!parser_) {
    const std::string_view text = text_of(bytes);
    taken = empty_lines(text);
    const std::string_view begin = text.substr(taken);
    if (begin.empty() || begin == "\r") return {Event::need_more, taken};
    parser_ = std::make_unique<Parser>(limits_);
    head_bytes_ = 0;
  }
  if (head_bytes_ == 0) {
    if (std::string foreign = wrong_protocol(bytes.subspan(taken)); !foreign.empty()) {
      failure_.http2 = protocol::dialect_of(bytes.subspan(taken)) == protocol::Dialect::http2;
      return fail(kBadRequest, std::move(foreign), bytes.size());
    }
  }
  const std::span<const std::byte> rest = bytes.subspan(taken);
  error_code error;
  const std::size_t parsed =
      parser_->put(boost::asio::const_buffer(rest.data(), rest.size()), error);
  taken += parsed;
  head_bytes_ += parsed;
  if (has_folded_line(text_of(rest.first(parsed)))) {
    return fail(kBadRequest,
                "malformed request: a header continues in a second line; write it in one", taken);
  }
  const std::size_t seen = error ? head_bytes_ + (bytes.size() - taken) : head_bytes_;
  if (error == beast_http::error::need_more && seen < limits_.max_header_bytes)
    return {Event::need_more, taken};
  if (error == beast_http::error::header_limit || seen > limits_.max_header_bytes ||
      error == beast_http::error::need_more) {
    return fail(
        kHeadTooLarge,
        fmt::format("the request head exceeds the limit of {} bytes", limits_.max_header_bytes),
        taken);
  }
  if (error == beast_http::error::body_limit) {
    return fail(kContentTooLarge,
                fmt::format("the announced body of {} bytes exceeds the limit of {}",
                            find_header(head().headers, "Content-Length"), limits_.max_body_bytes),
                taken);
  }
  if (error) return fail(kBadRequest, "malformed request: " + error.message(), taken);
  return check_framing(taken);
}

// Refuses what says the length of the body in more than one way, or in one that is read differently
// elsewhere.
RequestReader::Step RequestReader::check_framing(std::size_t taken) {
  const Headers& headers = head().headers;
  if (const std::string_view twice = repeated_header(headers); !twice.empty()) {
    return fail(kBadRequest,
                fmt::format("malformed request: the header {} is given more than once", twice),
                taken);
  }
  const std::string_view length = find_header(headers, "Content-Length");
  if (length.find_first_not_of("0123456789") != std::string_view::npos) {
    return fail(kBadRequest, "malformed request: Content-Length must be one decimal number", taken);
  }
  if (count_of(headers, "Transfer-Encoding") == 0) return go_on(taken);
  const std::string_view coding = find_header(headers, "Transfer-Encoding");
  if (!boost::beast::iequals({coding.data(), coding.size()}, "chunked")) {
    return fail(kNotImplemented,
                fmt::format(R"(Transfer-Encoding "{}" is not supported; use "chunked")", coding),
                taken);
  }
  if (!http_1_1()) {
    return fail(kBadRequest,
                "malformed request: HTTP/1.0 has no Transfer-Encoding; send a Content-Length",
                taken);
  }
  return go_on(taken);
}

RequestReader::Step RequestReader::go_on(std::size_t taken) {
  stage_ = Stage::undecided;
  return {Event::head, taken};
}

Status RequestReader::take_body(std::size_t max_bytes) {
  const std::optional<std::uint64_t> bytes = body_bytes();
  if (bytes && *bytes > max_bytes) {
    return {StatusCode::invalid,
            fmt::format("the announced body of {} bytes exceeds the limit of {} for this request",
                        *bytes, max_bytes)};
  }
  filled_ = 0;
  stage_ = bytes ? Stage::taking : Stage::chunks;
  const std::size_t most = std::min(max_bytes, limits_.max_body_bytes);
  chunks_.set_limit(most);
  chunk_reader_.emplace(most, limits_.max_header_bytes);
  drops_chunks_ = false;
  if (!bytes || *bytes == 0) return {};
  GPULET_TRY(IncomingBytes memory, buffers_.take_incoming(static_cast<std::size_t>(*bytes)));
  body_ = std::move(memory);
  return {};
}

void RequestReader::drop_body() {
  filled_ = 0;
  body_ = {};
  stage_ = body_bytes() ? Stage::dropping : Stage::chunks;
  chunk_reader_.emplace(limits_.max_body_bytes, limits_.max_header_bytes);
  drops_chunks_ = true;
}

std::span<std::byte> RequestReader::body_space() const {
  if (stage_ != Stage::taking) return {};
  return body_.memory().view().subspan(filled_);
}

RequestReader::Step RequestReader::read_sized(std::span<const std::byte> bytes) {
  const auto length = static_cast<std::size_t>(*body_bytes());
  const std::size_t count = std::min(bytes.size(), length - filled_);
  if (stage_ == Stage::taking && count > 0)
    std::memcpy(body_.memory().view().data() + filled_, bytes.data(), count);
  filled_ += count;
  if (stage_ == Stage::taking) {
    if (const Status room = body_.filled(filled_); !room.ok())
      return fail(kUnavailable, room.message(), count);
  }
  return {filled_ == length ? Event::whole : Event::need_more, count};
}

RequestReader::Step RequestReader::read_chunks(std::span<const std::byte> bytes) {
  const std::string_view text = text_of(bytes);
  for (std::size_t taken = 0;;) {
    const ChunkReader::Step step = chunk_reader_->read(text.substr(taken));
    taken += step.taken;
    if (step.event == ChunkReader::Event::need_more) return {Event::need_more, taken};
    if (step.event == ChunkReader::Event::end) return {Event::whole, taken};
    if (step.event != ChunkReader::Event::data) return fail_in_chunks(step, taken);
    if (drops_chunks_) continue;
    const Status kept = chunks_.append(std::as_bytes(std::span(step.data)));
    if (!kept.ok()) {
      return fail(kept.code() == StatusCode::overloaded ? kUnavailable : kContentTooLarge,
                  kept.message(), taken);
    }
  }
}

RequestReader::Step RequestReader::fail_in_chunks(const ChunkReader::Step& step,
                                                  std::size_t taken) {
  if (step.event == ChunkReader::Event::malformed)
    return fail(kBadRequest, "malformed request: " + chunk_reader_->fault(), taken);
  return fail(kContentTooLarge, chunk_reader_->fault(), taken);
}

RequestReader::Step RequestReader::fail(unsigned status, std::string message, std::size_t taken) {
  failure_.status = status;
  failure_.message = std::move(message);
  return {Event::failed, taken};
}

HttpRequest RequestReader::take() {
  HttpRequest request = std::move(parser_->request());
  request.body = stage_ == Stage::chunks ? chunks_.take() : body_.take_memory().freeze();
  body_ = {};
  parser_.reset();
  stage_ = Stage::head;
  return request;
}

// ---- responses

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
  // English names: no program here leaves the C locale.
  text_.assign(text.data(),
               std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &parts));
  return text_;
}

bool has_no_body(unsigned status) { return status == 204 || status == 304; }

std::string response_head(const HttpResponse& response, const ResponseFormat& format,
                          std::string_view date) {
  constexpr std::size_t kUsualBytes = 320;
  std::string head;
  head.reserve(kUsualBytes);
  head += format.http_1_1 ? "HTTP/1.1 " : "HTTP/1.0 ";
  append_number(head, response.status);
  head.append(" ").append(reason_of(response.status)).append("\r\nDate: ").append(date);
  for (const Header& header : response.headers)
    head.append("\r\n").append(header.name).append(": ").append(header.value);
  if (format.coding != Coding::identity) {
    head.append("\r\nContent-Encoding: ").append(to_string(format.coding));
    head.append("\r\nVary: Accept-Encoding");
  }
  if (format.body_bytes && !has_no_body(response.status)) {
    head.append("\r\nContent-Length: ");
    append_number(head, *format.body_bytes);
  } else if (!format.body_bytes && format.http_1_1) {
    head.append("\r\nTransfer-Encoding: chunked");
  }
  if (!format.keep_alive) {
    head.append("\r\nConnection: close");
  } else if (!format.http_1_1) {
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

std::string refusal_of_http2(std::string_view message) {
  constexpr char kSettings = 4;
  constexpr char kGoAway = 7;
  constexpr char kHttp11Required = 0xd;
  constexpr std::size_t kMostDebugData = 200;
  constexpr std::size_t kGoAwayBytes = 8;  // the last stream and the error
  message = message.substr(0, kMostDebugData);
  const auto frame_head = [](std::size_t bytes, char type) {
    std::string head{'\0', '\0', static_cast<char>(bytes), type, '\0'};  // length, type, flags
    return head.append(4, '\0');                                         // of no stream
  };
  std::string frames =
      frame_head(0, kSettings) + frame_head(kGoAwayBytes + message.size(), kGoAway);
  frames.append(kGoAwayBytes - 1, '\0');
  frames += kHttp11Required;
  frames += message;
  return frames;
}

}  // namespace gpulet::net::http

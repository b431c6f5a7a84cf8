#include "gpulet/load/page.h"

#include <array>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "gpulet/config/daemon_config.h"
#include "gpulet/net/connector.h"

namespace gpulet::load {
namespace {

namespace asio = net::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr std::uint64_t kLargestPage = 2048ULL << 20U;
constexpr Duration kLook = std::chrono::milliseconds(100);

StatusCode code_of(unsigned status) {
  switch (status) {
    case 401:
    case 403:
      return StatusCode::invalid;
    case 404:
      return StatusCode::not_found;
    case 503:
      return StatusCode::unavailable;
    case 504:
      return StatusCode::timeout;
    default:
      return status >= 500 ? StatusCode::internal : StatusCode::invalid;
  }
}

class PageCall {
 public:
  PageCall(const Target& target, const std::string& path)
      : connector_(context_.get_executor(), target.endpoint.host, target.endpoint.port,
                   options_for(target)),
        look_(context_) {
    request_ = "GET " + path + " HTTP/1.1\r\nHost: " + config::to_string(target.endpoint) +
               "\r\nConnection: close\r\n";
    if (!target.token.empty()) request_ += "Authorization: Bearer " + target.token + "\r\n";
    request_ += "\r\n";
    parser_.body_limit(kLargestPage);
    parser_.eager(true);  // the body with the head
  }

  Result<std::string> run(Duration timeout, const StillWanted& still_wanted) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    look_again(deadline, timeout, still_wanted);
    connector_.connect([this](Result<net::Stream> stream) {
      if (!stream.ok()) return finish(stream.status());
      stream_ = std::make_unique<net::Stream>(std::move(stream).value());
      stream_->prepare();
      write();
    });
    while (!answer_) context_.run_one();
    if (stream_ != nullptr) stream_->close();
    return std::move(*answer_);
  }

 private:
  static net::ConnectorOptions options_for(const Target& target) {
    net::ConnectorOptions options;
    options.tls = target.tls;
    return options;
  }

  void look_again(std::chrono::steady_clock::time_point deadline, Duration timeout,
                  const StillWanted& still_wanted) {
    look_.expires_after(kLook);
    look_.async_wait([this, deadline, timeout, &still_wanted](const error_code& error) {
      if (error || answer_) return;
      if (!still_wanted()) return finish(Status(StatusCode::cancelled, "interrupted"));
      if (std::chrono::steady_clock::now() >= deadline) {
        return finish(Status(StatusCode::timeout,
                             "no answer within " + std::to_string(to_seconds(timeout)) + " s"));
      }
      look_again(deadline, timeout, still_wanted);
    });
  }

  void write() {
    error_code error;
    const std::array rest{asio::const_buffer(request_.data() + sent_, request_.size() - sent_)};
    const std::size_t written = stream_->write_some(rest, error);
    if (error && error != asio::error::would_block && error != asio::error::try_again)
      return broken(error);
    sent_ += written;
    if (sent_ == request_.size()) return read();
    stream_->async_wait_writable([this](const error_code& failure) {
      if (failure) return broken(failure);
      write();
    });
  }

  void read() {
    stream_->async_read_some(asio::buffer(piece_), [this](error_code error, std::size_t bytes) {
      if (error == asio::error::eof) {
        parser_.put_eof(error);
        return error ? broken(asio::error::eof) : whole();
      }
      if (error) return broken(error);
      text_.append(piece_.data(), bytes);
      parse();
    });
  }

  void parse() {
    error_code error;
    text_.erase(0, parser_.put(asio::buffer(text_), error));
    if (error && error != http::error::need_more) {
      return finish(Status(StatusCode::malformed, "no answer of HTTP: " + error.message()));
    }
    if (parser_.is_done()) return whole();
    read();
  }

  void whole() {
    const unsigned status = parser_.get().result_int();
    std::string body = std::move(parser_.get().body());
    if (status == 200) return finish(std::move(body));
    while (!body.empty() && body.back() == '\n') body.pop_back();
    finish(Status(code_of(status), "answered " + std::to_string(status) + ": " + body));
  }

  void broken(const error_code& error) {
    finish(Status(StatusCode::unavailable,
                  "the connection ended before the answer: " + stream_->describe(error)));
  }

  void finish(Result<std::string> answer) {
    if (!answer_) answer_ = std::move(answer);
  }

  std::string request_;
  std::size_t sent_ = 0;
  asio::io_context context_{1};
  net::Connector connector_;
  asio::steady_timer look_;
  std::unique_ptr<net::Stream> stream_;
  std::array<char, 64U << 10U> piece_{};
  std::string text_;  // read, and not parsed yet
  http::response_parser<http::string_body> parser_;
  std::optional<Result<std::string>> answer_;
};

}  // namespace

Result<std::string> fetch_page(const Target& target, const std::string& path, Duration timeout,
                               const StillWanted& still_wanted) {
  // Large: the piece that is read.
  const auto call = std::make_unique<PageCall>(target, path);
  Result<std::string> page = call->run(timeout, still_wanted);
  if (page.ok()) return page;
  return page.status().within(config::to_string(target.endpoint));
}

}  // namespace gpulet::load

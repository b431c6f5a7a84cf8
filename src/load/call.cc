#include "gpulet/load/call.h"

#include <fmt/format.h>

#include <array>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <iterator>
#include <memory>
#include <optional>

#include "gpulet/net/connection.h"
#include "gpulet/protocol/codec.h"

namespace gpulet::load {

namespace {

namespace asio = net::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

net::ConnectorOptions options_for(const Target& target) {
  net::ConnectorOptions options;
  options.tls = target.tls;
  return options;
}

class Call : public net::ConnectionHandler {
 public:
  explicit Call(const Target& target)
      : target_(config::to_string(target.endpoint)),
        token_(target.token),
        secure_(target.tls != nullptr),
        timer_(context_),
        connector_(context_.get_executor(), target.endpoint.host, target.endpoint.port,
                   options_for(target)) {}

  // The first call connects. Not usable after a failure.
  Result<FrontendReply> send(const ClientMessage& request, Duration timeout) {
    timer_.expires_after(timeout);
    timer_.async_wait([this, timeout](const error_code& error) {
      if (error) return;
      const auto milliseconds = timeout / std::chrono::milliseconds(1);
      finish(Status(StatusCode::timeout, fmt::format("no reply within {} ms", milliseconds)));
    });
    if (connection_) {
      connection_->send(protocol::encode(request));
    } else {
      connect(request);
    }
    while (!result_) context_.run_one();
    Result<FrontendReply> answer = *std::exchange(result_, std::nullopt);
    return answer.ok() ? std::move(answer) : Result<FrontendReply>(answer.status().within(target_));
  }

  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte> /*message*/) override {
    auto memory = std::make_shared<std::vector<std::byte>>(header.payload_bytes);
    const std::span<std::byte> view(*memory);
    return MutableBytes(std::move(memory), view);
  }

  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override {
    finish(protocol::decode<FrontendReply>(header, message, payload.freeze()));
  }

  void on_closed(const Status& reason) override {
    if (reason.code() != StatusCode::cancelled) return finish(reason);
    finish(Status(StatusCode::unavailable,
                  fmt::format("the connection closed before the reply: {}{}", reason.message(),
                              secure_ ? "" : "; if it requires TLS, give --tls-authority")));
  }

 private:
  void connect(const ClientMessage& request) {
    connector_.connect([this, &request](Result<net::Stream> stream) {
      if (!stream.ok()) return finish(stream.status());
      // Status and model lists of large clusters are long. The frontend is trusted with the size.
      net::ConnectionOptions options;
      options.limits.max_message_bytes = 256U << 20U;
      connection_ = net::Connection::start(std::move(stream).value(), options, *this);
      if (!token_.empty()) connection_->send(protocol::encode(ClientMessage(Authenticate{token_})));
      connection_->send(protocol::encode(request));
    });
  }

  void finish(Result<FrontendReply> result) {
    if (!result_) result_ = std::move(result);
  }

  std::string target_;
  const std::string token_;
  const bool secure_;
  asio::io_context context_{1};
  asio::steady_timer timer_;
  net::Connector connector_;
  std::shared_ptr<net::Connection> connection_;
  std::optional<Result<FrontendReply>> result_;
};

// The error for a reply of another type. A server refuses a connection with an InferReply.
Status unexpected(const Target& target, const FrontendReply& reply) {
  const std::string where = config::to_string(target.endpoint);
  const auto* const inferred = std::get_if<InferReply>(&reply);
  if (inferred != nullptr && !inferred->status.ok()) return inferred->status.within(where);
  return {StatusCode::malformed, where + ": the reply has another type than the request"};
}

// Returns the reply to a request that is answered with a `Reply` or its failure.
template <typename Reply>
Result<Reply> reply_to(const Target& target, const ClientMessage& request, Duration timeout) {
  GPULET_TRY(FrontendReply reply, call(target, request, timeout));
  auto* const expected = std::get_if<Reply>(&reply);
  if (expected == nullptr) return unexpected(target, reply);
  if (!expected->status.ok()) return expected->status;
  return std::move(*expected);
}

// False for a page that would make the reader loop.
bool advances(const ModelsRequest& request, const ModelsReply& page) {
  return !page.more || (!page.models.empty() && page.models.back().name > request.after);
}

}  // namespace

Result<FrontendReply> call(const Target& target, const ClientMessage& request, Duration timeout) {
  return Call(target).send(request, timeout);
}

Result<ModelsReply> fetch_model_list(const Target& target, Duration timeout) {
  Call call(target);
  ModelsReply whole;
  for (bool more = true; more;) {
    const ModelsRequest request{whole.models.empty() ? std::string() : whole.models.back().name};
    GPULET_TRY(FrontendReply reply, call.send(request, timeout));
    auto* const page = std::get_if<ModelsReply>(&reply);
    if (page == nullptr || !advances(request, *page)) return unexpected(target, reply);
    more = page->more;
    whole.problems = std::move(page->problems);
    std::move(page->models.begin(), page->models.end(), std::back_inserter(whole.models));
  }
  return whole;
}

Result<std::vector<ModelInfo>> fetch_models(const Target& target, Duration timeout) {
  Result<ModelsReply> whole = fetch_model_list(target, timeout);
  if (!whole.ok()) return whole.status();
  return std::move(whole.value().models);
}

Result<std::vector<ModelInfo>> change_models(const Target& target, const ModelsChange& change,
                                             Duration timeout) {
  Result<ModelsChanged> changed = reply_to<ModelsChanged>(target, change, timeout);
  if (!changed.ok()) return changed.status();
  return std::move(changed.value().models);
}

Result<std::string> fetch_status(const Target& target, Duration timeout, StatusOf of) {
  Result<StatusReply> status =
      reply_to<StatusReply>(target, StatusRequest{of == StatusOf::target}, timeout);
  if (!status.ok()) return status.status();
  return std::move(status.value().json);
}

namespace {

constexpr std::uint64_t kMaxPageBytes = 2048ULL << 20U;
constexpr Duration kPollInterval = std::chrono::milliseconds(100);

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
        poll_timer_(context_) {
    request_ = fmt::format("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", path,
                           config::to_string(target.endpoint));
    if (!target.token.empty())
      request_ += fmt::format("Authorization: Bearer {}\r\n", target.token);
    request_ += "\r\n";
    parser_.body_limit(kMaxPageBytes);
    parser_.eager(true);  // parse the body together with the header
  }

  Result<std::string> run(Duration timeout, const KeepWaiting& keep_waiting) {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    poll_later(deadline, timeout, keep_waiting);
    connector_.connect([this](Result<net::Stream> stream) {
      if (!stream.ok()) return finish(stream.status());
      stream_ = std::make_unique<net::Stream>(std::move(stream).value());
      stream_->prepare();
      write();
    });
    while (!result_) context_.run_one();
    if (stream_ != nullptr) stream_->close();
    return std::move(*result_);
  }

 private:
  void poll_later(std::chrono::steady_clock::time_point deadline, Duration timeout,
                  const KeepWaiting& keep_waiting) {
    poll_timer_.expires_after(kPollInterval);
    poll_timer_.async_wait([this, deadline, timeout, &keep_waiting](const error_code& error) {
      if (error || result_) return;
      if (!keep_waiting()) return finish(Status(StatusCode::cancelled, "interrupted"));
      if (std::chrono::steady_clock::now() >= deadline) {
        return finish(Status(StatusCode::timeout,
                             fmt::format("no reply within {:f} s", to_seconds(timeout))));
      }
      poll_later(deadline, timeout, keep_waiting);
    });
  }

  void write() {
    error_code error;
    const std::array rest{asio::const_buffer(request_.data() + sent_, request_.size() - sent_)};
    const std::size_t written = stream_->write_some(rest, error);
    if (error && error != asio::error::would_block && error != asio::error::try_again)
      return fail(error);
    sent_ += written;
    if (sent_ == request_.size()) return read();
    stream_->async_wait_writable([this](const error_code& failure) {
      if (failure) return fail(failure);
      write();
    });
  }

  void read() {
    stream_->async_read_some(asio::buffer(buffer_), [this](error_code error, std::size_t bytes) {
      if (error == asio::error::eof) {
        parser_.put_eof(error);
        return error ? fail(asio::error::eof) : complete();
      }
      if (error) return fail(error);
      received_.append(buffer_.data(), bytes);
      parse();
    });
  }

  void parse() {
    error_code error;
    received_.erase(0, parser_.put(asio::buffer(received_), error));
    if (error && error != http::error::need_more)
      return finish(Status(StatusCode::malformed, "not an HTTP response: " + error.message()));
    if (parser_.is_done()) return complete();
    read();
  }

  void complete() {
    const unsigned status = parser_.get().result_int();
    std::string body = std::move(parser_.get().body());
    if (status == 200) return finish(std::move(body));
    while (!body.empty() && body.back() == '\n') body.pop_back();
    finish(Status(code_of(status), fmt::format("HTTP status {}: {}", status, body)));
  }

  void fail(const error_code& error) {
    finish(Status(StatusCode::unavailable,
                  "the connection closed before the reply: " + stream_->describe(error)));
  }

  void finish(Result<std::string> result) {
    if (!result_) result_ = std::move(result);
  }

  std::string request_;
  std::size_t sent_ = 0;
  asio::io_context context_{1};
  net::Connector connector_;
  asio::steady_timer poll_timer_;
  std::unique_ptr<net::Stream> stream_;
  std::array<char, 64U << 10U> buffer_{};
  std::string received_;  // received, not parsed yet
  http::response_parser<http::string_body> parser_;
  std::optional<Result<std::string>> result_;
};

}  // namespace

Result<std::string> fetch_page(const Target& target, const std::string& path, Duration timeout,
                               const KeepWaiting& keep_waiting) {
  // On the heap: it contains the read buffer.
  const auto call = std::make_unique<PageCall>(target, path);
  Result<std::string> page = call->run(timeout, keep_waiting);
  if (page.ok()) return page;
  return page.status().within(config::to_string(target.endpoint));
}

}  // namespace gpulet::load

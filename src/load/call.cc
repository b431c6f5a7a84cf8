#include "gpulet/load/call.h"

#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gpulet/net/codec/codec.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/connector.h"

namespace gpulet::load {
namespace {

namespace asio = net::asio;

class Call : public net::ConnectionHandler {
 public:
  explicit Call(const Target& target)
      : target_(config::to_string(target.endpoint)),
        token_(target.token),
        secure_(target.tls != nullptr),
        timer_(context_),
        connector_(context_.get_executor(), target.endpoint.host, target.endpoint.port,
                   options_for(target)) {}

  // The first call connects. After a failure there must be no other.
  Result<serve::FrontendReply> ask(const serve::ClientMessage& question, Duration timeout) {
    timer_.expires_after(timeout);
    timer_.async_wait([this, timeout](boost::system::error_code error) {
      if (error) return;
      const auto milliseconds = timeout / std::chrono::milliseconds(1);
      finish(
          Status(StatusCode::timeout, "no answer within " + std::to_string(milliseconds) + " ms"));
    });
    if (connection_) {
      connection_->send(net::encode(question));
    } else {
      connect(question);
    }
    while (!answer_) context_.run_one();
    Result<serve::FrontendReply> answer = *std::exchange(answer_, std::nullopt);
    return answer.ok() ? std::move(answer)
                       : Result<serve::FrontendReply>(answer.status().within(target_));
  }

  Result<MutableBytes> payload_memory(const net::FrameHeader& header,
                                      std::span<const std::byte> /*message*/) override {
    auto memory = std::make_shared<std::vector<std::byte>>(header.payload_bytes);
    const std::span<std::byte> view(*memory);
    return MutableBytes(std::move(memory), view);
  }

  void on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override {
    finish(net::decode_frontend_reply(header, message, payload.freeze()));
  }

  void on_closed(const Status& reason) override {
    if (reason.code() != StatusCode::cancelled) return finish(reason);
    finish(Status(StatusCode::unavailable,
                  "the connection ended before the answer: " + reason.message() +
                      (secure_ ? "" : "; does it want TLS (--tls-authority)?")));
  }

 private:
  void connect(const serve::ClientMessage& question) {
    connector_.connect([this, &question](Result<net::Stream> stream) {
      if (!stream.ok()) return finish(stream.status());
      connection_ = net::Connection::start(std::move(stream).value(), connection_options(), *this);
      if (!token_.empty())
        connection_->send(net::encode(serve::ClientMessage(serve::Authenticate{token_})));
      connection_->send(net::encode(question));
    });
  }

  static net::ConnectorOptions options_for(const Target& target) {
    net::ConnectorOptions options;
    options.tls = target.tls;
    return options;
  }

  // Status and models of a large site; it is the frontend that was asked that says how long.
  static net::ConnectionOptions connection_options() {
    net::ConnectionOptions options;
    options.limits.max_message_bytes = 256U << 20U;
    return options;
  }

  void finish(Result<serve::FrontendReply> answer) {
    if (!answer_) answer_ = std::move(answer);
  }

  std::string target_;
  const std::string token_;
  const bool secure_;
  asio::io_context context_{1};
  asio::steady_timer timer_;
  net::Connector connector_;
  std::shared_ptr<net::Connection> connection_;
  std::optional<Result<serve::FrontendReply>> answer_;
};

// Of an answer of another kind. A server that refuses the connection says so as the answer to an
// inference.
Status unexpected(const Target& target, const serve::FrontendReply& reply) {
  const std::string where = config::to_string(target.endpoint);
  const auto* const inferred = std::get_if<serve::InferReply>(&reply);
  if (inferred != nullptr && !inferred->status.ok()) return inferred->status.within(where);
  return {StatusCode::malformed, where + ": answered something else than what was asked"};
}

// False for a page that would make the reader begin again.
bool goes_on_after(const serve::ModelsRequest& request, const serve::ModelsReply& page) {
  return !page.more || (!page.models.empty() && page.models.back().name > request.after);
}

}  // namespace

Result<serve::FrontendReply> call(const Target& target, const serve::ClientMessage& question,
                                  Duration timeout) {
  return Call(target).ask(question, timeout);
}

Result<serve::ModelsReply> fetch_model_list(const Target& target, Duration timeout) {
  Call call(target);
  serve::ModelsReply whole;
  for (bool more = true; more;) {
    const serve::ModelsRequest request{whole.models.empty() ? std::string()
                                                            : whole.models.back().name};
    Result<serve::FrontendReply> reply = call.ask(request, timeout);
    if (!reply.ok()) return reply.status();
    auto* const page = std::get_if<serve::ModelsReply>(&reply.value());
    if (page == nullptr || !goes_on_after(request, *page)) return unexpected(target, reply.value());
    more = page->more;
    whole.problems = std::move(page->problems);
    std::move(page->models.begin(), page->models.end(), std::back_inserter(whole.models));
  }
  return whole;
}

Result<std::vector<serve::ModelInfo>> fetch_models(const Target& target, Duration timeout) {
  Result<serve::ModelsReply> whole = fetch_model_list(target, timeout);
  if (!whole.ok()) return whole.status();
  return std::move(whole.value().models);
}

Result<std::vector<serve::ModelInfo>> change_models(const Target& target,
                                                    const serve::ModelsChange& change,
                                                    Duration timeout) {
  Result<serve::FrontendReply> reply = call(target, change, timeout);
  if (!reply.ok()) return reply.status();
  auto* const changed = std::get_if<serve::ModelsChanged>(&reply.value());
  if (changed == nullptr) return unexpected(target, reply.value());
  if (!changed->status.ok()) return changed->status;
  return std::move(changed->models);
}

Result<std::string> fetch_status(const Target& target, Duration timeout) {
  Result<serve::FrontendReply> reply = call(target, serve::StatusRequest{}, timeout);
  if (!reply.ok()) return reply.status();
  auto* const status = std::get_if<serve::StatusReply>(&reply.value());
  if (status == nullptr) return unexpected(target, reply.value());
  if (!status->status.ok()) return status->status;
  return std::move(status->json);
}

}  // namespace gpulet::load

// State and helpers that all calls of a GrpcServer share: errors, authorization, and calls with one
// request that the host answers. Private to net/grpc.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/access/gate.h"
#include "gpulet/base/status.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/grpc/server.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/net/kserve/infer_call.h"
#include "net/grpc/call.h"
#include "net/grpc/wire.h"

namespace gpulet::net::grpc_api {

// An open stream. Executor thread only.
class OpenStream {
 public:
  virtual void tokens_changed() = 0;
  virtual ~OpenStream() = default;
};

// Executor thread only, except the executor and the options. Calls queued in the io_context may
// outlive the server: `open` tells whether host and regions still exist.
struct ServerState {
  asio::io_context::executor_type executor;
  const GrpcServerOptions options;
  BufferPool& buffers;  // any thread
  kserve::ProtocolHost& host;
  kserve::SharedMemory& regions;
  bool open = true;
  std::vector<std::weak_ptr<OpenStream>> streams{};
  // Any thread.
  std::shared_ptr<std::atomic<std::size_t>> max_message_bytes =
      std::make_shared<std::atomic<std::size_t>>(options.max_message_bytes);
};
using ServerStatePointer = std::shared_ptr<ServerState>;

// Failures have a message: Triton's C++ client takes a status without one for success.
[[nodiscard]] CallEnd end_of(const Status& status);
[[nodiscard]] Status stopping();

// Fails with not_found for an unknown model or version. Empty version: any.
[[nodiscard]] Result<std::shared_ptr<const kserve::Model>> find_model(kserve::ProtocolHost& host,
                                                                      const std::string& name,
                                                                      const std::string& version);

// ---- authorization

struct Authorization {
  Status status;
  access::PeerIdentity peer{};
};
// Checks the token of a call and reports a refusal to the gate. Any thread.
[[nodiscard]] Authorization authorize(const ServerStatePointer& state, const CallHead& head,
                                      const access::CallNeeds& needs);

// Called once, on any thread, after the response is filled, which lives as long as the callback.
using OnStatus = std::function<void(const Status&)>;

// Reports the result of an admin call to the audit log.
[[nodiscard]] OnStatus audited(const ServerStatePointer& state, access::CallNeeds needs,
                               access::PeerIdentity peer);
// The same for a call that does not reach the executor thread.
void report_to_audit(const ServerStatePointer& state, OnStatus audit, const Status& why);

// ---- calls with one request that the host answers

inline constexpr std::size_t kMaxRequestBytes = 64U << 10U;
inline constexpr std::size_t kMaxLoadBytes = 4U << 20U;  // with its models file

// Parsed requests may take more memory than on the wire.
inline constexpr std::size_t memory_of_request(std::size_t message_bytes) {
  constexpr std::size_t kLeast = 1U << 20U;
  return std::max(kLeast, 4 * message_bytes);
}

template <typename Request, typename Response>
struct HostMethod {
  // Called on the executor thread while the server is open; completes now or later.
  using Work = void (*)(ServerState&, const Request&, Response&, const OnStatus&);
  // The requirements of a request; null: none.
  using Needs = access::CallNeeds (*)(const Request&);

  Work work;
  // What every request of the method needs, checked before it is received.
  access::CallNeeds least{};
  Needs needs = nullptr;
};

template <typename Request, typename Response>
class HostCall final : public CallHandler {
 public:
  using Table = HostMethod<Request, Response>;

  HostCall(ServerStatePointer state, const Table& method, CallHead head, ResponderPointer responder)
      : state_(std::move(state)),
        method_(method),
        head_(std::move(head)),
        responder_(std::move(responder)) {}

  // Null if the caller lacks the right.
  [[nodiscard]] static CallHandlerPointer start(const ServerStatePointer& state,
                                                const Table& method, const CallHead& head,
                                                const ResponderPointer& responder) {
    if (method.least.right != access::Right::nothing) {
      const Authorization caller = authorize(state, head, method.least);
      if (!caller.status.ok()) {
        responder->finish(end_of(caller.status));
        return nullptr;
      }
    }
    return std::make_shared<HostCall>(state, method, head, responder);
  }

  void on_message(Bytes message) override { message_ = std::move(message); }

  void on_end() override {
    const auto request = std::make_shared<Request>();
    const Bytes message = std::exchange(message_, Bytes());
    if (const Status good =
            parse_message(message.view(), memory_of_request(message.size()), *request);
        !good.ok())
      return responder_->finish(end_of(good));
    OnStatus audit;
    if (method_.needs != nullptr) {
      const access::CallNeeds needs = method_.needs(*request);
      Authorization caller = authorize(state_, head_, needs);
      if (!caller.status.ok()) return responder_->finish(end_of(caller.status));
      if (needs.right == access::Right::admin)
        audit = audited(state_, needs, std::move(caller.peer));
    }
    asio::post(state_->executor, [state = state_, responder = responder_, work = method_.work,
                                  request, audit = std::move(audit)] {
      if (!state->open) return responder->finish(end_of(stopping()));
      const auto answer = std::make_shared<Response>();
      work(*state, *request, *answer, [responder, answer, audit](const Status& status) {
        if (audit) audit(status);
        if (!status.ok()) return responder->finish(end_of(status));
        responder->answer(wire_of(*answer));
      });
    });
  }

  // A call that is not complete, such as a request that is too long, is audited here; others when
  // the host has answered.
  void on_cancel(const Status& why) override {
    if (method_.least.right != access::Right::admin || why.code() == StatusCode::cancelled) return;
    Authorization caller = authorize(state_, head_, method_.least);
    if (caller.status.ok())
      report_to_audit(state_, audited(state_, method_.least, std::move(caller.peer)), why);
  }

 private:
  const ServerStatePointer state_;
  const Table method_;
  const CallHead head_;
  const ResponderPointer responder_;
  Bytes message_;
};

// A method of one request and one response.
template <typename Request, typename Response>
[[nodiscard]] Method host_method(const ServerStatePointer& state,
                                 const HostMethod<Request, Response>& method,
                                 std::size_t most_bytes = kMaxRequestBytes) {
  return {.most_bytes = most_bytes,
          .start = [state, method](const CallHead& head, const ResponderPointer& responder) {
            return HostCall<Request, Response>::start(state, method, head, responder);
          }};
}

}  // namespace gpulet::net::grpc_api

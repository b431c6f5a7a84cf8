// State and helpers that all calls of a GrpcServer share: errors, authorization, and the reactor
// for unary calls that the host answers. Private to net/grpc.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>
#include <grpcpp/support/status.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/gate.h"
#include "gpulet/net/grpc/server.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/net/kserve/infer_call.h"
#include "kserve.pb.h"

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
  kserve::ProtocolHost& host;
  kserve::SharedMemory& regions;
  bool open = true;
  std::vector<std::weak_ptr<OpenStream>> streams{};
};
using ServerStatePointer = std::shared_ptr<ServerState>;

// Failures have a message: Triton's C++ client takes a status without one for success.
[[nodiscard]] ::grpc::Status grpc_status(const Status& status);
[[nodiscard]] Status stopping();
[[nodiscard]] Status cancelled();
[[nodiscard]] Status too_long(std::size_t bytes, std::size_t most);

// Fails with not_found for an unknown model or version. Empty version: any.
[[nodiscard]] Result<std::shared_ptr<const kserve::Model>> find_model(kserve::ProtocolHost& host,
                                                                      const std::string& name,
                                                                      const std::string& version);

// ---- unary calls

// Called once, on any thread, after the response is filled, which lives as long as the callback.
using OnStatus = std::function<void(const Status&)>;

// A unary call that the host answers on the executor thread. gRPC holds the reactor until OnDone().
template <typename Request, typename Response>
class HostReactor final : public ::grpc::ServerUnaryReactor {
 public:
  // Called while the server is open; completes now or later.
  using Work = void (*)(ServerState&, const Request&, Response&, const OnStatus&);

  // `audit` also gets the result, even if the call was cancelled meanwhile.
  static ::grpc::ServerUnaryReactor* start(const ServerStatePointer& state, const Request& request,
                                           Response& response, Work work, OnStatus audit = {}) {
    auto reactor = std::make_shared<HostReactor>(response);
    reactor->self_ = reactor;
    asio::post(state->executor, [reactor, state, query = request, work, audit = std::move(audit)] {
      if (!state->open) return reactor->finish(stopping(), {});
      // Filled separately, because gRPC destroys its response when the call is cancelled.
      const auto answer = std::make_shared<Response>();
      work(*state, query, *answer, [reactor, answer, audit](const Status& status) {
        if (audit) audit(status);
        reactor->finish(status, std::move(*answer));
      });
    });
    return reactor.get();
  }

  // Fails the call at once.
  static ::grpc::ServerUnaryReactor* refuse(Response& response, const Status& why) {
    auto reactor = std::make_shared<HostReactor>(response);
    reactor->self_ = reactor;
    reactor->finish(why, {});
    return reactor.get();
  }

  explicit HostReactor(Response& response) : response_(response) {}
  void OnCancel() override {
    if (!finished_.exchange(true)) Finish(grpc_status(cancelled()));
  }
  void OnDone() override { const auto last = std::exchange(self_, nullptr); }

 private:
  void finish(const Status& status, Response answer) {
    if (finished_.exchange(true)) return;
    response_ = std::move(answer);
    Finish(grpc_status(status));
  }

  Response& response_;                  // valid until Finish
  std::atomic<bool> finished_ = false;  // the thread that sets it calls Finish
  std::shared_ptr<HostReactor> self_;
};

inline constexpr std::size_t kMaxRequestBytes = 64U << 10U;  // of calls other than inferences
inline constexpr std::size_t kMaxLoadBytes = 4U << 20U;      // of a load, with its models file

// Audits a call that is refused before it reaches the executor thread.
inline void report_to_audit(const ServerStatePointer& state, OnStatus audit, const Status& why) {
  asio::post(state->executor, [state, audit = std::move(audit), why] {
    if (state->open) audit(why);
  });
}

// Runs `work` on the executor thread, unless the request is too long.
template <typename Request, typename Response>
::grpc::ServerUnaryReactor* ask_host(const ServerStatePointer& state, const Request* request,
                                     Response* response,
                                     typename HostReactor<Request, Response>::Work work,
                                     OnStatus audit = {}) {
  constexpr bool kLoads = std::is_same_v<Request, inference::RepositoryModelLoadRequest>;
  constexpr std::size_t kMost = kLoads ? kMaxLoadBytes : kMaxRequestBytes;
  if (const std::size_t bytes = request->ByteSizeLong(); bytes > kMost) {
    const Status why = too_long(bytes, kMost);
    if (audit) report_to_audit(state, std::move(audit), why);
    return HostReactor<Request, Response>::refuse(*response, why);
  }
  return HostReactor<Request, Response>::start(state, *request, *response, work, std::move(audit));
}

// ---- authorization

struct Authorization {
  Status status;
  PeerIdentity peer{};
};
// Checks the token of a call and reports a refusal to the gate. Any thread.
[[nodiscard]] Authorization authorize(const ServerStatePointer& state,
                                      const ::grpc::CallbackServerContext& context,
                                      const CallNeeds& needs);

// Reports the result of an admin call to the audit log.
[[nodiscard]] OnStatus audited(const ServerStatePointer& state, CallNeeds needs, PeerIdentity peer);

}  // namespace gpulet::net::grpc_api

// The services of a GrpcServer: inference (proto/kserve.proto), health (proto/health.proto) and
// reflection (proto/reflection_v1alpha.proto), as methods by path. Their handlers run on the
// threads of connections. Private to net/grpc.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "net/grpc/call.h"
#include "net/grpc/server_state.h"

namespace gpulet::net::grpc_api {

// ---- inference

void add_inference_methods(const ServerStatePointer& state, MethodTable& methods);

// A unary inference. A limited call has the trailing metadata grpc-retry-pushback-ms. Null: the
// caller lacks the right.
[[nodiscard]] CallHandlerPointer start_infer(const ServerStatePointer& state, const CallHead& head,
                                             const ResponderPointer& responder);

// A stream of inferences. Responses, also failures, follow the order of the requests; each is
// marked as the only one to its request (`triton_final_response`). Takes messages while fewer than
// max_calls_of_stream responses are unsent. Null: the caller lacks the right.
[[nodiscard]] CallHandlerPointer start_stream(const ServerStatePointer& state, const CallHead& head,
                                              const ResponderPointer& responder);

// ---- calls without an end

// A call that lasts until its client ends it, such as a health watch.
class LongCall {
 public:
  // Ends the call after the current write. Any thread.
  virtual void end(const Status& why) = 0;
  virtual ~LongCall() = default;
};

// Limits the number of such calls and ends them when the server drains. Any thread.
class LongCalls {
 public:
  explicit LongCalls(std::size_t most) : most_(most) {}

  // Does not own the call. Fails with overloaded (too many) or unavailable (draining).
  [[nodiscard]] Status add(const std::shared_ptr<LongCall>& call);
  // The calls that have not ended.
  [[nodiscard]] std::vector<std::shared_ptr<LongCall>> calls() const;
  // Ends all calls and accepts no more.
  void drain();

 private:
  const std::size_t most_;
  mutable std::mutex mutex_;
  std::vector<std::weak_ptr<LongCall>> calls_;
  bool draining_ = false;
};

// ---- health

// A watch gets the status at once and after every change, found by polling every kPollInterval.
class HealthService {
 public:
  static constexpr Duration kPollInterval = std::chrono::milliseconds(250);

  explicit HealthService(ServerStatePointer state);

  void add_methods(MethodTable& methods) const;
  // Sends NOT_SERVING to all watches and ends them. Executor thread.
  void drain();

 private:
  struct Watches;
  class Watch;
  class WatchCall;

  ServerStatePointer state_;
  std::shared_ptr<Watches> watches_;
};

// ---- reflection

// Lets clients such as grpcurl list the services and messages of this server, under both names of
// the service. Needs the inference right. Any thread.
class Reflection {
 public:
  explicit Reflection(ServerStatePointer state);

  void add_methods(MethodTable& methods) const;
  // Ends all calls and accepts no more.
  void drain() { calls_->drain(); }

 private:
  static constexpr std::size_t kMostCalls = 64;
  static constexpr std::size_t kMostBytes = 128U << 10U;  // of a request

  ServerStatePointer state_;
  std::shared_ptr<LongCalls> calls_ = std::make_shared<LongCalls>(kMostCalls);
};

}  // namespace gpulet::net::grpc_api

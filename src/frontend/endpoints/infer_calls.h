// InferCalls: inferences over HTTP and gRPC as clients of the engine. Each call is a client of its
// own, so that it can be cancelled alone. Belongs to the thread of its io_context, which must have
// stopped before this object is destroyed.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "frontend/frames/engine_link.h"
#include "frontend/frames/reply_router.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/kserve/host.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/values/frontend_status.h"
#include "gpulet/serve/values/served_model.h"

namespace gpulet::frontend {

// A model as the protocol shows it. Pure; any thread.
[[nodiscard]] net::kserve::Model protocol_model(const serve::ModelView& view);
// Whether clients may name it: they name a model, not its buckets. Pure; any thread.
[[nodiscard]] bool is_for_clients(const serve::ServedModel& model);

class InferCalls {
 public:
  using OnReplies = net::kserve::InferenceHost::OnReplies;

  // The references of `engine` must outlive this object.
  InferCalls(net::asio::io_context& io, const EngineLink& engine) : io_(io), engine_(engine) {}
  InferCalls(const InferCalls&) = delete;
  InferCalls& operator=(const InferCalls&) = delete;

  // As the functions of InferenceHost.
  [[nodiscard]] ClientId infer(std::vector<InferRequest> rows, OnReplies done);
  void cancel(ClientId id);

 private:
  class Call final : public ReplySink {
   public:
    Call(InferCalls& calls, ClientId id, std::size_t rows, OnReplies done)
        : calls_(calls), id_(id), replies_(rows), missing_(rows), done_(std::move(done)) {}
    void reply(InferReply reply) override;
    void finish() { done_(std::move(replies_)); }

   private:
    InferCalls& calls_;
    const ClientId id_;
    std::vector<InferReply> replies_;  // one for each row
    std::size_t missing_;
    OnReplies done_;
  };
  void finish(ClientId id);

  net::asio::io_context& io_;
  const EngineLink engine_;
  std::map<ClientId, std::unique_ptr<Call>> calls_;
};

}  // namespace gpulet::frontend

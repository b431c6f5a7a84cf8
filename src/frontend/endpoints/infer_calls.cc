#include "frontend/endpoints/infer_calls.h"

#include <cstdint>
#include <string>

#include "gpulet/core/bucket.h"

namespace gpulet::frontend {

net::kserve::Model protocol_model(const serve::ModelView& view) {
  return {.name = view.model.name,
          .version = std::to_string(view.number),
          .inputs = view.model.inputs,
          .outputs = view.model.outputs,
          .max_batch = view.model.max_batch,
          .state = view.state,
          .reason = view.reason,
          .description = view.model.description,
          .application = view.application,
          .queue = view.model.queue,
          .longest = view.model.bucket == nullptr ? 0 : view.model.bucket->length};
}

bool is_for_clients(const serve::ServedModel& model) {
  return model.bucket == nullptr || is_dynamic(model.inputs);
}

ClientId InferCalls::infer(std::vector<InferRequest> rows, OnReplies done) {
  const ClientId id = engine_.replies.new_client();
  auto call = std::make_unique<Call>(*this, id, rows.size(), std::move(done));
  engine_.replies.add(id, *call);
  calls_.emplace(id, std::move(call));
  std::uint64_t row = 0;
  for (InferRequest& request : rows) {
    request.tag = row++;
    engine_.events.deliver(serve::RequestReceived{id, std::move(request)});
  }
  return id;
}

void InferCalls::cancel(ClientId id) {
  if (calls_.erase(id) == 0) return;
  engine_.replies.remove(id);
  engine_.events.deliver(serve::ClientDisconnected{id});
}

void InferCalls::Call::reply(InferReply reply) {
  const std::size_t row = reply.tag;
  replies_.at(row) = std::move(reply);
  // Posted, because the engine may answer before infer() has returned.
  if (--missing_ == 0)
    net::asio::post(calls_.io_, [&calls = calls_, id = id_] { calls.finish(id); });
}

void InferCalls::finish(ClientId id) {
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;  // cancelled
  const std::unique_ptr<Call> call = std::move(found->second);
  calls_.erase(found);
  engine_.replies.remove(id);
  call->finish();
}

}  // namespace gpulet::frontend

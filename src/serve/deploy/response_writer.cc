#include "serve/deploy/response_writer.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "gpulet/core/bucket.h"
#include "gpulet/core/tensor.h"

namespace gpulet::serve {
namespace {

// Cuts the outputs of a padded request to its length.
void cut_reply(const Request& request, InferReply& reply) {
  if (request.bucket == nullptr || !reply.status.ok()) return;
  Result<std::vector<Bytes>> outputs =
      cut(*request.bucket, std::move(reply.payload), request.length);
  reply.payload.clear();
  reply.outputs.clear();
  reply.status = outputs.status();
  if (!outputs.ok()) return;
  reply.payload = std::move(outputs).value();
  reply.outputs = with_length(request.bucket->outputs, request.length);
}

// BYTES outputs as a client receives them. A proxy wrote the slots, and is not trusted.
void cut_padding(InferReply& reply) {
  for (std::size_t i = 0; i < reply.outputs.size(); ++i) {
    TensorSpec& spec = reply.outputs[i];
    if (spec.type != DataType::bytes) continue;
    Result<Bytes> content = without_padding(spec, reply.payload[i]);
    if (!content.ok()) {
      reply.status = content.status();
      reply.outputs.clear();
      reply.payload.clear();
      return;
    }
    reply.payload[i] = std::move(content).value();
    spec.max_bytes = reply.payload[i].size();
  }
}

bool has_size_of(const TensorSpec& spec, const Bytes& tensor) {
  const Result<std::size_t> size = byte_size(spec);
  if (!size.ok()) return false;
  if (spec.type != DataType::bytes) return tensor.size() == size.value();
  // The other frontend has cut the padding.
  return tensor.size() <= size.value() &&
         elements_end(tensor.view(), element_count(spec)) == tensor.size();
}

}  // namespace

Status check_forwarded(const InferReply& reply, const std::vector<TensorSpec>& outputs) {
  if (!reply.status.ok()) {
    if (reply.outputs.empty() && reply.payload.empty()) return {};
    return {StatusCode::internal, "it returned outputs with a failure"};
  }
  constexpr std::string_view kFix =
      "; give all frontends of the cluster the same models file, then look for a faulty frontend";
  if (reply.outputs.size() != outputs.size() || reply.payload.size() != outputs.size()) {
    return {StatusCode::internal, fmt::format("it returned {} outputs, and {} are declared here{}",
                                              reply.outputs.size(), outputs.size(), kFix)};
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const TensorSpec& expected = outputs[i];
    const TensorSpec& given = reply.outputs[i];
    if (given.name == expected.name && given.type == expected.type &&
        given.shape == expected.shape && has_size_of(expected, reply.payload[i]))
      continue;
    return {StatusCode::internal,
            fmt::format("it returned output {} as {} with {} bytes, which is {} {} here{}",
                        given.name, to_string(given), reply.payload[i].size(), expected.name,
                        to_string(expected), kFix)};
  }
  return {};
}

void ResponseWriter::write_batch(BatchToSend&& sent, FrontendEffects& effects) {
  Batch& batch = sent.batch;
  batch.term = backends_.term_for(sent.backend);
  std::vector<AskForRows> asked;
  for (KeptRows& kept : sent.kept) {
    batch.entries.push_back(
        {entries_.member_of(kept.client), static_cast<std::uint32_t>(kept.tags.size())});
    const auto node = backends_.backends().find(sent.backend);
    if (node == backends_.backends().end()) continue;
    asked.push_back({kept.client, {batch.id, node->second.node, std::move(kept.tags)}});
  }
  effects.emplace_back(SendToBackend{sent.backend, std::move(batch)});
  for (AskForRows& one : asked) effects.emplace_back(std::move(one));
}

void ResponseWriter::write(DispatchOutput&& output, FrontendEffects& effects) {
  for (BatchToSend& one : output.batches) write_batch(std::move(one), effects);
  for (const ReturnedRequest& one : output.returned) {
    if (one.missing) entries_.note_missing(one.client, one.time);
    effects.emplace_back(ReplyElsewhere{one.client, one.tag, true});
  }
  for (Answer& one : output.answers) {
    figures_.answered(one);
    if (traces_.samples(one.request.id, one.request.trace.arrived))
      effects.emplace_back(RequestTraced{record_of(one)});
    if (one.request.client == kEngine) {
      call_answers_.push_back(std::move(one));
      continue;
    }
    InferReply reply;
    reply.tag = one.request.tag;
    reply.status = std::move(one.status);
    const RequestTrace& trace = one.request.trace;
    if (reply.status.ok()) {
      reply.outputs = queues_.models()[one.model].outputs;
      reply.queued = trace.dispatched - trace.arrived + trace.queued_at_backend;
      reply.executed = trace.executed;
    }
    reply.payload = std::move(one.outputs);
    reply.batch_size = trace.batch_size;
    cut_reply(one.request, reply);
    cut_padding(reply);
    effects.emplace_back(ReplyToClient{one.request.client, std::move(reply)});
  }
}

void ResponseWriter::write_forwarded(Request&& request, InferReply&& reply,
                                     FrontendEffects& effects) {
  if (request.client == kEngine) {
    request.trace.executed = reply.executed;
    request.trace.batch_size = reply.batch_size;
    call_answers_.push_back(
        {std::move(request), 0, std::move(reply.status), std::move(reply.payload)});
    return;
  }
  reply.tag = request.tag;
  cut_reply(request, reply);
  effects.emplace_back(ReplyToClient{request.client, std::move(reply)});
}

observe::RequestTraceRecord ResponseWriter::record_of(const Answer& answer) const {
  const Request& request = answer.request;
  observe::RequestTraceRecord record;
  record.id = request.id;
  record.model = queues_.models()[answer.model].name;
  record.client = request.client;
  record.tag = request.tag;
  record.trace = request.trace;
  record.due = request.due();
  record.outcome = answer.status.code();
  if (const GpuletRecord* const gpulet = backends_.find(request.trace.gpulet)) {
    record.node = gpulet->device.node;
    record.device = gpulet->device.device;
    record.share = gpulet->size;
  }
  return record;
}

}  // namespace gpulet::serve

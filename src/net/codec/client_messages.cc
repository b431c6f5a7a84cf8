// Between client and frontend.
#include <algorithm>
#include <utility>

#include "gpulet/net/codec/codec.h"
#include "net/codec/wire.h"

namespace gpulet::net {
namespace {

using serve::ClientMessage;
using serve::FrontendReply;

constexpr std::size_t kMaxProblems = 64;  // of the files behind a list of models

OutgoingFrame encode_one(const serve::InferRequest& request) {
  auto& message = reused<wire::InferRequest>();
  message.set_tag(request.tag);
  message.set_model(request.model);
  message.set_timeout_us(to_microseconds(request.timeout));
  message.set_priority(request.priority);
  to_wire(request.inputs, message.mutable_inputs());
  return make_frame(MessageType::infer_request, message, {request.payload});
}

OutgoingFrame encode_one(const serve::ModelsRequest& request) {
  wire::ModelsRequest message;
  message.set_after(request.after);
  return make_frame(MessageType::models_request, message, {});
}

OutgoingFrame encode_one(const serve::StatusRequest&) {
  return make_frame(MessageType::status_request, wire::StatusRequest(), {});
}

OutgoingFrame encode_one(const serve::InferReply& reply) {
  auto& message = reused<wire::InferReply>();
  message.set_tag(reply.tag);
  if (!reply.status.ok()) to_wire(reply.status, message.mutable_status());
  to_wire(reply.outputs, message.mutable_outputs());
  message.set_queued_us(to_microseconds(reply.queued));
  message.set_executed_us(to_microseconds(reply.executed));
  message.set_batch_size(reply.batch_size);
  message.set_retry_after_us(to_microseconds(reply.retry_after));
  return make_frame(MessageType::infer_reply, message, reply.payload);
}

void to_wire(const serve::ModelInfo& model, wire::ModelInfo* to) {
  to->set_name(model.name);
  net::to_wire(model.inputs, to->mutable_inputs());
  net::to_wire(model.outputs, to->mutable_outputs());
  to->set_slo_ms(model.slo_ms);
  to->set_max_batch(model.max_batch);
  to->set_state(static_cast<std::uint32_t>(model.state));
  to->set_version(model.version);
  to->set_next(model.next);
  to->set_reason(model.reason.substr(0, kMaxStatusMessageBytes));
  to->set_next_refused(model.next_refused);
  to->set_pending(model.pending);
}

OutgoingFrame encode_one(const serve::ModelsChange& change) {
  wire::ModelsChange message;
  message.set_kind(static_cast<std::uint32_t>(change.kind));
  message.set_name(change.name);
  message.set_file(change.file);
  return make_frame(MessageType::models_change, message, {change.text});
}

OutgoingFrame encode_one(const serve::Authenticate& authenticate) {
  wire::Authenticate message;
  message.set_token(authenticate.token);
  return make_frame(MessageType::authenticate, message, {});
}

OutgoingFrame encode_one(const serve::ModelsChanged& changed) {
  wire::ModelsChanged message;
  net::to_wire(changed.status, message.mutable_status());
  for (const serve::ModelInfo& model : changed.models) to_wire(model, message.add_models());
  return make_frame(MessageType::models_changed, message, {});
}

OutgoingFrame encode_one(const serve::ModelsReply& reply) {
  wire::ModelsReply message;
  for (const serve::ModelInfo& model : reply.models) to_wire(model, message.add_models());
  message.set_more(reply.more);
  for (std::size_t i = 0; i < std::min(reply.problems.size(), kMaxProblems); ++i)
    message.add_problems(reply.problems[i].substr(0, kMaxStatusMessageBytes));
  return make_frame(MessageType::models_reply, message, {});
}

OutgoingFrame encode_one(const serve::StatusReply& reply) {
  wire::StatusReply message;
  message.set_json(reply.json);
  if (!reply.status.ok()) net::to_wire(reply.status, message.mutable_status());
  return make_frame(MessageType::status_reply, message, {});
}

ClientMessage read_infer_request(const wire::InferRequest& message, FieldReader& fields,
                                 Bytes payload) {
  serve::InferRequest request;
  request.tag = message.tag();
  request.model = fields.name(message.model(), "model");
  request.timeout = fields.duration(message.timeout_us(), "timeout_us");
  request.inputs = fields.unchecked_tensors(message.inputs(), "inputs");
  request.payload = std::move(payload);
  request.priority = message.priority();
  return request;
}

// The payload is the outputs one after another: each is a view into it.
std::vector<Bytes> split(const Bytes& payload, const std::vector<TensorSpec>& outputs,
                         FieldReader& fields) {
  std::vector<Bytes> pieces;
  const Result<std::size_t> total = byte_size(outputs);
  if (!total.ok() || total.value() != payload.size()) {
    fields.fail("payload",
                std::to_string(payload.size()) + " bytes do not hold the outputs that it declares");
    return pieces;
  }
  pieces.reserve(outputs.size());
  std::size_t offset = 0;
  for (const TensorSpec& output : outputs) {
    const std::size_t bytes = byte_size(output).value();
    pieces.push_back(payload.slice(offset, bytes));
    offset += bytes;
  }
  return pieces;
}

FrontendReply read_infer_reply(const wire::InferReply& message, FieldReader& fields,
                               const Bytes& payload) {
  serve::InferReply reply;
  reply.tag = message.tag();
  reply.status = fields.status(message.status());
  reply.outputs = fields.tensors(message.outputs(), "outputs");
  reply.queued = fields.duration(message.queued_us(), "queued_us");
  reply.executed = fields.duration(message.executed_us(), "executed_us");
  reply.batch_size = fields.batch(message.batch_size(), "batch_size", 0);
  reply.retry_after = fields.duration(message.retry_after_us(), "retry_after_us");
  if (fields.ok()) reply.payload = split(payload, reply.outputs, fields);
  return reply;
}

ClientMessage read_models_change(const wire::ModelsChange& message, FieldReader& fields,
                                 Bytes text) {
  using Kind = serve::ModelsChange::Kind;
  const auto kind = message.kind();
  if (kind != static_cast<std::uint32_t>(Kind::load) &&
      kind != static_cast<std::uint32_t>(Kind::unload)) {
    fields.fail("kind", "no change of models is of kind " + std::to_string(kind));
    return serve::ModelsChange{};
  }
  return serve::ModelsChange{static_cast<Kind>(kind), fields.name(message.name(), "name"),
                             fields.text(message.file(), "file", kMaxPathBytes), std::move(text)};
}

std::vector<serve::ModelInfo> read_models(
    const google::protobuf::RepeatedPtrField<wire::ModelInfo>& infos, FieldReader& fields) {
  std::vector<serve::ModelInfo> models;
  if (!fields.count(static_cast<std::size_t>(infos.size()), kMaxModelsListed, "models"))
    return models;
  for (const wire::ModelInfo& info : infos) {
    serve::ModelInfo& model = models.emplace_back();
    model.name = fields.name(info.name(), "models.name");
    model.inputs = fields.tensors(info.inputs(), "models.inputs");
    model.outputs = fields.tensors(info.outputs(), "models.outputs");
    model.slo_ms = fields.amount(info.slo_ms(), "models.slo_ms");
    model.max_batch = fields.batch(info.max_batch(), "models.max_batch", 0);
    constexpr auto kFirst = static_cast<std::uint32_t>(serve::ModelState::loading);
    constexpr auto kLast = static_cast<std::uint32_t>(serve::ModelState::leaving);
    if (info.state() < kFirst || info.state() > kLast) {
      fields.fail("models.state", "no model is in state " + std::to_string(info.state()));
    } else {
      model.state = static_cast<serve::ModelState>(info.state());
    }
    model.version = fields.text(info.version(), "models.version", kMaxNameBytes);
    model.next = fields.text(info.next(), "models.next", kMaxNameBytes);
    model.reason = fields.text(info.reason(), "models.reason", kMaxStatusMessageBytes);
    model.next_refused = info.next_refused();
    model.pending = info.pending();
  }
  return models;
}

std::vector<std::string> read_problems(const google::protobuf::RepeatedPtrField<std::string>& texts,
                                       FieldReader& fields) {
  std::vector<std::string> problems;
  if (!fields.count(static_cast<std::size_t>(texts.size()), kMaxProblems, "problems"))
    return problems;
  for (const std::string& text : texts)
    problems.push_back(fields.text(text, "problems", kMaxStatusMessageBytes));
  return problems;
}

}  // namespace

OutgoingFrame encode(const ClientMessage& message) {
  return std::visit([](const auto& one) { return encode_one(one); }, message);
}

OutgoingFrame encode(const FrontendReply& message) {
  return std::visit([](const auto& one) { return encode_one(one); }, message);
}

Result<ClientMessage> decode_client_message(const FrameHeader& header,
                                            std::span<const std::byte> message, Bytes payload) {
  switch (header.type) {
    case MessageType::infer_request:
      return decode_often<ClientMessage, wire::InferRequest>(
          header.type, message, [&](const wire::InferRequest& request, FieldReader& fields) {
            return read_infer_request(request, fields, std::move(payload));
          });
    case MessageType::models_request:
      return decode_as<ClientMessage, wire::ModelsRequest>(
          header.type, message,
          [&](const wire::ModelsRequest& request, FieldReader& fields) -> ClientMessage {
            fields.no_payload(payload);
            return serve::ModelsRequest{fields.name(request.after(), "after")};
          });
    case MessageType::models_change:
      return decode_as<ClientMessage, wire::ModelsChange>(
          header.type, message, [&](const wire::ModelsChange& change, FieldReader& fields) {
            return read_models_change(change, fields, std::move(payload));
          });
    case MessageType::status_request:
      return decode_as<ClientMessage, wire::StatusRequest>(
          header.type, message,
          [&](const wire::StatusRequest&, FieldReader& fields) -> ClientMessage {
            fields.no_payload(payload);
            return serve::StatusRequest{};
          });
    case MessageType::authenticate:
      return decode_as<ClientMessage, wire::Authenticate>(
          header.type, message,
          [&](const wire::Authenticate& one, FieldReader& fields) -> ClientMessage {
            fields.no_payload(payload);
            return serve::Authenticate{fields.text(one.token(), "token", kMaxTokenBytes)};
          });
    default:
      return not_expected(header.type, "a client");
  }
}

Result<FrontendReply> decode_frontend_reply(const FrameHeader& header,
                                            std::span<const std::byte> message, Bytes payload) {
  switch (header.type) {
    case MessageType::infer_reply:
      return decode_often<FrontendReply, wire::InferReply>(
          header.type, message, [&](const wire::InferReply& reply, FieldReader& fields) {
            return read_infer_reply(reply, fields, payload);
          });
    case MessageType::models_reply:
      return decode_as<FrontendReply, wire::ModelsReply>(
          header.type, message,
          [&](const wire::ModelsReply& reply, FieldReader& fields) -> FrontendReply {
            fields.no_payload(payload);
            return serve::ModelsReply{read_models(reply.models(), fields), reply.more(),
                                      read_problems(reply.problems(), fields)};
          });
    case MessageType::models_changed:
      return decode_as<FrontendReply, wire::ModelsChanged>(
          header.type, message,
          [&](const wire::ModelsChanged& changed, FieldReader& fields) -> FrontendReply {
            fields.no_payload(payload);
            return serve::ModelsChanged{fields.status(changed.status()),
                                        read_models(changed.models(), fields)};
          });
    case MessageType::status_reply:
      return decode_as<FrontendReply, wire::StatusReply>(
          header.type, message,
          [&](const wire::StatusReply& reply, FieldReader& fields) -> FrontendReply {
            fields.no_payload(payload);
            return serve::StatusReply{reply.json(), fields.status(reply.status())};
          });
    default:
      return not_expected(header.type, "a frontend");
  }
}

}  // namespace gpulet::net

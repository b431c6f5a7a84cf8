#include "gpulet/protocol/codec.h"

#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>

#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "gpulet/protocol/proxy_messages.h"
#include "protocol/field_lists.h"

namespace gpulet::protocol {
namespace {

// Messages of the hot path reuse their memory. Larger ones do not, because they would keep it.
constexpr std::size_t kReusedMessageBytes = 4096;

// ---- payloads: none unless there is an overload

template <typename Value>
std::vector<Bytes> payload_of(const Value&) {
  return {};
}
std::vector<Bytes> payload_of(const InferRequest& v) { return {v.payload}; }
std::vector<Bytes> payload_of(const InferReply& v) { return v.payload; }
std::vector<Bytes> payload_of(const Forward& v) { return {v.request.payload}; }
std::vector<Bytes> payload_of(const ForwardReply& v) { return v.reply.payload; }
std::vector<Bytes> payload_of(const ModelsChange& v) { return {v.text}; }
std::vector<Bytes> payload_of(const ChangeModels& v) { return {v.change.text}; }
std::vector<Bytes> payload_of(const CatalogueState& v) { return {v.text}; }
std::vector<Bytes> payload_of(const BatchResult& v) { return {v.outputs}; }
std::vector<Bytes> payload_of(const Batch& v) { return v.inputs; }
std::vector<Bytes> payload_of(const Rows& v) { return v.inputs; }
std::vector<Bytes> payload_of(const ModelPiece& v) { return {v.data}; }

template <typename Value>
void take_payload(Value&, const Bytes& payload, Checks& checks) {
  if (!payload.empty())
    checks.fail("payload", fmt::format("must be empty; was {} bytes", payload.size()));
}
void take_payload(InferRequest& v, Bytes payload, Checks&) { v.payload = std::move(payload); }
void take_payload(Forward& v, Bytes payload, Checks&) { v.request.payload = std::move(payload); }
void take_payload(ModelsChange& v, Bytes payload, Checks&) { v.text = std::move(payload); }
void take_payload(ChangeModels& v, Bytes payload, Checks&) { v.change.text = std::move(payload); }
void take_payload(CatalogueState& v, Bytes payload, Checks&) { v.text = std::move(payload); }
void take_payload(BatchResult& v, Bytes payload, Checks&) { v.outputs = std::move(payload); }
void take_payload(Rows& v, Bytes payload, Checks&) { v.inputs.assign(1, std::move(payload)); }

void take_payload(Batch& v, Bytes payload, Checks& checks) {
  if (!v.shared.empty() && !payload.empty())
    checks.fail("payload", "must be empty, because the message names shared memory");
  v.inputs.assign(1, std::move(payload));
}

void take_payload(ModelPiece& v, Bytes payload, Checks& checks) {
  v.data = std::move(payload);
  if (v.offset > v.total_bytes || v.data.size() > v.total_bytes - v.offset) {
    checks.fail("payload", fmt::format("{} bytes at offset {} exceed the file's {}", v.data.size(),
                                       v.offset, v.total_bytes));
  }
}

// The payload is the outputs, concatenated: each becomes a view into it.
void take_payload(InferReply& v, const Bytes& payload, Checks& checks) {
  if (!checks.ok()) return;
  const Result<std::size_t> total = byte_size(v.outputs);
  if (!total.ok() || total.value() != payload.size()) {
    return checks.fail("payload",
                       fmt::format("{} bytes do not fit the declared outputs", payload.size()));
  }
  v.payload.reserve(v.outputs.size());
  std::size_t offset = 0;
  for (const TensorSpec& output : v.outputs) {
    const std::size_t bytes = byte_size(output).value();
    v.payload.push_back(payload.slice(offset, bytes));
    offset += bytes;
  }
}

void take_payload(ForwardReply& v, const Bytes& payload, Checks& checks) {
  take_payload(v.reply, payload, checks);
}

// ---- messages

// The protobuf message and the frame type of a value. `kOften`: the message is of the hot path.
template <typename Value>
struct Wired;
#define GPULET_WIRED(value, type, often)                    \
  template <>                                               \
  struct Wired<value> {                                     \
    using Wire = wire::value;                               \
    static constexpr MessageType kType = MessageType::type; \
    static constexpr bool kOften = often;                   \
  }
GPULET_WIRED(InferRequest, infer_request, true);
GPULET_WIRED(InferReply, infer_reply, true);
GPULET_WIRED(ModelsRequest, models_request, false);
GPULET_WIRED(ModelsReply, models_reply, false);
GPULET_WIRED(ModelsChange, models_change, false);
GPULET_WIRED(ModelsChanged, models_changed, false);
GPULET_WIRED(StatusRequest, status_request, false);
GPULET_WIRED(StatusReply, status_reply, false);
GPULET_WIRED(Authenticate, authenticate, false);
GPULET_WIRED(Hello, hello, false);
GPULET_WIRED(GpuletReport, gpulet_report, false);
GPULET_WIRED(BatchResult, batch_result, true);
GPULET_WIRED(ModelPieceRequest, model_piece_request, false);
GPULET_WIRED(Heartbeat, heartbeat, false);
GPULET_WIRED(Draining, draining, false);
GPULET_WIRED(DeviceReport, device_report, false);
GPULET_WIRED(BackendState, backend_state, false);
GPULET_WIRED(Superseded, superseded, false);
GPULET_WIRED(Welcome, welcome, false);
GPULET_WIRED(TakeLeadership, take_leadership, false);
GPULET_WIRED(CreateGpulet, create_gpulet, false);
GPULET_WIRED(SetOwner, set_owner, false);
GPULET_WIRED(RetireGpulet, retire_gpulet, false);
GPULET_WIRED(Batch, batch, true);
GPULET_WIRED(Rows, rows, true);
GPULET_WIRED(ModelPiece, model_piece, false);
GPULET_WIRED(AssignGpulet, assign_gpulet, false);
GPULET_WIRED(SetCores, set_cores, false);
GPULET_WIRED(Refused, refused, false);
GPULET_WIRED(PeerHello, peer_hello, false);
GPULET_WIRED(PeerWelcome, peer_welcome, false);
GPULET_WIRED(Forward, forward, true);
GPULET_WIRED(ForwardReply, forward_reply, true);
GPULET_WIRED(RowsWanted, rows_wanted, true);
GPULET_WIRED(CancelForward, cancel_forward, false);
GPULET_WIRED(ServedModels, served_models, false);
GPULET_WIRED(ChangeModels, change_models, false);
GPULET_WIRED(ChangeResult, change_result, false);
GPULET_WIRED(CatalogueState, catalogue_state, false);
GPULET_WIRED(CatalogueAdopted, catalogue_adopted, false);
GPULET_WIRED(SetRoutes, set_routes, false);
GPULET_WIRED(OwnerReport, owner_report, false);
GPULET_WIRED(StatisticsRequest, statistics_request, false);
GPULET_WIRED(StatisticsReply, statistics_reply, false);
GPULET_WIRED(LoadModels, load_models, false);
GPULET_WIRED(RunBatch, run_batch, true);
GPULET_WIRED(StopProxy, stop_proxy, false);
GPULET_WIRED(ProxyReady, proxy_ready, false);
GPULET_WIRED(BatchRan, batch_ran, true);
GPULET_WIRED(ProxyIdle, proxy_idle, false);

template <typename Wire>
Wire& reused() {
  thread_local Wire wire;
  wire.Clear();
  return wire;
}

std::uint32_t checked_length(std::size_t bytes, std::string_view what) {
  if (bytes > std::numeric_limits<std::uint32_t>::max()) {
    throw std::length_error(
        fmt::format("a frame's {} of {} bytes does not fit its length field", what, bytes));
  }
  return static_cast<std::uint32_t>(bytes);
}

OutgoingFrame make_frame(MessageType type, const google::protobuf::MessageLite& message,
                         std::vector<Bytes> payload) {
  std::size_t payload_bytes = 0;
  for (const Bytes& piece : payload) payload_bytes += piece.size();
  const std::size_t message_bytes = message.ByteSizeLong();
  const std::array<std::byte, kFrameHeaderBytes> header = encode_frame_header(
      {type, checked_length(message_bytes, "message"), checked_length(payload_bytes, "payload")});

  OutgoingFrame frame;
  frame.head.resize(kFrameHeaderBytes + message_bytes);
  std::memcpy(frame.head.data(), header.data(), header.size());
  message.SerializeWithCachedSizesToArray(
      reinterpret_cast<std::uint8_t*>(frame.head.data() + kFrameHeaderBytes));
  frame.payload = std::move(payload);
  return frame;
}

template <typename Value>
OutgoingFrame encode_into(typename Wired<Value>::Wire& wire, const Value& value) {
  Writer<typename Wired<Value>::Wire> writer(wire);
  fields(writer, value);
  return make_frame(Wired<Value>::kType, wire, payload_of(value));
}

template <typename Variant>
OutgoingFrame encode_variant(const Variant& message) {
  return std::visit(
      [](const auto& value) {
        using Wire = typename Wired<std::remove_cvref_t<decltype(value)>>::Wire;
        if constexpr (Wired<std::remove_cvref_t<decltype(value)>>::kOften) {
          return encode_into(reused<Wire>(), value);
        } else {
          Wire wire;
          return encode_into(wire, value);
        }
      },
      message);
}

template <typename Variant, typename Value>
Result<Variant> decode_from(typename Wired<Value>::Wire& wire, std::span<const std::byte> bytes,
                            Bytes payload) {
  constexpr MessageType kType = Wired<Value>::kType;
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()) ||
      !wire.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return Status(StatusCode::malformed,
                  fmt::format("{}: {} bytes are not this message of proto/gpulet.proto",
                              to_string(kType), bytes.size()));
  }
  Reader<typename Wired<Value>::Wire> reader(wire, kType);
  Value value{};
  fields(reader, value);
  take_payload(value, std::move(payload), reader);
  if (!reader.ok()) return reader.error();
  return Variant(std::move(value));
}

template <typename Variant, typename Value>
Result<Variant> decode_one(std::span<const std::byte> bytes, Bytes payload) {
  using Wire = typename Wired<Value>::Wire;
  if (Wired<Value>::kOften && bytes.size() <= kReusedMessageBytes)
    return decode_from<Variant, Value>(reused<Wire>(), bytes, std::move(payload));
  Wire wire;
  return decode_from<Variant, Value>(wire, bytes, std::move(payload));
}

// The sender of messages of the type.
template <typename Message>
std::string_view sender_of() {
  if (std::is_same_v<Message, ClientMessage>) return "a client";
  if (std::is_same_v<Message, ProxyMessage>) return "a proxy";
  const bool frontend = std::is_same_v<Message, FrontendReply> ||
                        std::is_same_v<Message, BackendCommand> ||
                        std::is_same_v<Message, PeerRequest> || std::is_same_v<Message, PeerReply>;
  return frontend ? "a frontend" : "a backend";
}

template <typename... Values>
Result<std::variant<Values...>> decode_variant(const std::variant<Values...>* /*type*/,
                                               const FrameHeader& header,
                                               std::span<const std::byte> message, Bytes payload) {
  using Variant = std::variant<Values...>;
  std::optional<Result<Variant>> result;
  const auto attempt = [&]<typename Value>(const Value*) {
    if (Wired<Value>::kType != header.type) return false;
    result.emplace(decode_one<Variant, Value>(message, std::move(payload)));
    return true;
  };
  if ((attempt(static_cast<const Values*>(nullptr)) || ...)) return *std::move(result);
  return Status(StatusCode::malformed, fmt::format("a {} message is not sent by {}",
                                                   to_string(header.type), sender_of<Variant>()));
}

}  // namespace

OutgoingFrame encode(const ClientMessage& message) { return encode_variant(message); }
OutgoingFrame encode(const FrontendReply& message) { return encode_variant(message); }
OutgoingFrame encode(const BackendMessage& message) { return encode_variant(message); }
OutgoingFrame encode(const BackendCommand& message) { return encode_variant(message); }
OutgoingFrame encode(const PeerRequest& message) { return encode_variant(message); }
OutgoingFrame encode(const PeerReply& message) { return encode_variant(message); }
OutgoingFrame encode(const ProxyCommand& message) { return encode_variant(message); }
OutgoingFrame encode(const ProxyMessage& message) { return encode_variant(message); }

template <typename Message>
Result<Message> decode(const FrameHeader& header, std::span<const std::byte> message,
                       Bytes payload) {
  return decode_variant(static_cast<const Message*>(nullptr), header, message, std::move(payload));
}

template <typename Message>
Status add_payload(Message& message, Bytes payload) {
  return std::visit(
      [&payload](auto& value) -> Status {
        Checks checks(Wired<std::remove_cvref_t<decltype(value)>>::kType);
        take_payload(value, std::move(payload), checks);
        return checks.error();
      },
      message);
}

template Status add_payload(ClientMessage&, Bytes);
template Status add_payload(BackendMessage&, Bytes);
template Status add_payload(BackendCommand&, Bytes);
template Status add_payload(PeerRequest&, Bytes);
template Result<ClientMessage> decode(const FrameHeader&, std::span<const std::byte>, Bytes);
template Result<FrontendReply> decode(const FrameHeader&, std::span<const std::byte>, Bytes);
template Result<BackendMessage> decode(const FrameHeader&, std::span<const std::byte>, Bytes);
template Result<BackendCommand> decode(const FrameHeader&, std::span<const std::byte>, Bytes);
template Result<PeerRequest> decode(const FrameHeader&, std::span<const std::byte>, Bytes);
template Result<PeerReply> decode(const FrameHeader&, std::span<const std::byte>, Bytes);
template Result<ProxyCommand> decode(const FrameHeader&, std::span<const std::byte>, Bytes);
template Result<ProxyMessage> decode(const FrameHeader&, std::span<const std::byte>, Bytes);

void silence_protobuf() { google::protobuf::SetLogHandler(nullptr); }

}  // namespace gpulet::protocol

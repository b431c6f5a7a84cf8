// Between backend and frontend.
#include <algorithm>
#include <utility>

#include "gpulet/net/codec/codec.h"
#include "net/codec/wire.h"

namespace gpulet::net {
namespace {

constexpr std::uint8_t kLastByte = 255;

using serve::BackendCommand;
using serve::BackendMessage;

void to_wire(const serve::GpuletReport& report, wire::GpuletReport* to) {
  to->set_id(report.id.value);
  to->set_device(report.device);
  to->set_size(static_cast<std::uint32_t>(report.size.percent));
  for (const schedule::LoadedModel& model : report.models) {
    wire::LoadedModel* const loaded = to->add_models();
    loaded->set_name(model.name);
    loaded->set_max_batch(model.max_batch);
    loaded->set_version(model.version);
  }
  to->set_state(static_cast<std::uint32_t>(report.state));
  net::to_wire(report.status, to->mutable_status());
  net::to_wire(report.part, to->mutable_part());
  net::to_wire(report.found, to->mutable_found());
  if (report.instance) net::to_wire(*report.instance, to->mutable_instance());
  to->set_cause(static_cast<std::uint32_t>(report.cause));
  to->set_failed_model(report.failed_model);
}

void to_wire(const serve::DeviceOffer& offer, wire::Device* to) {
  const schedule::Device& device = offer.device;
  to->set_index(device.key.device);
  to->set_type(device.type);
  to->set_partitioning(device.partitioning);
  for (const Share size : device.sizes) to->add_sizes(static_cast<std::uint32_t>(size.percent));
  to->set_max_partitions(device.max_partitions);
  to->set_memory_mb(device.memory_mb);
  if (device.mig) {
    to->set_mig_geometry(std::string(device.mig->name()));
    to->set_without_3g_beside_4g(!device.mig->allows_3g_beside_4g());
  }
  to->set_processes_per_instance(device.processes_per_instance);
  to->set_cores(device.cores);
  to->set_mechanism(offer.mechanism);
  to->set_step_percent(offer.traits.step_percent);
  to->set_change(static_cast<std::uint32_t>(offer.traits.change));
  to->set_fault_reach(static_cast<std::uint32_t>(offer.traits.fault));
  to->set_limits_memory(offer.traits.limits_memory);
  if (!offer.fault.ok()) net::to_wire(offer.fault, to->mutable_fault());
}

OutgoingFrame encode_one(const serve::Hello& hello) {
  wire::Hello message;
  message.set_node(hello.node);
  for (const serve::DeviceOffer& offer : hello.devices) to_wire(offer, message.add_devices());
  for (const serve::GpuletReport& report : hello.gpulets) to_wire(report, message.add_gpulets());
  return make_frame(MessageType::hello, message, {});
}

OutgoingFrame encode_one(const serve::GpuletReport& report) {
  wire::GpuletReport message;
  to_wire(report, &message);
  return make_frame(MessageType::gpulet_report, message, {});
}

OutgoingFrame encode_one(const BatchResult& result) {
  auto& message = reused<wire::BatchResult>();
  message.set_id(result.id.value);
  if (!result.status.ok()) net::to_wire(result.status, message.mutable_status());
  message.set_queued_us(to_microseconds(result.queued));
  message.set_executed_us(to_microseconds(result.executed));
  message.set_cause(static_cast<std::uint32_t>(result.cause));
  message.set_signal(result.end.signal);
  message.set_exit_status(result.end.exit_status);
  message.set_received_us(to_microseconds(result.received));
  return make_frame(MessageType::batch_result, message, {result.outputs});
}

OutgoingFrame encode_one(const serve::ModelWanted& wanted) {
  wire::ModelWanted message;
  message.set_sha256(wanted.sha256);
  message.set_offset(wanted.offset);
  return make_frame(MessageType::model_wanted, message, {});
}

OutgoingFrame encode_one(const serve::Heartbeat& beat) {
  wire::Heartbeat message;
  for (const serve::DevicePower& power : beat.power) {
    wire::DevicePower& to = *message.add_power();
    to.set_device(power.device);
    if (power.usage_w) to.set_usage_w(*power.usage_w);
    if (power.limit_w) to.set_limit_w(*power.limit_w);
    if (power.energy_j) to.set_energy_j(*power.energy_j);
  }
  return make_frame(MessageType::heartbeat, message, {});
}

OutgoingFrame encode_one(const serve::DeviceReport& report) {
  wire::DeviceReport message;
  message.set_device(report.device);
  net::to_wire(report.fault, message.mutable_fault());
  return make_frame(MessageType::device_report, message, {});
}
OutgoingFrame encode_one(const serve::Leaving&) {
  return make_frame(MessageType::leaving, wire::Leaving(), {});
}

OutgoingFrame encode_one(const serve::Welcome& welcome) {
  wire::Welcome message;
  message.set_heartbeat_us(to_microseconds(welcome.heartbeat_every));
  return make_frame(MessageType::welcome, message, {});
}

OutgoingFrame encode_one(const serve::CreateGpulet& create) {
  wire::CreateGpulet message;
  message.set_id(create.id.value);
  message.set_device(create.device);
  message.set_size(static_cast<std::uint32_t>(create.size.percent));
  for (const serve::ModelToServe& model : create.models) {
    wire::ModelToServe* const to = message.add_models();
    to->set_name(model.name);
    to->set_sha256(model.sha256);
    net::to_wire(model.inputs, to->mutable_inputs());
    net::to_wire(model.outputs, to->mutable_outputs());
    to->set_max_batch(model.max_batch);
    net::to_wire(model.numerics, to->mutable_numerics());
  }
  net::to_wire(create.part, message.mutable_part());
  message.set_memory_mb(create.memory_mb);
  if (create.instance) net::to_wire(*create.instance, message.mutable_instance());
  return make_frame(MessageType::create_gpulet, message, {});
}

OutgoingFrame encode_one(const serve::AssignGpulet& assign) {
  wire::AssignGpulet message;
  message.set_id(assign.id.value);
  net::to_wire(assign.part, message.mutable_part());
  return make_frame(MessageType::assign_gpulet, message, {});
}

OutgoingFrame encode_one(const serve::SetCores& set) {
  wire::SetCores message;
  message.set_id(set.id.value);
  message.set_cores(set.cores);
  return make_frame(MessageType::set_cores, message, {});
}

OutgoingFrame encode_one(const serve::RetireGpulet& retire) {
  wire::RetireGpulet message;
  message.set_id(retire.id.value);
  return make_frame(MessageType::retire_gpulet, message, {});
}

OutgoingFrame encode_one(const serve::Refused& refused) {
  wire::Refused message;
  net::to_wire(refused.why, message.mutable_why());
  return make_frame(MessageType::refused, message, {});
}

OutgoingFrame encode_one(const Batch& batch) {
  auto& message = reused<wire::Batch>();
  message.set_id(batch.id.value);
  message.set_gpulet(batch.gpulet.value);
  message.set_model(batch.model);
  message.set_count(batch.count);
  message.set_start_within_us(to_microseconds(batch.start_within));
  message.set_expected_us(to_microseconds(batch.expected_duration));
  return make_frame(MessageType::batch, message, batch.inputs);
}

OutgoingFrame encode_one(const serve::ModelPiece& piece) {
  wire::ModelPiece message;
  message.set_sha256(piece.sha256);
  message.set_offset(piece.offset);
  message.set_total_bytes(piece.total_bytes);
  message.set_changed(piece.changed);
  return make_frame(MessageType::model_piece, message, {piece.data});
}

serve::GpuletReport read_report(const wire::GpuletReport& message, FieldReader& fields) {
  serve::GpuletReport report;
  report.id = {message.id()};
  report.device = message.device();
  report.size = fields.share(message.size(),
                             0);  // a report on a gpulet that the backend does not know has none
  if (fields.count(static_cast<std::size_t>(message.models_size()), kMaxModels, "models")) {
    for (const wire::LoadedModel& model : message.models()) {
      report.models.push_back({fields.name(model.name(), "models.name"),
                               fields.batch(model.max_batch(), "models.max_batch", 0),
                               fields.text(model.version(), "models.version", kMaxNameBytes)});
    }
  }
  constexpr auto kFirst = static_cast<std::uint32_t>(serve::GpuletState::preparing);
  constexpr auto kLast = static_cast<std::uint32_t>(serve::GpuletState::gone);
  if (message.state() < kFirst || message.state() > kLast) {
    fields.fail("state", "no gpulet is in state " + std::to_string(message.state()));
  } else {
    report.state = static_cast<serve::GpuletState>(message.state());
  }
  report.status = fields.status(message.status());
  report.part = read_part(message.part(), fields);
  report.found = FieldReader::found(message.found());
  report.instance = fields.instance(message.instance());
  report.cause = fields.one_of(message.cause(), kLastFailureCause, "cause");
  report.failed_model = fields.text(message.failed_model(), "failed_model", kMaxNameBytes);
  return report;
}

partition::Traits read_traits(const wire::Device& message, FieldReader& fields) {
  partition::Traits traits;
  const double step = fields.amount(message.step_percent(), "devices.step_percent");
  if (step > 0) traits.step_percent = step;  // 0: a peer that does not tell
  traits.change =
      fields.one_of(message.change(), partition::ChangeOfSize::in_place, "devices.change");
  traits.fault =
      fields.one_of(message.fault_reach(), partition::FaultReach::device, "devices.fault_reach");
  traits.limits_memory = message.limits_memory();
  return traits;
}

serve::DeviceOffer read_device(const wire::Device& message, const std::string& node,
                               FieldReader& fields) {
  serve::DeviceOffer offer;
  offer.device.key = {node, message.index()};
  offer.device.type = fields.name(message.type(), "devices.type");
  offer.device.partitioning = fields.name(message.partitioning(), "devices.partitioning");
  constexpr std::size_t kPercents = 100;
  if (fields.count(static_cast<std::size_t>(message.sizes_size()), kPercents, "devices.sizes")) {
    for (const std::uint32_t size : message.sizes())
      offer.device.sizes.push_back(fields.share(size, 1));
  }
  offer.device.max_partitions = message.max_partitions();
  offer.device.memory_mb = fields.amount(message.memory_mb(), "devices.memory_mb");
  offer.device.mig = fields.geometry(message);
  const std::uint32_t processes = message.processes_per_instance();  // 0: a peer that has no MIG
  if (fields.count(processes, kMaxProcessesPerInstance, "devices.processes_per_instance"))
    offer.device.processes_per_instance = std::max(processes, 1U);
  offer.device.cores = fields.amount(message.cores(), "devices.cores");
  offer.mechanism = fields.name(message.mechanism(), "devices.mechanism");
  offer.traits = read_traits(message, fields);
  offer.fault = fields.status(message.fault());
  return offer;
}

BackendMessage read_heartbeat(const wire::Heartbeat& message, FieldReader& fields) {
  serve::Heartbeat beat;
  if (!fields.count(static_cast<std::size_t>(message.power_size()), kMaxDevices, "power"))
    return beat;
  for (const wire::DevicePower& power : message.power()) {
    serve::DevicePower& to = beat.power.emplace_back();
    to.device = power.device();
    if (power.has_usage_w()) to.usage_w = fields.amount(power.usage_w(), "power.usage_w");
    if (power.has_limit_w()) to.limit_w = fields.amount(power.limit_w(), "power.limit_w");
    if (power.has_energy_j()) to.energy_j = fields.amount(power.energy_j(), "power.energy_j");
  }
  return beat;
}

BackendMessage read_hello(const wire::Hello& message, FieldReader& fields) {
  serve::Hello hello;
  hello.node = fields.name(message.node(), "node");
  if (fields.count(static_cast<std::size_t>(message.devices_size()), kMaxDevices, "devices")) {
    for (const wire::Device& device : message.devices()) {
      hello.devices.push_back(read_device(device, hello.node, fields));
    }
  }
  if (fields.count(static_cast<std::size_t>(message.gpulets_size()), kMaxGpulets, "gpulets")) {
    for (const wire::GpuletReport& report : message.gpulets())
      hello.gpulets.push_back(read_report(report, fields));
  }
  return hello;
}

BackendMessage read_batch_result(const wire::BatchResult& message, FieldReader& fields,
                                 Bytes payload) {
  BatchResult result;
  result.id = {message.id()};
  result.status = fields.status(message.status());
  result.queued = fields.duration(message.queued_us(), "queued_us");
  result.executed = fields.duration(message.executed_us(), "executed_us");
  result.cause = fields.one_of(message.cause(), kLastFailureCause, "cause");
  result.end.signal = fields.one_of(message.signal(), kLastByte, "signal");
  result.end.exit_status = fields.one_of(message.exit_status(), kLastByte, "exit_status");
  result.received = fields.duration(message.received_us(), "received_us");
  result.outputs = std::move(payload);
  return result;
}

BackendCommand read_create(const wire::CreateGpulet& message, FieldReader& fields) {
  serve::CreateGpulet create;
  create.id = {message.id()};
  create.device = message.device();
  create.size = fields.share(message.size(), 1);
  create.part = read_part(message.part(), fields);
  create.memory_mb = fields.amount(message.memory_mb(), "memory_mb");
  create.instance = fields.instance(message.instance());
  if (!fields.count(static_cast<std::size_t>(message.models_size()), kMaxModels, "models"))
    return create;
  for (const wire::ModelToServe& model : message.models()) {
    create.models.push_back({fields.name(model.name(), "models.name"),
                             fields.sha256(model.sha256()),
                             fields.tensors(model.inputs(), "models.inputs"),
                             fields.tensors(model.outputs(), "models.outputs"),
                             fields.batch(model.max_batch(), "models.max_batch", 1),
                             fields.numerics(model.numerics())});
  }
  return create;
}

BackendCommand read_batch(const wire::Batch& message, FieldReader& fields, Bytes payload) {
  Batch batch;
  batch.id = {message.id()};
  batch.gpulet = {message.gpulet()};
  batch.model = fields.name(message.model(), "model");
  batch.count = fields.batch(message.count(), "count", 1);
  batch.start_within = fields.duration(message.start_within_us(), "start_within_us");
  batch.expected_duration = fields.duration(message.expected_us(), "expected_us");
  batch.inputs.push_back(std::move(payload));
  return batch;
}

BackendCommand read_piece(const wire::ModelPiece& message, FieldReader& fields, Bytes payload) {
  serve::ModelPiece piece{fields.sha256(message.sha256()), message.offset(), message.total_bytes(),
                          std::move(payload), message.changed()};
  if (piece.offset > piece.total_bytes || piece.data.size() > piece.total_bytes - piece.offset) {
    fields.fail("payload", std::to_string(piece.data.size()) + " bytes from " +
                               std::to_string(piece.offset) + " on do not lie within the file's " +
                               std::to_string(piece.total_bytes));
  }
  return piece;
}

// A message that has no payload.
template <typename Variant, typename Wire, typename Read>
Result<Variant> decode_alone(MessageType type, std::span<const std::byte> message,
                             const Bytes& payload, const Read& read) {
  return decode_as<Variant, Wire>(type, message,
                                  [&](const Wire& one, FieldReader& fields) -> Variant {
                                    fields.no_payload(payload);
                                    return read(one, fields);
                                  });
}

}  // namespace

OutgoingFrame encode(const BackendMessage& message) {
  return std::visit([](const auto& one) { return encode_one(one); }, message);
}

OutgoingFrame encode(const BackendCommand& message) {
  return std::visit([](const auto& one) { return encode_one(one); }, message);
}

Result<BackendMessage> decode_backend_message(const FrameHeader& header,
                                              std::span<const std::byte> message, Bytes payload) {
  switch (header.type) {
    case MessageType::hello:
      return decode_alone<BackendMessage, wire::Hello>(
          header.type, message, payload,
          [](const wire::Hello& hello, FieldReader& fields) { return read_hello(hello, fields); });
    case MessageType::gpulet_report:
      return decode_alone<BackendMessage, wire::GpuletReport>(
          header.type, message, payload, [](const wire::GpuletReport& report, FieldReader& fields) {
            return read_report(report, fields);
          });
    case MessageType::batch_result:
      return decode_often<BackendMessage, wire::BatchResult>(
          header.type, message, [&](const wire::BatchResult& result, FieldReader& fields) {
            return read_batch_result(result, fields, std::move(payload));
          });
    case MessageType::model_wanted:
      return decode_alone<BackendMessage, wire::ModelWanted>(
          header.type, message, payload, [](const wire::ModelWanted& wanted, FieldReader& fields) {
            return serve::ModelWanted{fields.sha256(wanted.sha256()), wanted.offset()};
          });
    case MessageType::heartbeat:
      return decode_alone<BackendMessage, wire::Heartbeat>(header.type, message, payload,
                                                           read_heartbeat);
    case MessageType::device_report:
      return decode_alone<BackendMessage, wire::DeviceReport>(
          header.type, message, payload, [](const wire::DeviceReport& report, FieldReader& fields) {
            return serve::DeviceReport{report.device(), fields.status(report.fault())};
          });
    case MessageType::leaving:
      return decode_alone<BackendMessage, wire::Leaving>(
          header.type, message, payload,
          [](const wire::Leaving&, FieldReader&) { return serve::Leaving{}; });
    default:
      return not_expected(header.type, "a backend");
  }
}

Result<BackendCommand> decode_backend_command(const FrameHeader& header,
                                              std::span<const std::byte> message, Bytes payload) {
  switch (header.type) {
    case MessageType::welcome:
      return decode_alone<BackendCommand, wire::Welcome>(
          header.type, message, payload, [](const wire::Welcome& welcome, FieldReader& fields) {
            return serve::Welcome{fields.duration(welcome.heartbeat_us(), "heartbeat_us")};
          });
    case MessageType::create_gpulet:
      return decode_alone<BackendCommand, wire::CreateGpulet>(
          header.type, message, payload, [](const wire::CreateGpulet& create, FieldReader& fields) {
            return read_create(create, fields);
          });
    case MessageType::assign_gpulet:
      return decode_alone<BackendCommand, wire::AssignGpulet>(
          header.type, message, payload, [](const wire::AssignGpulet& assign, FieldReader& fields) {
            return serve::AssignGpulet{{assign.id()}, read_part(assign.part(), fields)};
          });
    case MessageType::set_cores:
      return decode_alone<BackendCommand, wire::SetCores>(
          header.type, message, payload, [](const wire::SetCores& set, FieldReader& fields) {
            return serve::SetCores{{set.id()}, fields.amount(set.cores(), "cores")};
          });
    case MessageType::retire_gpulet:
      return decode_alone<BackendCommand, wire::RetireGpulet>(
          header.type, message, payload, [](const wire::RetireGpulet& retire, FieldReader&) {
            return serve::RetireGpulet{{retire.id()}};
          });
    case MessageType::batch:
      return decode_often<BackendCommand, wire::Batch>(
          header.type, message, [&](const wire::Batch& batch, FieldReader& fields) {
            return read_batch(batch, fields, std::move(payload));
          });
    case MessageType::model_piece:
      return decode_as<BackendCommand, wire::ModelPiece>(
          header.type, message, [&](const wire::ModelPiece& piece, FieldReader& fields) {
            return read_piece(piece, fields, std::move(payload));
          });
    case MessageType::heartbeat:
      return decode_alone<BackendCommand, wire::Heartbeat>(
          header.type, message, payload,
          [](const wire::Heartbeat&, FieldReader&) { return serve::Heartbeat{}; });
    case MessageType::refused:
      return decode_alone<BackendCommand, wire::Refused>(
          header.type, message, payload, [](const wire::Refused& refused, FieldReader& fields) {
            return serve::Refused{fields.status(refused.why())};
          });
    default:
      return not_expected(header.type, "a frontend");
  }
}

}  // namespace gpulet::net

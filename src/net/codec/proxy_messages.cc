// Between backend and proxy. Tensors are in shared memory: none of these frames has a payload.
#include <limits>
#include <utility>

#include "gpulet/net/codec/codec.h"
#include "net/codec/wire.h"

namespace gpulet::net {
namespace {

using serve::ProxyCommand;
using serve::ProxyMessage;

OutgoingFrame encode_one(const serve::LoadModels& load) {
  wire::LoadModels message;
  for (const serve::LoadModel& model : load.models) {
    wire::LoadModel* const to = message.add_models();
    to->set_name(model.name);
    to->set_file(model.file);
    to_wire(model.inputs, to->mutable_inputs());
    to_wire(model.outputs, to->mutable_outputs());
    to->set_max_batch(model.max_batch);
    to->set_form(model.form);
    to_wire(model.numerics, to->mutable_numerics());
  }
  for (const auto& [name, value] : load.environment) {
    wire::EnvironmentVariable* const to = message.add_environment();
    to->set_name(name);
    to->set_value(value);
  }
  message.set_memory_bytes(load.memory_bytes);
  return make_frame(MessageType::load_models, message, {});
}

OutgoingFrame encode_one(const serve::RunBatch& run) {
  auto& message = reused<wire::RunBatch>();
  message.set_id(run.id.value);
  message.set_model(run.model);
  message.set_count(run.count);
  message.set_input_offset(run.input_offset);
  message.set_input_bytes(run.input_bytes);
  message.set_output_offset(run.output_offset);
  message.set_output_capacity(run.output_capacity);
  message.set_start_within_us(to_microseconds(run.start_within));
  message.set_simulated_latency_us(to_microseconds(run.simulated_latency));
  return make_frame(MessageType::run_batch, message, {});
}

OutgoingFrame encode_one(const serve::StopProxy&) {
  return make_frame(MessageType::stop_proxy, wire::StopProxy(), {});
}

OutgoingFrame encode_one(const serve::ProxyIdle&) {
  return make_frame(MessageType::proxy_idle, wire::ProxyIdle(), {});
}

OutgoingFrame encode_one(const serve::ProxyReady& ready) {
  wire::ProxyReady message;
  to_wire(ready.status, message.mutable_status());
  message.set_memory_bytes(ready.memory_bytes);
  for (const std::uint32_t form : ready.forms) message.add_forms(form);
  to_wire(ready.found, message.mutable_found());
  message.set_device(static_cast<std::uint32_t>(ready.device));
  message.set_cause(static_cast<std::uint32_t>(ready.cause));
  message.set_failed_model(ready.failed_model);
  return make_frame(MessageType::proxy_ready, message, {});
}

OutgoingFrame encode_one(const serve::BatchRan& ran) {
  auto& message = reused<wire::BatchRan>();
  message.set_id(ran.id.value);
  if (!ran.status.ok()) to_wire(ran.status, message.mutable_status());
  message.set_output_bytes(ran.output_bytes);
  message.set_queued_us(to_microseconds(ran.queued));
  message.set_executed_us(to_microseconds(ran.executed));
  message.set_device(static_cast<std::uint32_t>(ran.device));
  message.set_cause(static_cast<std::uint32_t>(ran.cause));
  return make_frame(MessageType::batch_ran, message, {});
}

// What setenv takes.
void read_environment(const wire::LoadModels& message, FieldReader& fields,
                      std::map<std::string, std::string>& environment) {
  for (const wire::EnvironmentVariable& variable : message.environment()) {
    std::string name = fields.name(variable.name(), "environment.name");
    if (name.empty() || name.find('=') != std::string::npos ||
        name.find('\0') != std::string::npos) {
      fields.fail("environment.name", "it is not the name of a variable");
    }
    std::string value = fields.text(variable.value(), "environment.value", kMaxPathBytes);
    if (value.find('\0') != std::string::npos) {
      fields.fail("environment.value", "it holds a zero byte");
    }
    environment.insert_or_assign(std::move(name), std::move(value));
  }
}

ProxyCommand read_load(const wire::LoadModels& message, FieldReader& fields) {
  serve::LoadModels load;
  if (!fields.count(static_cast<std::size_t>(message.models_size()), kMaxModels, "models"))
    return load;
  for (const wire::LoadModel& model : message.models()) {
    load.models.push_back({fields.name(model.name(), "models.name"),
                           fields.text(model.file(), "models.file", kMaxPathBytes),
                           fields.tensors(model.inputs(), "models.inputs"),
                           fields.tensors(model.outputs(), "models.outputs"),
                           fields.batch(model.max_batch(), "models.max_batch", 1), model.form(),
                           fields.numerics(model.numerics())});
  }
  if (fields.count(static_cast<std::size_t>(message.environment_size()), kMaxVariables,
                   "environment")) {
    read_environment(message, fields, load.environment);
  }
  load.memory_bytes = message.memory_bytes();
  return load;
}

ProxyCommand read_run(const wire::RunBatch& message, FieldReader& fields) {
  serve::RunBatch run;
  run.id = {message.id()};
  run.model = fields.name(message.model(), "model");
  run.count = fields.batch(message.count(), "count", 1);
  run.input_offset = message.input_offset();
  run.input_bytes = message.input_bytes();
  run.output_offset = message.output_offset();
  run.output_capacity = message.output_capacity();
  run.start_within = fields.duration(message.start_within_us(), "start_within_us");
  run.simulated_latency = fields.duration(message.simulated_latency_us(), "simulated_latency_us");
  // The proxy compares ends with its memory: they must not wrap.
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  if (run.input_bytes > kMax - run.input_offset)
    fields.fail("input_bytes", "its end does not fit 64 bits");
  if (run.output_capacity > kMax - run.output_offset)
    fields.fail("output_capacity", "its end does not fit 64 bits");
  return run;
}

}  // namespace

OutgoingFrame encode(const ProxyCommand& message) {
  return std::visit([](const auto& one) { return encode_one(one); }, message);
}

OutgoingFrame encode(const ProxyMessage& message) {
  return std::visit([](const auto& one) { return encode_one(one); }, message);
}

Result<ProxyCommand> decode_proxy_command(const FrameHeader& header,
                                          std::span<const std::byte> message) {
  switch (header.type) {
    case MessageType::load_models:
      return decode_as<ProxyCommand, wire::LoadModels>(header.type, message, read_load);
    case MessageType::run_batch:
      return decode_often<ProxyCommand, wire::RunBatch>(header.type, message, read_run);
    case MessageType::stop_proxy:
      return decode_as<ProxyCommand, wire::StopProxy>(
          header.type, message,
          [](const wire::StopProxy&, FieldReader&) -> ProxyCommand { return serve::StopProxy{}; });
    default:
      return not_expected(header.type, "a backend");
  }
}

Result<ProxyMessage> decode_proxy_message(const FrameHeader& header,
                                          std::span<const std::byte> message) {
  switch (header.type) {
    case MessageType::proxy_idle:
      return decode_as<ProxyMessage, wire::ProxyIdle>(
          header.type, message,
          [](const wire::ProxyIdle&, FieldReader&) -> ProxyMessage { return serve::ProxyIdle{}; });
    case MessageType::proxy_ready:
      return decode_as<ProxyMessage, wire::ProxyReady>(
          header.type, message,
          [](const wire::ProxyReady& ready, FieldReader& fields) -> ProxyMessage {
            serve::ProxyReady read{fields.status(ready.status()), ready.memory_bytes()};
            read.found = FieldReader::found(ready.found());
            read.device = fields.one_of(ready.device(), partition::DeviceHealth::lost, "device");
            read.cause = fields.one_of(ready.cause(), kLastFailureCause, "cause");
            read.failed_model = fields.text(ready.failed_model(), "failed_model", kMaxNameBytes);
            if (fields.count(static_cast<std::size_t>(ready.forms_size()), kMaxModels, "forms")) {
              read.forms.assign(ready.forms().begin(), ready.forms().end());
            }
            return read;
          });
    case MessageType::batch_ran:
      return decode_often<ProxyMessage, wire::BatchRan>(
          header.type, message, [](const wire::BatchRan& ran, FieldReader& fields) -> ProxyMessage {
            return serve::BatchRan{
                {ran.id()},
                fields.status(ran.status()),
                ran.output_bytes(),
                fields.duration(ran.queued_us(), "queued_us"),
                fields.duration(ran.executed_us(), "executed_us"),
                fields.one_of(ran.device(), partition::DeviceHealth::lost, "device"),
                fields.one_of(ran.cause(), kLastFailureCause, "cause")};
          });
    default:
      return not_expected(header.type, "a proxy");
  }
}

}  // namespace gpulet::net

#include "gpulet/protocol/codec.h"

#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "protocol/fields.h"

namespace gpulet::protocol {
namespace {

constexpr std::size_t kMaxProblems = 64;  // of the files behind a list of models
constexpr std::size_t kMaxSizes = 100;    // of a device's shares, in percent
constexpr std::uint8_t kLastByte = 255;
// Messages of the hot path reuse their memory. Larger ones do not, because they would keep it.
constexpr std::size_t kReusedMessageBytes = 4096;

}  // namespace

// The fields of one message `v`, for a Writer or a Reader `c`. The lists are outside the unnamed
// namespace, because Writer and Reader find them by their arguments.
#define GPULET_FIELDS(value) \
  template <typename C>      \
  void fields([[maybe_unused]] C& c, [[maybe_unused]] typename C::template Value<value>& v)

// ---- shared parts

GPULET_FIELDS(Numerics) {
  c.one_of(GPULET_FIELD(precision), v.precision, Precision::full, Precision::bfloat16);
  c.plain(GPULET_FIELD(channels_last), v.channels_last);
  c.amount(GPULET_FIELD(largest_error), v.largest_error);
}

GPULET_FIELDS(partition::FoundShare) {
  c.plain(GPULET_FIELD(held), v.held);
  c.plain(GPULET_FIELD(sms), v.sms);
  c.plain(GPULET_FIELD(device_sms), v.device_sms);
}

GPULET_FIELDS(schedule::Assignment) {
  c.name(GPULET_FIELD(model), v.model);
  c.amount(GPULET_FIELD(rate), v.rate);
  c.batch(GPULET_FIELD(batch), v.batch, 1);
  c.amount(GPULET_FIELD(latency_ms), v.latency_ms);
  c.amount(GPULET_FIELD(slowdown), v.slowdown);
  c.amount(GPULET_FIELD(slo_ms), v.slo_ms);
}

GPULET_FIELDS(schedule::PolicyChoice) {
  c.share(GPULET_FIELD(size), v.size, 1);
  c.amount(GPULET_FIELD(duty_cycle_ms), v.duty_cycle_ms);
  c.list(GPULET_PART(assignments), v.assignments, kMaxModels);
}

GPULET_FIELDS(PlanPart) {
  c.amount(GPULET_FIELD(duty_cycle_ms), v.duty_cycle_ms);
  c.one_of(GPULET_FIELD(service), v.service, schedule::Service::rounds,
           schedule::Service::controlled);
  c.list(GPULET_PART(assignments), v.assignments, kMaxModels);
  c.maybe_part(GPULET_OPTIONAL_PART(policy_choice), v.policy_choice);
}

// ---- client and frontend

GPULET_FIELDS(InferRequest) {
  c.plain(GPULET_FIELD(tag), v.tag);
  c.name(GPULET_FIELD(model), v.model);
  c.duration(GPULET_FIELD(timeout_us), v.timeout);
  c.unchecked_tensors(GPULET_PART(inputs), v.inputs);
  c.plain(GPULET_FIELD(priority), v.priority);
}

GPULET_FIELDS(InferReply) {
  c.plain(GPULET_FIELD(tag), v.tag);
  c.failure(GPULET_PART(status), v.status);
  c.tensors(GPULET_PART(outputs), v.outputs);
  c.duration(GPULET_FIELD(queued_us), v.queued);
  c.duration(GPULET_FIELD(executed_us), v.executed);
  c.batch(GPULET_FIELD(batch_size), v.batch_size, 0);
  c.duration(GPULET_FIELD(retry_after_us), v.retry_after);
  c.plain(GPULET_FIELD(leaving), v.leaving);
}

GPULET_FIELDS(ModelsRequest) { c.name(GPULET_FIELD(after), v.after); }

GPULET_FIELDS(ModelInfo) {
  c.name(GPULET_FIELD(name), v.name);
  c.tensors(GPULET_PART(inputs), v.inputs);
  c.tensors(GPULET_PART(outputs), v.outputs);
  c.amount(GPULET_FIELD(slo_ms), v.slo_ms);
  c.batch(GPULET_FIELD(max_batch), v.max_batch, 0);
  c.one_of(GPULET_FIELD(state), v.state, ModelState::loading, ModelState::leaving);
  c.name(GPULET_FIELD(version), v.version);
  c.name(GPULET_FIELD(next), v.next);
  c.cut_text(GPULET_FIELD(reason), v.reason, kMaxStatusMessageBytes);
  c.plain(GPULET_FIELD(next_refused), v.next_refused);
  c.plain(GPULET_FIELD(pending), v.pending);
}

GPULET_FIELDS(ModelsReply) {
  c.list(GPULET_PART(models), v.models, kMaxModelsListed);
  c.plain(GPULET_FIELD(more), v.more);
  c.cut_texts(GPULET_PART(problems), v.problems, kMaxProblems, kMaxStatusMessageBytes);
}

GPULET_FIELDS(ModelsChange) {
  c.one_of(GPULET_FIELD(kind), v.kind, ModelsChange::Kind::load, ModelsChange::Kind::unload);
  c.name(GPULET_FIELD(name), v.name);
  c.text(GPULET_FIELD(file), v.file, kMaxPathBytes);
  c.text(GPULET_FIELD(configuration), v.configuration, kMaxConfigurationBytes);
}

GPULET_FIELDS(ModelsChanged) {
  c.status(GPULET_PART(status), v.status);
  c.list(GPULET_PART(models), v.models, kMaxModelsListed);
}

GPULET_FIELDS(StatusReply) {
  c.plain(GPULET_FIELD(json), v.json);
  c.failure(GPULET_PART(status), v.status);
}

GPULET_FIELDS(Authenticate) { c.text(GPULET_FIELD(token), v.token, kMaxTokenBytes); }

GPULET_FIELDS(StatusRequest) { c.plain(GPULET_FIELD(local), v.local); }

// ---- backend -> frontend

GPULET_FIELDS(schedule::RunningModel) {
  c.name(GPULET_FIELD(name), v.name);
  c.batch(GPULET_FIELD(max_batch), v.max_batch, 0);
  c.name(GPULET_FIELD(version), v.version);
}

GPULET_FIELDS(GpuletReport) {
  c.id(GPULET_FIELD(id), v.id);
  c.plain(GPULET_FIELD(device), v.device);
  c.share(GPULET_FIELD(size), v.size, 0);  // 0 for a gpulet that the backend does not know
  c.list(GPULET_PART(models), v.models, kMaxModels);
  c.one_of(GPULET_FIELD(state), v.state, GpuletState::preparing, GpuletState::gone);
  c.status(GPULET_PART(status), v.status);
  c.part(GPULET_PART(part), v.part);
  c.part(GPULET_PART(found), v.found);
  c.instance(GPULET_PART(instance), v.instance);
  c.one_of(GPULET_FIELD(cause), v.cause, FailureCause::unknown, kLastFailureCause);
  c.name(GPULET_FIELD(failed_model), v.failed_model);
}

GPULET_FIELDS(DeviceOffer) {
  auto& device = v.device;
  c.plain(GPULET_FIELD(index), device.key.device);
  c.name(GPULET_FIELD(type), device.type);
  c.name(GPULET_FIELD(partitioning), device.partitioning);
  c.shares(GPULET_PART(sizes), device.sizes, kMaxSizes);
  c.plain(GPULET_FIELD(max_partitions), device.max_partitions);
  c.amount(GPULET_FIELD(memory_mb), device.memory_mb);
  c.geometry(device.mig);
  c.plain(GPULET_FIELD(processes_per_instance), device.processes_per_instance);
  c.amount(GPULET_FIELD(cores), device.cores);
  c.name(GPULET_FIELD(mechanism), v.mechanism);
  c.amount(GPULET_FIELD(step_percent), v.traits.step_percent);
  c.one_of(GPULET_FIELD(change), v.traits.change, partition::ChangeOfSize::new_process,
           partition::ChangeOfSize::in_place);
  c.one_of(GPULET_FIELD(fault_reach), v.traits.fault, partition::FaultReach::process,
           partition::FaultReach::device);
  c.plain(GPULET_FIELD(limits_memory), v.traits.limits_memory);
  c.failure(GPULET_PART(fault), v.fault);
  if constexpr (C::kReads) {
    // 0 stands for a value that the peer does not know.
    if (v.traits.step_percent <= 0) v.traits.step_percent = partition::Traits().step_percent;
    device.processes_per_instance =
        c.check_range("processes_per_instance", std::max(device.processes_per_instance, 1U), 1,
                      static_cast<std::uint32_t>(kMaxProcessesPerInstance));
  }
}

GPULET_FIELDS(Hello) {
  c.name(GPULET_FIELD(node), v.node);
  c.list(GPULET_PART(devices), v.devices, kMaxDevices);
  c.list(GPULET_PART(gpulets), v.gpulets, kMaxGpulets);
  c.plain(GPULET_FIELD(level), v.level);
  c.id(GPULET_FIELD(term), v.term);
  if constexpr (C::kReads) {
    for (DeviceOffer& offer : v.devices) offer.device.key.node = v.node;
  }
}

GPULET_FIELDS(BackendState) {
  c.id(GPULET_FIELD(term), v.term);
  c.list(GPULET_PART(gpulets), v.gpulets, kMaxGpulets);
}

GPULET_FIELDS(Superseded) { c.id(GPULET_FIELD(term), v.term); }

GPULET_FIELDS(BatchResult) {
  c.id(GPULET_FIELD(id), v.id);
  c.failure(GPULET_PART(status), v.status);
  c.duration(GPULET_FIELD(queued_us), v.queued);
  c.duration(GPULET_FIELD(executed_us), v.executed);
  c.one_of(GPULET_FIELD(cause), v.cause, FailureCause::unknown, kLastFailureCause);
  c.one_of(GPULET_FIELD(signal), v.end.signal, std::uint8_t{0}, kLastByte);
  c.one_of(GPULET_FIELD(exit_status), v.end.exit_status, std::uint8_t{0}, kLastByte);
  c.duration(GPULET_FIELD(received_us), v.received);
}

GPULET_FIELDS(ModelPieceRequest) {
  c.sha256(GPULET_FIELD(sha256), v.sha256);
  c.plain(GPULET_FIELD(offset), v.offset);
}

GPULET_FIELDS(DevicePower) {
  c.plain(GPULET_FIELD(device), v.device);
  c.maybe_amount(GPULET_OPTIONAL(usage_w), v.usage_w);
  c.maybe_amount(GPULET_OPTIONAL(limit_w), v.limit_w);
  c.maybe_amount(GPULET_OPTIONAL(energy_j), v.energy_j);
}

GPULET_FIELDS(Heartbeat) { c.list(GPULET_PART(power), v.power, kMaxDevices); }

GPULET_FIELDS(DeviceReport) {
  c.plain(GPULET_FIELD(device), v.device);
  c.status(GPULET_PART(fault), v.fault);
}

GPULET_FIELDS(Draining) {}

// ---- frontend -> backend

GPULET_FIELDS(Welcome) {
  c.duration(GPULET_FIELD(heartbeat_us), v.heartbeat_every);
  c.plain(GPULET_FIELD(level), v.level);
}

GPULET_FIELDS(TakeLeadership) { c.id(GPULET_FIELD(term), v.term); }

GPULET_FIELDS(Refused) { c.status(GPULET_PART(why), v.why); }

GPULET_FIELDS(ModelToServe) {
  c.name(GPULET_FIELD(name), v.name);
  c.sha256(GPULET_FIELD(sha256), v.sha256);
  c.tensors(GPULET_PART(inputs), v.inputs);
  c.tensors(GPULET_PART(outputs), v.outputs);
  c.batch(GPULET_FIELD(max_batch), v.max_batch, 1);
  c.part(GPULET_PART(numerics), v.numerics);
}

GPULET_FIELDS(CreateGpulet) {
  c.id(GPULET_FIELD(id), v.id);
  c.plain(GPULET_FIELD(device), v.device);
  c.share(GPULET_FIELD(size), v.size, 1);
  c.list(GPULET_PART(models), v.models, kMaxModels);
  c.part(GPULET_PART(part), v.part);
  c.amount(GPULET_FIELD(memory_mb), v.memory_mb);
  c.instance(GPULET_PART(instance), v.instance);
  c.id(GPULET_FIELD(term), v.term);
}

GPULET_FIELDS(AssignGpulet) {
  c.id(GPULET_FIELD(id), v.id);
  c.part(GPULET_PART(part), v.part);
  c.id(GPULET_FIELD(term), v.term);
}

GPULET_FIELDS(SetCores) {
  c.id(GPULET_FIELD(id), v.id);
  c.amount(GPULET_FIELD(cores), v.cores);
  c.id(GPULET_FIELD(term), v.term);
}

GPULET_FIELDS(RetireGpulet) {
  c.id(GPULET_FIELD(id), v.id);
  c.id(GPULET_FIELD(term), v.term);
}

GPULET_FIELDS(Batch) {
  c.id(GPULET_FIELD(id), v.id);
  c.id(GPULET_FIELD(gpulet), v.gpulet);
  c.name(GPULET_FIELD(model), v.model);
  c.batch(GPULET_FIELD(count), v.count, 1);
  c.duration(GPULET_FIELD(start_within_us), v.start_within);
  c.duration(GPULET_FIELD(expected_us), v.expected_duration);
  c.id(GPULET_FIELD(term), v.term);
}

GPULET_FIELDS(ModelPiece) {
  c.sha256(GPULET_FIELD(sha256), v.sha256);
  c.plain(GPULET_FIELD(offset), v.offset);
  c.plain(GPULET_FIELD(total_bytes), v.total_bytes);
  c.plain(GPULET_FIELD(changed), v.changed);
}

// ---- frontend and frontend

GPULET_FIELDS(PeerHello) {
  c.name(GPULET_FIELD(cluster), v.cluster);
  c.name(GPULET_FIELD(member), v.member);
  c.plain(GPULET_FIELD(level), v.level);
}

GPULET_FIELDS(PeerWelcome) {
  c.name(GPULET_FIELD(cluster), v.cluster);
  c.name(GPULET_FIELD(member), v.member);
  c.duration(GPULET_FIELD(heartbeat_us), v.heartbeat_every);
  c.plain(GPULET_FIELD(level), v.level);
}

GPULET_FIELDS(Forward) {
  c.part(GPULET_PART(request), v.request);
  c.duration(GPULET_FIELD(age_us), v.age);
  c.plain(GPULET_FIELD(delayed), v.delayed);
}

GPULET_FIELDS(ForwardReply) {
  c.part(GPULET_PART(reply), v.reply);
  c.plain(GPULET_FIELD(elsewhere), v.elsewhere);
}

GPULET_FIELDS(CancelForward) {
  c.plain(GPULET_FIELD(tag), v.tag);
  c.name(GPULET_FIELD(model), v.model);
}

GPULET_FIELDS(ServedModelState) {
  c.name(GPULET_FIELD(name), v.name);
  c.one_of(GPULET_FIELD(state), v.state, ModelState::loading, ModelState::leaving);
  c.cut_text(GPULET_FIELD(reason), v.reason, kMaxStatusMessageBytes);
  c.plain(GPULET_FIELD(number), v.number);
  c.name(GPULET_FIELD(version), v.version);
  c.name(GPULET_FIELD(next), v.next);
  c.plain(GPULET_FIELD(next_refused), v.next_refused);
  c.plain(GPULET_FIELD(pending), v.pending);
}

GPULET_FIELDS(ServedModels) {
  c.plain(GPULET_FIELD(serving), v.serving);
  c.list(GPULET_PART(models), v.models, kMaxModelsListed);
}

GPULET_FIELDS(ChangeModels) {
  c.plain(GPULET_FIELD(tag), v.tag);
  c.part(GPULET_PART(change), v.change);
}

GPULET_FIELDS(ChangeResult) {
  c.plain(GPULET_FIELD(tag), v.tag);
  c.part(GPULET_PART(changed), v.changed);
}

GPULET_FIELDS(CatalogueState) {
  c.id(GPULET_FIELD(term), v.stamp.term);
  c.plain(GPULET_FIELD(number), v.stamp.number);
}

GPULET_FIELDS(CatalogueAdopted) {
  c.id(GPULET_FIELD(term), v.stamp.term);
  c.plain(GPULET_FIELD(number), v.stamp.number);
}

// ---- backend and proxy

GPULET_FIELDS(LoadModel) {
  c.name(GPULET_FIELD(name), v.name);
  c.text(GPULET_FIELD(file), v.file, kMaxPathBytes);
  c.tensors(GPULET_PART(inputs), v.inputs);
  c.tensors(GPULET_PART(outputs), v.outputs);
  c.batch(GPULET_FIELD(max_batch), v.max_batch, 1);
  c.plain(GPULET_FIELD(form), v.variant);
  c.part(GPULET_PART(numerics), v.numerics);
}

using Variable = std::pair<std::string, std::string>;

GPULET_FIELDS(Variable) {
  c.name(GPULET_FIELD(name), v.first);
  c.text(GPULET_FIELD(value), v.second, kMaxPathBytes);
  if constexpr (C::kReads) {  // as setenv requires
    if (v.first.empty() || v.first.find('=') != std::string::npos ||
        v.first.find('\0') != std::string::npos)
      c.fail("name", "not a valid variable name");
    if (v.second.find('\0') != std::string::npos) c.fail("value", "contains a zero byte");
  }
}

GPULET_FIELDS(LoadModels) {
  c.list(GPULET_PART(models), v.models, kMaxModels);
  std::vector<Variable> variables(v.environment.begin(), v.environment.end());
  c.list(GPULET_PART(environment), variables, kMaxVariables);
  if constexpr (C::kReads) {
    for (Variable& variable : variables)
      v.environment.insert_or_assign(std::move(variable.first), std::move(variable.second));
  }
  c.plain(GPULET_FIELD(memory_bytes), v.memory_bytes);
}

GPULET_FIELDS(RunBatch) {
  c.id(GPULET_FIELD(id), v.id);
  c.name(GPULET_FIELD(model), v.model);
  c.batch(GPULET_FIELD(count), v.count, 1);
  c.plain(GPULET_FIELD(input_offset), v.input_offset);
  c.plain(GPULET_FIELD(input_bytes), v.input_bytes);
  c.plain(GPULET_FIELD(output_offset), v.output_offset);
  c.plain(GPULET_FIELD(output_capacity), v.output_capacity);
  c.duration(GPULET_FIELD(start_within_us), v.start_within);
  c.duration(GPULET_FIELD(simulated_latency_us), v.simulated_latency);
  if constexpr (C::kReads) {  // the proxy compares the ends with its memory
    constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
    if (v.input_bytes > kMax - v.input_offset) c.fail("input_bytes", "its end exceeds 64 bits");
    if (v.output_capacity > kMax - v.output_offset)
      c.fail("output_capacity", "its end exceeds 64 bits");
  }
}

GPULET_FIELDS(ProxyReady) {
  c.status(GPULET_PART(status), v.status);
  c.plain(GPULET_FIELD(memory_bytes), v.memory_bytes);
  c.numbers(GPULET_PART(forms), v.variants, kMaxModels);
  c.part(GPULET_PART(found), v.found);
  c.one_of(GPULET_FIELD(device), v.device, partition::DeviceHealth::works,
           partition::DeviceHealth::lost);
  c.one_of(GPULET_FIELD(cause), v.cause, FailureCause::unknown, kLastFailureCause);
  c.name(GPULET_FIELD(failed_model), v.failed_model);
}

GPULET_FIELDS(BatchRan) {
  c.id(GPULET_FIELD(id), v.id);
  c.failure(GPULET_PART(status), v.status);
  c.plain(GPULET_FIELD(output_bytes), v.output_bytes);
  c.duration(GPULET_FIELD(queued_us), v.queued);
  c.duration(GPULET_FIELD(executed_us), v.executed);
  c.one_of(GPULET_FIELD(device), v.device, partition::DeviceHealth::works,
           partition::DeviceHealth::lost);
  c.one_of(GPULET_FIELD(cause), v.cause, FailureCause::unknown, kLastFailureCause);
}

GPULET_FIELDS(StopProxy) {}
GPULET_FIELDS(ProxyIdle) {}

namespace {

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
void take_payload(Batch& v, Bytes payload, Checks&) { v.inputs.push_back(std::move(payload)); }

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
GPULET_WIRED(RetireGpulet, retire_gpulet, false);
GPULET_WIRED(Batch, batch, true);
GPULET_WIRED(ModelPiece, model_piece, false);
GPULET_WIRED(AssignGpulet, assign_gpulet, false);
GPULET_WIRED(SetCores, set_cores, false);
GPULET_WIRED(Refused, refused, false);
GPULET_WIRED(PeerHello, peer_hello, false);
GPULET_WIRED(PeerWelcome, peer_welcome, false);
GPULET_WIRED(Forward, forward, true);
GPULET_WIRED(ForwardReply, forward_reply, true);
GPULET_WIRED(CancelForward, cancel_forward, false);
GPULET_WIRED(ServedModels, served_models, false);
GPULET_WIRED(ChangeModels, change_models, false);
GPULET_WIRED(ChangeResult, change_result, false);
GPULET_WIRED(CatalogueState, catalogue_state, false);
GPULET_WIRED(CatalogueAdopted, catalogue_adopted, false);
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

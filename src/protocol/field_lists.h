// The fields of every message: one function per message, for the Writer and the Reader of fields.h.
// Private to the codec. Pure.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/core/bucket.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/protocol/proxy_messages.h"
#include "protocol/fields.h"

namespace gpulet::protocol {

inline constexpr std::size_t kMaxProblems = 64;  // of the files behind a list of models
inline constexpr std::size_t kMaxSizes = 100;    // of a device's shares, in percent
inline constexpr std::uint8_t kLastByte = 255;

// The fields of one message `v`, for a Writer or a Reader `c`. Writer and Reader find the
// functions by their arguments.
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

GPULET_FIELDS(partition::LoadStages) {
  c.duration(GPULET_FIELD(read_us), v.read);
  c.duration(GPULET_FIELD(copy_us), v.copy);
  c.duration(GPULET_FIELD(warm_us), v.warm);
  c.duration(GPULET_FIELD(capture_us), v.capture);
}

GPULET_FIELDS(partition::ProcessCondition) {
  c.plain(GPULET_FIELD(sms), v.sms);
  c.plain(GPULET_FIELD(shared_sms), v.shared_sms);
  c.plain(GPULET_FIELD(sizes_to_capture), v.sizes_to_capture);
}

GPULET_FIELDS(partition::Assignment) {
  c.name(GPULET_FIELD(model), v.model);
  c.amount(GPULET_FIELD(rate), v.rate);
  c.batch(GPULET_FIELD(batch), v.batch, 1);
  c.amount(GPULET_FIELD(latency_ms), v.latency_ms);
  c.amount(GPULET_FIELD(slowdown), v.slowdown);
  c.amount(GPULET_FIELD(slo_ms), v.slo_ms);
}

GPULET_FIELDS(partition::PolicyChoice) {
  c.share(GPULET_FIELD(size), v.size, 1);
  c.amount(GPULET_FIELD(duty_cycle_ms), v.duty_cycle_ms);
  c.list(GPULET_PART(assignments), v.assignments, kMaxModels);
}

GPULET_FIELDS(PlanPart) {
  c.amount(GPULET_FIELD(duty_cycle_ms), v.duty_cycle_ms);
  c.one_of(GPULET_FIELD(service), v.service, partition::Service::rounds,
           partition::Service::controlled);
  c.list(GPULET_PART(assignments), v.assignments, kMaxModels);
  c.maybe_part(GPULET_OPTIONAL_PART(policy_choice), v.policy_choice);
}

// ---- client and frontend

GPULET_FIELDS(InferRequest) {
  c.plain(GPULET_FIELD(tag), v.tag);
  c.name(GPULET_FIELD(model), v.model);
  c.duration(GPULET_FIELD(timeout_us), v.timeout);
  c.tensors(GPULET_PART(inputs), v.inputs, Shapes::unchecked);
  c.plain(GPULET_FIELD(priority), v.priority);
  c.plain(GPULET_FIELD(synthetic), v.synthetic);
}

GPULET_FIELDS(InferReply) {
  c.plain(GPULET_FIELD(tag), v.tag);
  c.failure(GPULET_PART(status), v.status);
  c.tensors(GPULET_PART(outputs), v.outputs, Shapes::fixed);
  c.duration(GPULET_FIELD(queued_us), v.queued);
  c.duration(GPULET_FIELD(executed_us), v.executed);
  c.batch(GPULET_FIELD(batch_size), v.batch_size, 0);
  c.duration(GPULET_FIELD(retry_after_us), v.retry_after);
  c.plain(GPULET_FIELD(leaving), v.leaving);
  c.name(GPULET_FIELD(served_by), v.served_by);
}

GPULET_FIELDS(ModelsRequest) { c.name(GPULET_FIELD(after), v.after); }

GPULET_FIELDS(ModelInfo) {
  c.name(GPULET_FIELD(name), v.name);
  c.tensors(GPULET_PART(inputs), v.inputs, Shapes::declared);
  c.tensors(GPULET_PART(outputs), v.outputs, Shapes::declared);
  c.amount(GPULET_FIELD(slo_ms), v.slo_ms);
  c.batch(GPULET_FIELD(max_batch), v.max_batch, 0);
  c.one_of(GPULET_FIELD(state), v.state, ModelState::loading, ModelState::leaving);
  c.name(GPULET_FIELD(version), v.version);
  c.name(GPULET_FIELD(next), v.next);
  c.cut_text(GPULET_FIELD(reason), v.reason, kMaxStatusMessageBytes);
  c.plain(GPULET_FIELD(next_refused), v.next_refused);
  c.plain(GPULET_FIELD(pending), v.pending);
  c.numbers(GPULET_PART(lengths), v.lengths, kMostBuckets);
  c.plain(GPULET_FIELD(pads), v.pads);
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

GPULET_FIELDS(partition::RunningModel) {
  c.name(GPULET_FIELD(name), v.name);
  c.batch(GPULET_FIELD(max_batch), v.max_batch, 0);
  c.name(GPULET_FIELD(version), v.version);
}

GPULET_FIELDS(GpuletReport) {
  c.plain(GPULET_FIELD(id), v.id.value);
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
  c.name(GPULET_FIELD(owner), v.owner);
  c.part(GPULET_PART(load_stages), v.load_stages);
  c.part(GPULET_PART(condition), v.condition);
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
  c.plain(GPULET_FIELD(term), v.term.value);
  if constexpr (C::kReads) {
    for (DeviceOffer& offer : v.devices) offer.device.key.node = v.node;
  }
}

GPULET_FIELDS(BackendState) {
  c.plain(GPULET_FIELD(term), v.term.value);
  c.list(GPULET_PART(gpulets), v.gpulets, kMaxGpulets);
}

GPULET_FIELDS(Superseded) { c.plain(GPULET_FIELD(term), v.term.value); }

GPULET_FIELDS(FailedRow) {
  c.plain(GPULET_FIELD(row), v.row);
  c.status(GPULET_PART(why), v.why);
}

GPULET_FIELDS(BatchResult) {
  c.plain(GPULET_FIELD(id), v.id.value);
  c.failure(GPULET_PART(status), v.status);
  c.duration(GPULET_FIELD(queued_us), v.queued);
  c.duration(GPULET_FIELD(executed_us), v.executed);
  c.one_of(GPULET_FIELD(cause), v.cause, FailureCause::unknown, kLastFailureCause);
  c.one_of(GPULET_FIELD(signal), v.end.signal, std::uint8_t{0}, kLastByte);
  c.one_of(GPULET_FIELD(exit_status), v.end.exit_status, std::uint8_t{0}, kLastByte);
  c.duration(GPULET_FIELD(received_us), v.received);
  c.plain(GPULET_FIELD(elsewhere), v.elsewhere);
  c.cut_text(GPULET_FIELD(detail), v.detail, kMostDetailBytes);
  c.numbers(GPULET_PART(withdrawn), v.withdrawn, kMaxBatch);
  c.numbers(GPULET_PART(missing), v.missing, kMaxBatch);
  c.duration(GPULET_FIELD(decoded_us), v.decoded);
  c.list(GPULET_PART(failed), v.failed, kMaxBatch);
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

GPULET_FIELDS(LocalOffer) {
  c.name(GPULET_FIELD(name), v.name);
  c.name(GPULET_FIELD(secret), v.secret);
  c.plain(GPULET_FIELD(user), v.user);
}

GPULET_FIELDS(Welcome) {
  c.duration(GPULET_FIELD(heartbeat_us), v.heartbeat_every);
  c.plain(GPULET_FIELD(level), v.level);
  c.name(GPULET_FIELD(member), v.member);
  c.maybe_part(GPULET_OPTIONAL_PART(local), v.local);
}

GPULET_FIELDS(TakeLeadership) { c.plain(GPULET_FIELD(term), v.term.value); }

GPULET_FIELDS(Refused) { c.status(GPULET_PART(why), v.why); }

GPULET_FIELDS(ModelToServe) {
  c.name(GPULET_FIELD(name), v.name);
  c.sha256(GPULET_FIELD(sha256), v.sha256);
  c.tensors(GPULET_PART(inputs), v.inputs, Shapes::converted);
  c.tensors(GPULET_PART(outputs), v.outputs, Shapes::fixed);
  c.batch(GPULET_FIELD(max_batch), v.max_batch, 1);
  c.part(GPULET_PART(numerics), v.numerics);
  c.batches(GPULET_PART(planned_batches), v.planned_batches, v.max_batch);
}

GPULET_FIELDS(CreateGpulet) {
  c.plain(GPULET_FIELD(id), v.id.value);
  c.plain(GPULET_FIELD(device), v.device);
  c.share(GPULET_FIELD(size), v.size, 1);
  c.list(GPULET_PART(models), v.models, kMaxModels);
  c.part(GPULET_PART(part), v.part);
  c.amount(GPULET_FIELD(memory_mb), v.memory_mb);
  c.instance(GPULET_PART(instance), v.instance);
  c.plain(GPULET_FIELD(term), v.term.value);
}

GPULET_FIELDS(AssignGpulet) {
  c.plain(GPULET_FIELD(id), v.id.value);
  c.part(GPULET_PART(part), v.part);
  c.plain(GPULET_FIELD(term), v.term.value);
}

GPULET_FIELDS(SetCores) {
  c.plain(GPULET_FIELD(id), v.id.value);
  c.amount(GPULET_FIELD(cores), v.cores);
  c.plain(GPULET_FIELD(term), v.term.value);
}

GPULET_FIELDS(SetOwner) {
  c.plain(GPULET_FIELD(id), v.id.value);
  c.name(GPULET_FIELD(owner), v.owner);
  c.plain(GPULET_FIELD(term), v.term.value);
}

GPULET_FIELDS(RetireGpulet) {
  c.plain(GPULET_FIELD(id), v.id.value);
  c.plain(GPULET_FIELD(term), v.term.value);
}

GPULET_FIELDS(EntryRows) {
  c.name(GPULET_FIELD(entry), v.entry);
  c.batch(GPULET_FIELD(count), v.count, 1);
}

GPULET_FIELDS(SharedSlice) {
  c.plain(GPULET_FIELD(offset), v.offset);
  c.plain(GPULET_FIELD(bytes), v.bytes);
}

GPULET_FIELDS(Batch) {
  c.plain(GPULET_FIELD(id), v.id.value);
  c.plain(GPULET_FIELD(gpulet), v.gpulet.value);
  c.name(GPULET_FIELD(model), v.model);
  c.batch(GPULET_FIELD(count), v.count, 1);
  c.duration(GPULET_FIELD(start_within_us), v.start_within);
  c.duration(GPULET_FIELD(expected_us), v.expected_duration);
  c.plain(GPULET_FIELD(term), v.term.value);
  c.plain(GPULET_FIELD(synthetic), v.synthetic);
  c.list(GPULET_PART(entries), v.entries, kMaxMembers);
  c.list(GPULET_PART(shared), v.shared, kMaxSharedSlices);
}

GPULET_FIELDS(Rows) {
  c.name(GPULET_FIELD(owner), v.owner);
  c.plain(GPULET_FIELD(batch), v.batch.value);
  c.numbers(GPULET_PART(present), v.present, kMaxBatch);
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
  c.name(GPULET_FIELD(secret), v.secret);
}

GPULET_FIELDS(PeerWelcome) {
  c.name(GPULET_FIELD(cluster), v.cluster);
  c.name(GPULET_FIELD(member), v.member);
  c.duration(GPULET_FIELD(heartbeat_us), v.heartbeat_every);
  c.plain(GPULET_FIELD(level), v.level);
  c.name(GPULET_FIELD(secret), v.secret);
}

GPULET_FIELDS(Forward) {
  c.part(GPULET_PART(request), v.request);
  c.duration(GPULET_FIELD(age_us), v.age);
  c.plain(GPULET_FIELD(delayed), v.delayed);
  c.plain(GPULET_FIELD(kept_bytes), v.kept_bytes);
}

GPULET_FIELDS(ForwardReply) {
  c.part(GPULET_PART(reply), v.reply);
  c.plain(GPULET_FIELD(elsewhere), v.elsewhere);
  c.plain(GPULET_FIELD(payload_needed), v.payload_needed);
}

GPULET_FIELDS(RowsWanted) {
  c.plain(GPULET_FIELD(batch), v.batch.value);
  c.name(GPULET_FIELD(node), v.node);
  c.numbers(GPULET_PART(tags), v.tags, kMaxBatch);
}

GPULET_FIELDS(CancelForward) {
  c.plain(GPULET_FIELD(tag), v.tag);
  c.name(GPULET_FIELD(model), v.model);
}

GPULET_FIELDS(OwnerShare) {
  c.name(GPULET_FIELD(member), v.member);
  c.amount(GPULET_FIELD(weight), v.weight);
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
  c.name(GPULET_FIELD(owner), v.owner);
  c.list(GPULET_PART(owners), v.owners, kMaxMembers);
}

GPULET_FIELDS(ServedModels) {
  c.plain(GPULET_FIELD(serving), v.serving);
  c.list(GPULET_PART(models), v.models, kMaxModelsListed);
}

GPULET_FIELDS(NamedFile) {
  c.text(GPULET_FIELD(path), v.path, kMaxPathBytes);
  c.sha256(GPULET_FIELD(sha256), v.sha256);
}

GPULET_FIELDS(ChangeModels) {
  c.plain(GPULET_FIELD(tag), v.tag);
  c.part(GPULET_PART(change), v.change);
  c.list(GPULET_PART(files), v.files, kMaxNamedFiles);
}

GPULET_FIELDS(ChangeResult) {
  c.plain(GPULET_FIELD(tag), v.tag);
  c.part(GPULET_PART(changed), v.changed);
}

GPULET_FIELDS(CatalogueState) {
  c.plain(GPULET_FIELD(term), v.stamp.term.value);
  c.plain(GPULET_FIELD(number), v.stamp.number);
}

GPULET_FIELDS(CatalogueAdopted) {
  c.plain(GPULET_FIELD(term), v.stamp.term.value);
  c.plain(GPULET_FIELD(number), v.stamp.number);
}

GPULET_FIELDS(RouteSlot) {
  c.name(GPULET_FIELD(model), v.model);
  c.name(GPULET_FIELD(version), v.version);
  c.durations(GPULET_PART(execution_us), v.execution, kMaxBatch);
  c.amount(GPULET_FIELD(rate), v.rate);
  if constexpr (C::kReads) {
    if (v.execution.empty()) c.fail("execution_us", "must not be empty");
  }
}

GPULET_FIELDS(Route) {
  c.plain(GPULET_FIELD(gpulet), v.gpulet.value);
  c.duration(GPULET_FIELD(duty_cycle_us), v.duty_cycle);
  c.list(GPULET_PART(slots), v.slots, kMaxModels);
}

GPULET_FIELDS(NodeRoutes) {
  c.name(GPULET_FIELD(node), v.node);
  c.list(GPULET_PART(routes), v.routes, kMaxGpulets);
}

GPULET_FIELDS(SetRoutes) {
  c.plain(GPULET_FIELD(term), v.term.value);
  c.list(GPULET_PART(nodes), v.nodes, kMaxNodes);
}

GPULET_FIELDS(ModelFigures) {
  c.name(GPULET_FIELD(model), v.model);
  c.plain(GPULET_FIELD(arrived), v.arrived);
  c.plain(GPULET_FIELD(served), v.served);
  c.plain(GPULET_FIELD(late), v.late);
  c.plain(GPULET_FIELD(dropped), v.dropped);
  c.plain(GPULET_FIELD(failed), v.failed);
  c.plain(GPULET_FIELD(queued), v.queued);
  c.durations(GPULET_PART(latencies_us), v.latencies, kMaxFigures);
}

GPULET_FIELDS(GpuletFigures) {
  c.plain(GPULET_FIELD(id), v.id.value);
  c.plain(GPULET_FIELD(batches), v.batches);
  c.plain(GPULET_FIELD(requests), v.requests);
  c.duration(GPULET_FIELD(executed_us), v.executed);
  c.plain(GPULET_FIELD(planned), v.planned);
  c.plain(GPULET_FIELD(in_flight), v.in_flight);
}

GPULET_FIELDS(BatchFigures) {
  c.plain(GPULET_FIELD(gpulet), v.gpulet.value);
  c.name(GPULET_FIELD(model), v.model);
  c.batch(GPULET_FIELD(count), v.count, 1);
  c.duration(GPULET_FIELD(executed_us), v.executed);
}

GPULET_FIELDS(ProcessLost) {
  c.plain(GPULET_FIELD(gpulet), v.gpulet.value);
  c.names(GPULET_PART(models), v.models, kMaxModels);
  c.plain(GPULET_FIELD(requests), v.requests);
  c.one_of(GPULET_FIELD(cause), v.cause, FailureCause::unknown, kLastFailureCause);
  c.one_of(GPULET_FIELD(signal), v.end.signal, std::uint8_t{0}, kLastByte);
  c.one_of(GPULET_FIELD(exit_status), v.end.exit_status, std::uint8_t{0}, kLastByte);
}

GPULET_FIELDS(OwnerReport) {
  c.plain(GPULET_FIELD(draining), v.draining);
  c.names(GPULET_PART(nodes), v.nodes, kMaxNodes);
  c.list(GPULET_PART(models), v.models, kMaxFigures);
  c.list(GPULET_PART(gpulets), v.gpulets, kMaxFigures);
  c.list(GPULET_PART(batches), v.batches, kMaxFigures);
  c.list(GPULET_PART(lost), v.lost, kMaxFigures);
}

GPULET_FIELDS(DurationCount) {
  c.plain(GPULET_FIELD(count), v.count);
  c.plain(GPULET_FIELD(ns), v.ns);
}

GPULET_FIELDS(BatchCount) {
  c.batch(GPULET_FIELD(batch_size), v.batch_size, 1);
  c.part(GPULET_PART(compute_input), v.compute_input);
  c.part(GPULET_PART(compute_infer), v.compute_infer);
  c.part(GPULET_PART(compute_output), v.compute_output);
}

GPULET_FIELDS(InferenceStatistics) {
  c.name(GPULET_FIELD(name), v.name);
  c.name(GPULET_FIELD(version), v.version);
  c.plain(GPULET_FIELD(last_inference_ms), v.last_inference_ms);
  c.plain(GPULET_FIELD(inference_count), v.inference_count);
  c.plain(GPULET_FIELD(execution_count), v.execution_count);
  c.part(GPULET_PART(success), v.success);
  c.part(GPULET_PART(fail), v.fail);
  c.part(GPULET_PART(queue), v.queue);
  c.part(GPULET_PART(compute_input), v.compute_input);
  c.part(GPULET_PART(compute_infer), v.compute_infer);
  c.part(GPULET_PART(compute_output), v.compute_output);
  c.list(GPULET_PART(batches), v.batches, kMaxBatch);
}

GPULET_FIELDS(StatisticsRequest) {
  c.plain(GPULET_FIELD(tag), v.tag);
  c.name(GPULET_FIELD(model), v.model);
}

GPULET_FIELDS(StatisticsReply) {
  c.plain(GPULET_FIELD(tag), v.tag);
  c.list(GPULET_PART(models), v.models, kMaxModelsListed);
}

// ---- backend and proxy

GPULET_FIELDS(ModelToLoad) {
  c.name(GPULET_FIELD(name), v.name);
  c.text(GPULET_FIELD(file), v.file, kMaxPathBytes);
  c.tensors(GPULET_PART(inputs), v.inputs, Shapes::converted);
  c.tensors(GPULET_PART(outputs), v.outputs, Shapes::fixed);
  c.batch(GPULET_FIELD(max_batch), v.max_batch, 1);
  c.plain(GPULET_FIELD(form), v.variant);
  c.part(GPULET_PART(numerics), v.numerics);
  c.batches(GPULET_PART(planned_batches), v.planned_batches, v.max_batch);
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
  c.plain(GPULET_FIELD(id), v.id.value);
  c.name(GPULET_FIELD(model), v.model);
  c.batch(GPULET_FIELD(count), v.count, 1);
  c.plain(GPULET_FIELD(input_offset), v.input_offset);
  c.plain(GPULET_FIELD(input_bytes), v.input_bytes);
  c.plain(GPULET_FIELD(output_offset), v.output_offset);
  c.plain(GPULET_FIELD(output_capacity), v.output_capacity);
  c.duration(GPULET_FIELD(start_within_us), v.start_within);
  c.duration(GPULET_FIELD(simulated_latency_us), v.simulated_latency);
  c.plain(GPULET_FIELD(synthetic), v.synthetic);
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
  c.part(GPULET_PART(load_stages), v.load_stages);
  c.part(GPULET_PART(condition), v.condition);
}

GPULET_FIELDS(BatchRan) {
  c.plain(GPULET_FIELD(id), v.id.value);
  c.failure(GPULET_PART(status), v.status);
  c.plain(GPULET_FIELD(output_bytes), v.output_bytes);
  c.duration(GPULET_FIELD(queued_us), v.queued);
  c.duration(GPULET_FIELD(executed_us), v.executed);
  c.one_of(GPULET_FIELD(device), v.device, partition::DeviceHealth::works,
           partition::DeviceHealth::lost);
  c.one_of(GPULET_FIELD(cause), v.cause, FailureCause::unknown, kLastFailureCause);
  c.cut_text(GPULET_FIELD(detail), v.detail, kMostDetailBytes);
  c.maybe_part(GPULET_OPTIONAL_PART(condition), v.condition);
  c.duration(GPULET_FIELD(decoded_us), v.decoded);
  c.list(GPULET_PART(failed), v.failed, kMaxBatch);
}

GPULET_FIELDS(StopProxy) {}
GPULET_FIELDS(ProxyIdle) {}

#undef GPULET_FIELDS

}  // namespace gpulet::protocol

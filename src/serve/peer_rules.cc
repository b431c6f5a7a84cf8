#include "gpulet/serve/peer_rules.h"

#include <string>
#include <variant>

#include "gpulet/serve/dispatcher.h"
#include "gpulet/serve/fleet.h"

namespace gpulet::serve {
namespace {

PeerBreach breach_by(PeerViolation kind, std::string why) {
  return {kind, {StatusCode::invalid, std::move(why)}};
}

std::optional<PeerBreach> breach_of_report(BackendId from, GpuletId id, const Fleet& fleet) {
  const FleetGpulet* const known = fleet.find(id);
  if (known == nullptr || known->backend == from || fleet.disowned(from, id)) return std::nullopt;
  return breach_by(PeerViolation::foreign_gpulet,
                   "it reported on " + name_of(id) + ", which runs on another node");
}

}  // namespace

std::string_view to_string(PeerViolation violation) {
  switch (violation) {
    case PeerViolation::before_hello:
      return "before_hello";
    case PeerViolation::no_hello:
      return "no_hello";
    case PeerViolation::second_hello:
      return "second_hello";
    case PeerViolation::invalid_hello:
      return "invalid_hello";
    case PeerViolation::other_node:
      return "other_node";
    case PeerViolation::node_taken:
      return "node_taken";
    case PeerViolation::foreign_gpulet:
      return "foreign_gpulet";
    case PeerViolation::foreign_batch:
      return "foreign_batch";
    case PeerViolation::foreign_device:
      return "foreign_device";
    case PeerViolation::foreign_model:
      return "foreign_model";
    case PeerViolation::malformed:
      return "malformed";
  }
  return "unknown";
}

PeerState state_of(BackendId backend, const Fleet& fleet) {
  const auto found = fleet.backends().find(backend);
  if (found == fleet.backends().end()) return PeerState::greeting;
  return found->second.leaving ? PeerState::leaving : PeerState::joined;
}

std::optional<PeerBreach> breach_of_result(BackendId from, BatchId batch, const Fleet& fleet,
                                           const Dispatcher& dispatcher) {
  if (state_of(from, fleet) == PeerState::greeting) {
    return breach_by(PeerViolation::before_hello, "it sent a result before its Hello");
  }
  const std::string name = "batch " + std::to_string(batch.value);
  if (!dispatcher.was_sent(batch)) {
    return breach_by(PeerViolation::foreign_batch,
                     "it sent a result of " + name + ", which this frontend never sent to a node");
  }
  const auto holder = dispatcher.holder_of(batch);
  if (!holder || *holder == from) return std::nullopt;
  return breach_by(PeerViolation::foreign_batch,
                   "it sent a result of " + name + ", which another node holds");
}

namespace {

PeerBreach breach_by_device(std::uint32_t device) {
  return breach_by(
      PeerViolation::foreign_device,
      "it reported on its device " + std::to_string(device) + ", which it does not offer");
}

}  // namespace

std::optional<PeerBreach> breach_of(BackendId from, const BackendMessage& message,
                                    const Fleet& fleet, const Dispatcher& dispatcher) {
  if (const auto* const result = std::get_if<BatchResult>(&message))
    return breach_of_result(from, result->id, fleet, dispatcher);
  const bool greeting = state_of(from, fleet) == PeerState::greeting;
  if (std::holds_alternative<Hello>(message)) {
    if (greeting) return std::nullopt;
    return breach_by(PeerViolation::second_hello, "it sent a second Hello on one connection");
  }
  if (greeting)
    return breach_by(PeerViolation::before_hello, "it sent another message before its Hello");
  if (const auto* const report = std::get_if<GpuletReport>(&message))
    return breach_of_report(from, report->id, fleet);
  if (const auto* const beat = std::get_if<Heartbeat>(&message)) {
    for (const DevicePower& power : beat->power) {
      if (!fleet.offers(from, power.device)) return breach_by_device(power.device);
    }
  }
  if (const auto* const report = std::get_if<DeviceReport>(&message)) {
    if (fleet.offers(from, report->device)) return std::nullopt;
    return breach_by_device(report->device);
  }
  return std::nullopt;
}

}  // namespace gpulet::serve

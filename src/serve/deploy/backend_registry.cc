#include "serve/deploy/backend_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "gpulet/schedule/policy.h"
#include "gpulet/serve/values/served_model.h"
#include "serve/dispatch/batches_in_flight.h"

namespace gpulet::serve {

namespace {

// Bounds the issued gpulets of disconnected nodes; the oldest are forgotten first.
constexpr std::size_t kMostAbsent = 1U << 16U;

bool holds_file(const std::vector<schedule::RunningModel>& models, std::string_view sha256) {
  return std::any_of(models.begin(), models.end(), [sha256](const schedule::RunningModel& model) {
    return file_of_version(model.version) == sha256;
  });
}

}  // namespace

std::vector<GpuletId> BackendRegistry::claim(BackendId backend,
                                             const std::vector<GpuletReport>& gpulets, Time now) {
  BackendRecord& owner = *record_of(backend);
  std::vector<GpuletId> disowned;
  for (const GpuletReport& report : gpulets) {
    if (report.state == GpuletState::gone) continue;  // it is ending
    const auto known = gpulets_.find(report.id);
    if (known != gpulets_.end()) {
      if (known->second.backend == backend) {
        known->second.state = report.state;
        known->second.status = report.status;
        known->second.found = report.found;
        known->second.load_stages = report.load_stages;
        known->second.condition = report.condition;
        known->second.part = report.part;
        known->second.owner = report.owner;
      } else {
        disowned.push_back(report.id);
        owner.disowned.insert(report.id);
      }
      continue;
    }
    const auto absent = absent_.find(report.id);
    const bool issued = absent != absent_.end();
    if (issued) grant_files(owner, absent->second.models);
    GpuletRecord& gpulet = gpulets_[report.id] = {backend,      {owner.node, report.device},
                                                  report.size,  report.models,
                                                  report.state, report.status};
    gpulet.part = report.part;
    gpulet.found = report.found;
    gpulet.load_stages = report.load_stages;
    gpulet.condition = report.condition;
    gpulet.instance = report.instance;
    gpulet.owner = report.owner;
    gpulet.issued = issued;
    gpulet.since = now;
  }
  std::erase_if(absent_, [&owner](const auto& one) { return one.second.node == owner.node; });
  return disowned;
}

std::vector<GpuletId> BackendRegistry::gpulets_of(BackendId backend) const {
  std::vector<GpuletId> found;
  for (const auto& [id, gpulet] : gpulets_) {
    if (gpulet.backend == backend) found.push_back(id);
  }
  return found;
}

std::vector<GpuletId> BackendRegistry::missing_in(BackendId backend,
                                                  const std::vector<GpuletReport>& listed) const {
  std::set<GpuletId> present;
  for (const GpuletReport& report : listed) present.insert(report.id);
  const GpuletId next = backends().at(backend).taken_before;
  std::vector<GpuletId> missing = gpulets_of(backend);
  std::erase_if(missing, [&](GpuletId id) {
    return present.contains(id) || (gpulets_.at(id).issued && id >= next);
  });
  return missing;
}

void BackendRegistry::forget_gpulet(GpuletId id) {
  gpulets_.erase(id);
  gpulets_ended_ = true;
}

void BackendRegistry::grant_files(BackendRecord& backend,
                                  const std::vector<schedule::RunningModel>& models) {
  for (const schedule::RunningModel& model : models)
    backend.files.emplace(file_of_version(model.version));
}

std::vector<GpuletId> BackendRegistry::remove(BackendId backend) {
  const std::optional<std::string> node = leave(backend);
  if (!node) return {};
  std::vector<GpuletId> lost = gpulets_of(backend);
  for (const GpuletId id : lost) {
    GpuletRecord& gpulet = gpulets_.at(id);
    if (gpulet.issued) absent_.insert_or_assign(id, AbsentGpulet{*node, std::move(gpulet.models)});
    gpulets_.erase(id);
  }
  while (absent_.size() > kMostAbsent) absent_.erase(absent_.begin());
  return lost;
}

void BackendRegistry::forget_files(const std::unordered_set<std::string_view>& known) {
  gpulets_ended_ = false;
  std::map<BackendId, std::unordered_set<std::string_view>> held;
  for (const auto& [id, gpulet] : gpulets_) {
    for (const schedule::RunningModel& model : gpulet.models)
      held[gpulet.backend].insert(file_of_version(model.version));
  }
  for (const auto& [id, backend] : backends()) {
    const std::unordered_set<std::string_view>& there = held[id];
    std::erase_if(record_of(id)->files, [&](const std::string& file) {
      return !known.contains(file) && !there.contains(file);
    });
  }
}

void BackendRegistry::add_gpulet(const CreateGpulet& command, const schedule::DeviceKey& device,
                                 std::vector<schedule::RunningModel> models, Time now) {
  const BackendId backend = backend_of(device).value();
  grant_files(*record_of(backend), models);
  GpuletRecord& gpulet = gpulets_[command.id] = {
      backend, device, command.size, std::move(models), GpuletState::preparing, {}};
  gpulet.part = command.part;
  gpulet.instance = command.instance;
  gpulet.issued = true;
  gpulet.since = now;
}

void BackendRegistry::set_part(GpuletId id, PlanPart part) {
  const auto found = gpulets_.find(id);
  if (found != gpulets_.end()) found->second.part = std::move(part);
}

void BackendRegistry::set_owner(GpuletId id, std::string owner) {
  const auto found = gpulets_.find(id);
  if (found != gpulets_.end()) found->second.owner = std::move(owner);
}

void BackendRegistry::set_retiring(GpuletId id) {
  const auto found = gpulets_.find(id);
  if (found != gpulets_.end()) found->second.retiring = true;
}

bool BackendRegistry::report_gpulet(BackendId backend, const GpuletReport& report) {
  const auto found = gpulets_.find(report.id);
  if (found == gpulets_.end() || found->second.backend != backend) {
    BackendRecord* const sender = record_of(backend);
    if (sender != nullptr && report.state == GpuletState::gone) sender->disowned.erase(report.id);
    return false;
  }
  if (report.state == GpuletState::gone) {
    gpulets_.erase(found);
    gpulets_ended_ = true;
    return true;
  }
  found->second.state = report.state;
  found->second.status = report.status;
  found->second.found = report.found;
  found->second.load_stages = report.load_stages;
  found->second.condition = report.condition;
  found->second.owner = report.owner;
  return true;
}

const GpuletRecord* BackendRegistry::find(GpuletId id) const {
  const auto found = gpulets_.find(id);
  return found == gpulets_.end() ? nullptr : &found->second;
}

std::optional<std::string> BackendRegistry::issued_to(GpuletId id) const {
  if (const GpuletRecord* const gpulet = find(id)) {
    if (!gpulet->issued) return std::nullopt;
    return gpulet->device.node;
  }
  const auto absent = absent_.find(id);
  return absent == absent_.end() ? std::nullopt : std::optional(absent->second.node);
}

bool BackendRegistry::is_disowned(BackendId backend, GpuletId id) const {
  const auto found = backends().find(backend);
  return found != backends().end() && found->second.disowned.contains(id);
}

FileRight BackendRegistry::right_to_file(BackendId backend, std::string_view sha256) const {
  const auto found = backends().find(backend);
  if (found == backends().end()) return FileRight::none;
  if (found->second.files.contains(sha256)) return FileRight::granted;
  const bool claimed = std::any_of(gpulets_.begin(), gpulets_.end(), [&](const auto& one) {
    return one.second.backend == backend && holds_file(one.second.models, sha256);
  });
  return claimed ? FileRight::claimed : FileRight::none;
}

schedule::RunningGpulet as_running(GpuletId id, const GpuletRecord& gpulet) {
  return {id,
          gpulet.device,
          gpulet.size,
          gpulet.models,
          gpulet.instance,
          gpulet.part.service == schedule::Service::controlled};
}

std::vector<schedule::RunningGpulet> BackendRegistry::running() const {
  std::vector<schedule::RunningGpulet> running;
  for (const auto& [id, gpulet] : gpulets_) {
    const bool serves = gpulet.state != GpuletState::failed && gpulet.state != GpuletState::gone;
    if (serves && !gpulet.retiring && commanded(gpulet.backend))
      running.push_back(as_running(id, gpulet));
  }
  return running;
}

// ---- rules for messages

namespace {

PeerBreach breach_by(PeerViolation kind, std::string why) {
  return {kind, {StatusCode::invalid, std::move(why)}};
}

std::optional<PeerBreach> breach_of_report(BackendId from, GpuletId id,
                                           const BackendRegistry& backends) {
  const GpuletRecord* const known = backends.find(id);
  if (known == nullptr || known->backend == from || backends.is_disowned(from, id))
    return std::nullopt;
  return breach_by(PeerViolation::foreign_gpulet,
                   "it reported on " + name_of(id) + ", which runs on another node");
}

// No frontend leads above it, so that there is always a higher one. A lower term is no breach,
// however high it is: the backend may have obeyed a frontend that another backend deceived.
bool is_possible(Term term) { return term.value < std::uint64_t{1} << 63U; }

PeerBreach breach_by_device(std::uint32_t device) {
  return breach_by(PeerViolation::foreign_device,
                   fmt::format("it reported on its device {}, which it does not offer", device));
}

}  // namespace

std::string_view to_string(PeerViolation violation) {
  constexpr std::array<std::string_view, kPeerViolations> kNames = {
      "before_hello",   "no_hello",      "second_hello",   "invalid_hello",
      "other_node",     "node_taken",    "foreign_gpulet", "foreign_batch",
      "foreign_device", "foreign_model", "malformed"};
  const auto index = static_cast<std::size_t>(violation);
  return index < kNames.size() ? kNames[index] : "unknown";
}

PeerState state_of(BackendId backend, const BackendRegistry& backends) {
  const auto found = backends.backends().find(backend);
  if (found == backends.backends().end()) return PeerState::greeting;
  return found->second.leaving ? PeerState::leaving : PeerState::joined;
}

std::optional<PeerBreach> breach_of_result(BackendId from, BatchId batch,
                                           const BackendRegistry& backends,
                                           const BatchesInFlight& batches) {
  if (state_of(from, backends) == PeerState::greeting) {
    return breach_by(PeerViolation::before_hello, "it sent a result before its Hello");
  }
  const bool sent = batches.was_sent(batch);
  const auto holder = batches.holder_of(batch);
  if (sent && (!holder || *holder == from)) return std::nullopt;
  return breach_by(PeerViolation::foreign_batch,
                   fmt::format("it sent a result of batch {}, which {}", batch.value,
                               sent ? "another node holds" : "this frontend never sent to a node"));
}

std::optional<PeerBreach> breach_of(BackendId from, const BackendMessage& message,
                                    const BackendRegistry& backends,
                                    const BatchesInFlight& batches) {
  if (const auto* const result = std::get_if<BatchResult>(&message))
    return breach_of_result(from, result->id, backends, batches);
  const bool greeting = state_of(from, backends) == PeerState::greeting;
  if (std::holds_alternative<Hello>(message)) {
    if (greeting) return std::nullopt;
    return breach_by(PeerViolation::second_hello, "it sent a second Hello on one connection");
  }
  if (greeting)
    return breach_by(PeerViolation::before_hello, "it sent another message before its Hello");
  if (const auto* const report = std::get_if<GpuletReport>(&message))
    return breach_of_report(from, report->id, backends);
  if (const auto* const superseded = std::get_if<Superseded>(&message)) {
    if (is_possible(superseded->term)) return std::nullopt;
    return breach_by(PeerViolation::malformed, "it named a term that no frontend can have");
  }
  if (const auto* const beat = std::get_if<Heartbeat>(&message)) {
    for (const DevicePower& power : beat->power) {
      if (!backends.offers(from, power.device)) return breach_by_device(power.device);
    }
  }
  if (const auto* const report = std::get_if<DeviceReport>(&message)) {
    if (backends.offers(from, report->device)) return std::nullopt;
    return breach_by_device(report->device);
  }
  return std::nullopt;
}

// ---- Hello

namespace {

using Breach = std::optional<PeerBreach>;

constexpr std::size_t kLongestName = 256;
constexpr std::size_t kMostSizes = 100;
constexpr std::uint32_t kMostPartitions = 100;
constexpr std::uint32_t kMostProcessesPerInstance = 8;
constexpr std::uint32_t kLargestBatch = 1024;
// Above any machine, and far below what makes sums and conversions overflow.
constexpr double kMostMemoryMb = 1e9;
constexpr double kMostCores = 1e6;
constexpr double kMostRate = 1e9;      // requests per second
constexpr double kLongestMs = 86.4e6;  // a day
constexpr double kMostSlowdown = 1e4;

Breach invalid(const std::string& why) {
  return breach_by(PeerViolation::invalid_hello, "its Hello: " + why);
}

bool within(double value, double most) { return value >= 0 && value <= most; }  // false for NaN

// As configuration files write names.
bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '.' || c == '_' || c == '-';
         });
}

// One line of text that may go into logs and pages.
bool is_line(std::string_view text) {
  constexpr unsigned char kFirstPrintable = 0x20;
  constexpr unsigned char kDelete = 0x7f;
  return text.size() <= kLongestName && std::all_of(text.begin(), text.end(), [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return byte >= kFirstPrintable && byte != kDelete;
         });
}

std::string number_of(std::uint32_t device) { return fmt::format("device {}", device); }

Breach check_device(const DeviceOffer& offer, const std::string& node) {
  const schedule::Device& device = offer.device;
  const std::string where = number_of(device.key.device);
  if (device.key.node != node) return invalid(where + " is another node's");
  if (device.key.device >= kMostHelloDevices) {
    return invalid(fmt::format("{}: the largest number that a device may have is {}", where,
                               kMostHelloDevices - 1));
  }
  if (!is_name(device.type) || !is_name(device.partitioning))
    return invalid(where + ": its type and its partitioning must be names");
  if (!is_line(offer.mechanism)) return invalid(where + ": its mechanism must be a line of text");
  if (device.sizes.size() > kMostSizes || device.max_partitions > kMostPartitions ||
      device.processes_per_instance > kMostProcessesPerInstance) {
    return invalid(where + " has more sizes, partitions or processes than any device can");
  }
  if (!within(device.memory_mb, kMostMemoryMb) || !within(device.cores, kMostCores))
    return invalid(where + " has more memory or cores than any machine");
  if (!within(offer.traits.step_percent, kWholeDevice.percent))
    return invalid(where + ": the step between its sizes must be within 0..100 percent");
  if (Status valid = schedule::validate_device(device); !valid.ok())
    return PeerBreach{PeerViolation::invalid_hello, valid.within("its Hello")};
  return std::nullopt;
}

bool is_sane(const schedule::Assignment& one) {
  return is_line(one.model) && !one.model.empty() && within(one.rate, kMostRate) &&
         one.batch >= 1 && one.batch <= kLargestBatch && within(one.latency_ms, kLongestMs) &&
         within(one.slowdown, kMostSlowdown) && within(one.slo_ms, kLongestMs);
}

// For a part of a plan and for what the policy chose.
template <typename Part>
Breach check_round(const Part& part, const std::string& where) {
  if (!within(part.duty_cycle_ms, kLongestMs))
    return invalid(where + ": its duty cycle must be within a day");
  if (part.assignments.size() > kMostHelloModels)
    return invalid(where + ": its part of a plan has too many models");
  std::set<std::string_view> seen;
  for (const schedule::Assignment& one : part.assignments) {
    if (!is_sane(one)) return invalid(where + ": its part of a plan has numbers beyond all bounds");
    if (!seen.insert(one.model).second)
      return invalid(where + ": its part of a plan names a model twice");
  }
  return std::nullopt;
}

Breach check_part(const PlanPart& part, const std::string& where) {
  if (Breach breach = check_round(part, where)) return breach;
  if (part.service == schedule::Service::controlled && part.assignments.size() > 1)
    return invalid(where + ": an executable with controlled cores has one model");
  if (!part.policy_choice) return std::nullopt;
  if (!part.policy_choice->size.valid())
    return invalid(where + ": the size that the policy chose must be within 1..100 percent");
  return check_round(*part.policy_choice, where);
}

Breach check_models(const std::vector<schedule::RunningModel>& models, const std::string& where) {
  if (models.size() > kMostHelloModels) return invalid(where + " has too many models");
  std::set<std::string_view> seen;
  for (const schedule::RunningModel& model : models) {
    if (model.name.empty() || !is_line(model.name) || !is_line(model.version))
      return invalid(where + ": a model's name and version must be lines of text");
    if (model.max_batch > kLargestBatch)
      return invalid(fmt::format("{}: a batch of more than {}", where, kLargestBatch));
    if (!seen.insert(model.name).second) return invalid(where + " has a model twice");
  }
  return std::nullopt;
}

Breach check_place(const GpuletReport& report, const schedule::Device& device,
                   const std::string& where) {
  if (!report.size.valid()) return invalid(where + ": its size must be within 1..100 percent");
  if (device.mig.has_value() != report.instance.has_value()) {
    return invalid(where + ": it must be in an instance exactly where MIG divides its device");
  }
  if (report.instance && !device.mig->exists(*report.instance))
    return invalid(where + ": its device has no instance " + to_string(*report.instance));
  return std::nullopt;
}

Breach check_owner(GpuletId id, const std::string& node, const BackendRegistry& backends,
                   const RunIds& ids) {
  const auto claim = [&](std::string_view why) {
    return breach_by(PeerViolation::foreign_gpulet,
                     fmt::format("its Hello claims {}, {}", name_of(id), why));
  };
  if (id >= ids.next && id < ids.end) return claim("which was never given to any node");
  const auto owner = backends.issued_to(id);
  if (owner && *owner != node) return claim("which was given to another node");
  return std::nullopt;
}

}  // namespace

namespace {

// `devices`: those of the node, by number.
Breach check_gpulets(const std::vector<GpuletReport>& gpulets, const std::string& node,
                     const std::map<std::uint32_t, const schedule::Device*>& devices,
                     const BackendRegistry& backends, const RunIds& ids) {
  if (gpulets.size() > kMostHelloGpulets)
    return invalid(fmt::format("a node has at most {} gpulets", kMostHelloGpulets));
  std::set<GpuletId> seen;
  for (const GpuletReport& report : gpulets) {
    const std::string where = name_of(report.id);
    if (!seen.insert(report.id).second) return invalid(where + " is named twice");
    const auto device = devices.find(report.device);
    if (device == devices.end())
      return invalid(fmt::format("{} is on device {}, which is not in it", where, report.device));
    if (Breach wrong = check_place(report, *device->second, where)) return wrong;
    if (Breach wrong = check_models(report.models, where)) return wrong;
    if (Breach wrong = check_part(report.part, where)) return wrong;
    if (!is_line(report.owner)) return invalid(where + ": its owner must be a line of text");
    if (Breach wrong = check_owner(report.id, node, backends, ids)) return wrong;
  }
  return std::nullopt;
}

}  // namespace

std::optional<PeerBreach> check_state(BackendId from, const BackendState& state,
                                      const BackendRegistry& backends, const RunIds& ids) {
  const BackendRecord& backend = backends.backends().at(from);
  std::map<std::uint32_t, const schedule::Device*> devices;
  for (const DeviceOffer& offer : backend.devices)
    devices.emplace(offer.device.key.device, &offer.device);
  return check_gpulets(state.gpulets, backend.node, devices, backends, ids);
}

std::optional<PeerBreach> check_hello(const Hello& hello, const BackendRegistry& backends,
                                      const RunIds& ids) {
  if (!is_name(hello.node)) {
    return invalid(
        fmt::format("a node's name has 1 to {} letters, digits, '.', '_' and '-'", kLongestName));
  }
  if (!is_possible(hello.term)) return invalid("it obeyed a frontend of a term that none can have");
  if (hello.devices.size() > kMostHelloDevices)
    return invalid(fmt::format("a node has at most {} devices", kMostHelloDevices));
  std::map<std::uint32_t, const schedule::Device*> devices;
  for (const DeviceOffer& offer : hello.devices) {
    if (Breach wrong = check_device(offer, hello.node)) return wrong;
    if (!devices.emplace(offer.device.key.device, &offer.device).second)
      return invalid(number_of(offer.device.key.device) + " is named twice");
  }
  if (Breach wrong = check_gpulets(hello.gpulets, hello.node, devices, backends, ids)) return wrong;
  for (const auto& [id, other] : backends.backends()) {
    if (other.node != hello.node) continue;
    return breach_by(
        PeerViolation::node_taken,
        fmt::format("a backend with the node name {} is connected already; give each backend a "
                    "\"node\" of its own",
                    hello.node));
  }
  return std::nullopt;
}

}  // namespace gpulet::serve

#include "gpulet/serve/hello_check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "gpulet/schedule/validate_device.h"
#include "gpulet/serve/fleet.h"

namespace gpulet::serve {
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

Breach invalid(std::string why) {
  return PeerBreach{PeerViolation::invalid_hello, {StatusCode::invalid, "its Hello: " + why}};
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

std::string device_name(std::uint32_t device) { return "device " + std::to_string(device); }

Breach check_device(const DeviceOffer& offer, const std::string& node) {
  const schedule::Device& device = offer.device;
  const std::string where = device_name(device.key.device);
  if (device.key.node != node) return invalid(where + " is another node's");
  if (device.key.device >= kMostHelloDevices) {
    return invalid(where + ": the largest number that a device may have is " +
                   std::to_string(kMostHelloDevices - 1));
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

Breach check_part(const PlanPart& part, const std::string& where) {
  if (!within(part.duty_cycle_ms, kLongestMs))
    return invalid(where + ": its duty cycle must be within a day");
  if (part.assignments.size() > kMostHelloModels)
    return invalid(where + ": its part of a plan has too many models");
  if (part.service == schedule::Service::controlled && part.assignments.size() > 1)
    return invalid(where + ": an executable with controlled cores has one model");
  std::set<std::string_view> seen;
  for (const schedule::Assignment& one : part.assignments) {
    if (!is_sane(one)) return invalid(where + ": its part of a plan has numbers beyond all bounds");
    if (!seen.insert(one.model).second)
      return invalid(where + ": its part of a plan names a model twice");
  }
  return std::nullopt;
}

Breach check_models(const std::vector<schedule::LoadedModel>& models, const std::string& where) {
  if (models.size() > kMostHelloModels) return invalid(where + " has too many models");
  std::set<std::string_view> seen;
  for (const schedule::LoadedModel& model : models) {
    if (model.name.empty() || !is_line(model.name) || !is_line(model.version))
      return invalid(where + ": a model's name and version must be lines of text");
    if (model.max_batch > kLargestBatch)
      return invalid(where + ": a batch of more than " + std::to_string(kLargestBatch));
    if (!seen.insert(model.name).second) return invalid(where + " has a model twice");
  }
  return std::nullopt;
}

Breach check_place(const GpuletReport& told, const schedule::Device& device,
                   const std::string& where) {
  if (!told.size.valid()) return invalid(where + ": its size must be within 1..100 percent");
  if (device.mig.has_value() != told.instance.has_value()) {
    return invalid(where + ": it must be in an instance exactly where MIG divides its device");
  }
  if (told.instance && !device.mig->exists(*told.instance))
    return invalid(where + ": its device has no instance " + to_string(*told.instance));
  return std::nullopt;
}

Breach check_owner(GpuletId id, const std::string& node, const Fleet& fleet, const RunIds& ids) {
  const auto claim = [&](const std::string& why) {
    return PeerBreach{PeerViolation::foreign_gpulet,
                      {StatusCode::invalid, "its Hello claims " + name_of(id) + ", " + why}};
  };
  if (id >= ids.next && id < ids.end) return claim("which was never given to any node");
  const auto owner = fleet.issued_to(id);
  if (owner && *owner != node) return claim("which was given to another node");
  return std::nullopt;
}

}  // namespace

std::optional<PeerBreach> check_hello(const Hello& hello, const Fleet& fleet, const RunIds& ids) {
  if (!is_name(hello.node)) {
    return invalid("a node's name has 1 to " + std::to_string(kLongestName) +
                   " letters, digits, '.', '_' and '-'");
  }
  if (hello.devices.size() > kMostHelloDevices || hello.gpulets.size() > kMostHelloGpulets) {
    return invalid("a node has at most " + std::to_string(kMostHelloDevices) + " devices and " +
                   std::to_string(kMostHelloGpulets) + " gpulets");
  }
  std::map<std::uint32_t, const schedule::Device*> devices;
  for (const DeviceOffer& offer : hello.devices) {
    if (Breach wrong = check_device(offer, hello.node)) return wrong;
    if (!devices.emplace(offer.device.key.device, &offer.device).second)
      return invalid(device_name(offer.device.key.device) + " is named twice");
  }
  std::set<GpuletId> seen;
  for (const GpuletReport& told : hello.gpulets) {
    const std::string where = name_of(told.id);
    if (!seen.insert(told.id).second) return invalid(where + " is named twice");
    const auto device = devices.find(told.device);
    if (device == devices.end())
      return invalid(where + " is on " + device_name(told.device) + ", which is not in it");
    if (Breach wrong = check_place(told, *device->second, where)) return wrong;
    if (Breach wrong = check_models(told.models, where)) return wrong;
    if (Breach wrong = check_part(told.part, where)) return wrong;
    if (Breach wrong = check_owner(told.id, hello.node, fleet, ids)) return wrong;
  }
  for (const auto& [id, other] : fleet.backends()) {
    if (other.node != hello.node) continue;
    return PeerBreach{PeerViolation::node_taken,
                      {StatusCode::invalid,
                       "a backend with the node name " + hello.node +
                           " is connected already; give each backend a \"node\" of its own"}};
  }
  return std::nullopt;
}

}  // namespace gpulet::serve

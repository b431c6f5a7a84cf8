#include "gpulet/serve/exclusions.h"

#include <algorithm>
#include <utility>

#include "serve/wording.h"

namespace gpulet::serve {
namespace {

// Nodes that came and went; beyond that the one that joined first is forgotten.
constexpr std::size_t kMostStays = 4096;

}  // namespace

Duration Exclusions::pause(std::uint32_t failures) const {
  Duration pause = options_.first;
  for (std::uint32_t i = 1; i < failures && pause < options_.longest; ++i) pause *= 2;
  return std::min(pause, options_.longest);
}

void Exclusions::count(const Key& key, FailureCause cause, Status error, GpuletId next_gpulet,
                       Time now) {
  Entry& entry = entries_[key];
  entry.told.node = key.first;
  entry.told.device = key.second;
  entry.told.cause = cause;
  entry.told.error = std::move(error);
  entry.told.until = now + pause(++entry.told.failures);
  entry.next_gpulet = std::max(entry.next_gpulet, next_gpulet);
  entry.in_force = true;
}

void Exclusions::failed(const schedule::DeviceKey& device, GpuletId gpulet, FailureCause cause,
                        Status error, GpuletId next_gpulet, Time now) {
  Key key{device.node, device.device};
  if (is_node_cause(cause)) key.second.reset();
  const auto known = entries_.find(key);
  if (known != entries_.end() && known->second.in_force && gpulet < known->second.next_gpulet)
    return;
  count(key, cause, std::move(error), next_gpulet, now);
}

void Exclusions::ready(const schedule::DeviceKey& device, GpuletId gpulet) {
  for (const Key& key : {Key{device.node, std::nullopt}, Key{device.node, device.device}}) {
    const auto found = entries_.find(key);
    if (found == entries_.end() || found->second.in_force) continue;
    if (gpulet >= found->second.next_gpulet) entries_.erase(found);
  }
}

void Exclusions::absolve(const std::string& node) {
  std::erase_if(entries_, [&node](const auto& one) {
    return one.first.first == node && one.first.second.has_value() &&
           !is_machine_cause(one.second.told.cause);
  });
}

void Exclusions::joined(const std::string& node, bool anew, Time now) {
  Stay& stay = stays_[node];
  stay.joined = now;
  if (anew && stay.short_ones == 0)
    std::erase_if(entries_, [&node](const auto& one) { return one.first.first == node; });
  if (stays_.size() <= kMostStays) return;
  stays_.erase(std::min_element(stays_.begin(), stays_.end(), [](const auto& a, const auto& b) {
    return a.second.joined < b.second.joined;
  }));
}

void Exclusions::left(const std::string& node, const Status& reason, Time now) {
  const auto found = stays_.find(node);
  if (found == stays_.end()) return;
  Stay& stay = found->second;
  if (now - stay.joined >= options_.short_stay) {
    stays_.erase(found);
    return;
  }
  if (++stay.short_ones < options_.short_stays) return;
  const Status error =
      reason.within("its backend left soon after it joined, " + std::to_string(stay.short_ones) +
                    " times in a row; see the backend's log");
  count({node, std::nullopt}, FailureCause::unknown, error, {}, now);
}

const Exclusion* Exclusions::of(const schedule::DeviceKey& device) const {
  for (const Key& key : {Key{device.node, std::nullopt}, Key{device.node, device.device}}) {
    const auto found = entries_.find(key);
    if (found != entries_.end() && found->second.in_force) return &found->second.told;
  }
  return nullptr;
}

bool Exclusions::allows(const schedule::DeviceKey& device) const { return of(device) == nullptr; }

std::vector<Exclusion> Exclusions::in_force() const {
  std::vector<Exclusion> all;
  for (const auto& [key, entry] : entries_) {
    if (entry.in_force) all.push_back(entry.told);
  }
  return all;
}

std::vector<std::string> Exclusions::expire(Time now) {
  std::vector<std::string> over;
  for (auto& [key, entry] : entries_) {
    if (!entry.in_force || entry.told.until > now) continue;
    entry.in_force = false;
    over.push_back(excluded_name(entry.told));
  }
  // Long ago: the next failure is a first one.
  std::erase_if(entries_, [&](const auto& one) {
    return !one.second.in_force && now >= one.second.told.until + 2 * options_.longest;
  });
  return over;
}

}  // namespace gpulet::serve

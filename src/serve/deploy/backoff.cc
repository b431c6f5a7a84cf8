#include "serve/deploy/backoff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gpulet/base/time.h"
#include "serve/values/event_log.h"

namespace gpulet::serve {
namespace {

// Bounds the remembered nodes; the one that joined first is forgotten first.
constexpr std::size_t kMostStays = 4096;

}  // namespace

void Exclusions::count(const Key& key, FailureCause cause, Status error, GpuletId next_gpulet,
                       Time now) {
  Entry& entry = entries_[key];
  entry.exclusion.node = key.first;
  entry.exclusion.device = key.second;
  entry.exclusion.cause = cause;
  entry.exclusion.error = std::move(error);
  entry.exclusion.until =
      now + backoff_after(++entry.exclusion.failures, options_.first, options_.longest);
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
           !is_machine_cause(one.second.exclusion.cause);
  });
}

void Exclusions::joined(const std::string& node, bool fresh, Time now) {
  Stay& stay = stays_[node];
  stay.joined = now;
  if (fresh && stay.short_ones == 0)
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
  const Status error = reason.within(
      fmt::format("its backend left soon after it joined, {} times in a row; see the backend's log",
                  stay.short_ones));
  count({node, std::nullopt}, FailureCause::unknown, error, {}, now);
}

const Exclusion* Exclusions::of(const schedule::DeviceKey& device) const {
  for (const Key& key : {Key{device.node, std::nullopt}, Key{device.node, device.device}}) {
    const auto found = entries_.find(key);
    if (found != entries_.end() && found->second.in_force) return &found->second.exclusion;
  }
  return nullptr;
}

std::vector<Exclusion> Exclusions::in_force() const {
  std::vector<Exclusion> all;
  for (const auto& [key, entry] : entries_) {
    if (entry.in_force) all.push_back(entry.exclusion);
  }
  return all;
}

std::vector<std::string> Exclusions::expire(Time now) {
  std::vector<std::string> over;
  for (auto& [key, entry] : entries_) {
    if (!entry.in_force || entry.exclusion.until > now) continue;
    entry.in_force = false;
    over.push_back(excluded_name(entry.exclusion));
  }
  // After this long, the next failure counts as the first.
  std::erase_if(entries_, [&](const auto& one) {
    return !one.second.in_force && now >= one.second.exclusion.until + 2 * options_.longest;
  });
  return over;
}

void Quarantine::suspect(const std::string& model, Time now) {
  Model& one = models_[model];
  one.suspected = true;
  one.crashes_others = true;
  one.last_crash = now;
}

void Quarantine::hung(const std::string& model, Time now) {
  Model& one = models_[model];
  one.suspected = true;
  one.last_crash = now;
}

// ---- NodeFaults

namespace {

// In a row. Batches that fail in one moment have one cause, which may be over.
constexpr std::uint32_t kFailedBatches = 3;
constexpr Duration kFailingFor = std::chrono::milliseconds(500);
constexpr std::uint32_t kLostProcesses = 2;
// Bounds what is remembered.
constexpr std::size_t kMostEntries = 4096;

}  // namespace

void NodeFaults::succeeded(const std::string& model, const std::string& node) {
  if (entries_.empty()) return;
  const auto found = entries_.find({model, node});
  if (found == entries_.end() || in_force_.contains(found->first)) return;
  found->second.failures = 0;
  found->second.processes = 0;
}

bool NodeFaults::fails(const std::string& model, const std::string& node) const {
  const auto found = entries_.find({model, node});
  return found != entries_.end() &&
         (in_force_.contains(found->first) || found->second.failures >= kFailedBatches ||
          found->second.processes >= kLostProcesses);
}

bool NodeFaults::failed(const std::string& model, const std::string& node, bool process,
                        const std::set<std::string>& others, Time now) {
  if (entries_.size() >= kMostEntries && !entries_.contains({model, node})) return false;
  Entry& entry = entries_[{model, node}];
  if (entry.failures++ == 0) entry.first = now;
  if (process) ++entry.processes;
  if (in_force_.contains({model, node})) return false;
  const bool lasts = entry.failures >= kFailedBatches && now - entry.first >= kFailingFor;
  if (!lasts && entry.processes < kLostProcesses) return false;
  const bool elsewhere = std::any_of(
      others.begin(), others.end(), [&](const std::string& other) { return !fails(model, other); });
  if (!elsewhere) {
    forget(model);
    return false;
  }
  entry.pause = backoff_after(++entry.pauses, options_.first, options_.longest);
  entry.until = now + entry.pause;
  in_force_.emplace(model, node);
  return true;
}

std::vector<NodeFaults::Pair> NodeFaults::expire(Time now) {
  std::vector<Pair> over;
  for (auto& [pair, entry] : entries_) {
    if (!in_force_.contains(pair) || entry.until > now) continue;
    in_force_.erase(pair);
    entry.failures = 0;
    entry.processes = 0;
    over.push_back(pair);
  }
  std::erase_if(entries_, [&](const auto& one) {
    const Entry& entry = one.second;
    const Time last = std::max(entry.first, entry.until);
    return !in_force_.contains(one.first) && now >= last + 2 * options_.longest;
  });
  return over;
}

void NodeFaults::forget(const std::string& model) {
  std::erase_if(entries_, [&model](const auto& one) { return one.first.first == model; });
  std::erase_if(in_force_, [&model](const auto& one) { return one.first == model; });
}

Duration NodeFaults::pause_of(const std::string& model, const std::string& node) const {
  const auto found = entries_.find({model, node});
  return found == entries_.end() ? Duration() : found->second.pause;
}

// ---- Quarantine

bool Quarantine::crashed(const std::string& model, std::string how, Time now,
                         const CrashPlace& where) {
  suspect(model, now);
  Model& one = models_[model];
  ++one.crashes;
  one.how = std::move(how);
  if (one.held) return false;  // a batch that was in flight when the quarantine began
  one.recent.emplace_back(now, where.node);
  while (one.recent.front().first + options_.window < now) one.recent.pop_front();
  while (one.recent.size() > 2 * std::size_t{options_.crashes}) one.recent.pop_front();
  const bool relapse = one.quarantines > 0 && now < one.until + options_.relapse_within;
  if (!relapse && one.recent.size() < options_.crashes) return false;
  const bool one_node = std::all_of(one.recent.begin(), one.recent.end(),
                                    [&where](const auto& at) { return at.second == where.node; });
  if (!relapse && one_node && where.elsewhere) return false;
  if (!relapse) one.quarantines = 0;
  one.until = now + backoff_after(++one.quarantines, options_.first, options_.longest);
  one.held = true;
  return true;
}

bool Quarantine::release(const std::string& model) {
  const auto found = models_.find(model);
  if (found == models_.end()) return false;
  const bool held = found->second.held;
  const std::uint64_t crashes = found->second.crashes;
  found->second = Model();
  found->second.crashes = crashes;
  return held;
}

std::vector<std::string> Quarantine::tick(Time now) {
  std::vector<std::string> ended;
  for (auto& [name, model] : models_) {
    if (model.held && model.until <= now) {
      model.held = false;
      model.recent.clear();
      model.last_crash = now;  // it stays a suspect from here on
      ended.push_back(name);
    }
    if (!model.held && model.last_crash + options_.suspect_for <= now)
      model.suspected = model.crashes_others = false;
  }
  return ended;
}

bool Quarantine::holds(std::string_view model) const {
  const auto found = models_.find(model);
  return found != models_.end() && found->second.held;
}

bool Quarantine::suspects(std::string_view model) const {
  const auto found = models_.find(model);
  return found != models_.end() && found->second.suspected;
}

bool Quarantine::may_share(std::string_view model) const {
  const auto found = models_.find(model);
  return found == models_.end() || !found->second.crashes_others;
}

Duration Quarantine::left(std::string_view model, Time now) const {
  const auto found = models_.find(model);
  if (found == models_.end() || !found->second.held) return {};
  return std::max(Duration::zero(), found->second.until - now);
}

std::uint64_t Quarantine::crashes(std::string_view model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? 0 : found->second.crashes;
}

std::string Quarantine::why(std::string_view model, Time now) const {
  const auto found = models_.find(model);
  if (found == models_.end() || !found->second.held) return {};
  const auto seconds = static_cast<long>(std::ceil(to_seconds(left(model, now))));
  return fmt::format(
      "in quarantine: processes serving it crashed {} times, the last one {}; try again in {} s, "
      "or end the quarantine with `gpulet models load {}`",
      found->second.crashes, found->second.how, std::max(1L, seconds), model);
}

}  // namespace gpulet::serve

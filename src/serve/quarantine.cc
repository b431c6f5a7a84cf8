#include "gpulet/serve/quarantine.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gpulet::serve {

void Quarantine::suspect(const std::string& model, Time now) {
  Model& one = models_[model];
  one.suspected = true;
  one.last_crash = now;
}

bool Quarantine::crashed(const std::string& model, std::string how, Time now) {
  suspect(model, now);
  Model& one = models_[model];
  ++one.crashes;
  one.how = std::move(how);
  if (one.held) return false;  // a batch that was under way
  one.recent.push_back(now);
  while (one.recent.front() + options_.window < now) one.recent.pop_front();
  const bool relapse = one.quarantines > 0 && now < one.until + options_.relapse_within;
  if (!relapse && one.recent.size() < options_.crashes) return false;
  if (!relapse) one.quarantines = 0;
  Duration length = options_.first;
  for (std::uint32_t i = 0; i < one.quarantines && length < options_.longest; ++i) length *= 2;
  ++one.quarantines;
  one.until = now + std::min(length, options_.longest);
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
      model.last_crash = now;  // suspected from here on
      ended.push_back(name);
    }
    if (!model.held && model.last_crash + options_.suspect_for <= now) model.suspected = false;
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
  return "in quarantine: processes serving it crashed " + std::to_string(found->second.crashes) +
         " times, the last one " + found->second.how + "; try again in " +
         std::to_string(std::max(1L, seconds)) +
         " s, or end the quarantine with `gpulet models load " + std::string(model) + "`";
}

}  // namespace gpulet::serve

// The policies by name.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/schedule/policy.h"
#include "schedule/policies.h"

namespace gpulet::schedule {

static_assert(std::adjacent_find(kOwnPolicies.begin(), kOwnPolicies.end(),
                                 [](const PolicyRow& a, const PolicyRow& b) {
                                   return a.name >= b.name;
                                 }) == kOwnPolicies.end(),
              "kOwnPolicies is in the order of the names, and has each once");

void PolicyTable::add(std::string_view name, PlanFunction plan, PolicyTraits traits) {
  entries_.insert_or_assign(
      name, Entry{name, [name, plan = std::move(plan), traits](std::string_view) -> Made {
                    return policy_of(name, plan, traits);
                  }});
}

void PolicyTable::add_with_argument(std::string_view name, std::string_view usage, Make make) {
  entries_.insert_or_assign(name, Entry{usage, std::move(make)});
}

void PolicyTable::refuse(std::string_view name, Status why) {
  entries_.insert_or_assign(
      name, Entry{{}, [why = std::move(why)](std::string_view) -> Made { return why; }});
}

PolicyTable::Made PolicyTable::make(std::string_view name) const {
  const std::size_t colon = name.find(':');
  const auto known = entries_.find(name.substr(0, colon));
  if (known != entries_.end()) {
    const bool stands_alone = known->second.usage == known->first;
    if (colon == std::string_view::npos) return known->second.make({});
    if (!stands_alone) return known->second.make(name.substr(colon + 1));
  }
  return Status(StatusCode::not_found,
                fmt::format("there is no policy '{}': choose one of {}", name, choices()));
}

std::vector<std::string_view> PolicyTable::names() const {
  std::vector<std::string_view> names;
  for (const auto& [name, entry] : entries_) {
    if (entry.usage == name) names.push_back(name);
  }
  return names;
}

std::string PolicyTable::choices() const {
  std::string text = joined(names());
  for (const auto& [name, entry] : entries_) {
    if (!entry.usage.empty() && entry.usage != name) text += fmt::format(", or {}", entry.usage);
  }
  return text;
}

PolicyTable own_policies() {
  PolicyTable table;
  for (const PolicyRow& row : kOwnPolicies) table.add(row.name, row.plan, row.traits);
  return table;
}

Result<std::unique_ptr<Policy>> make_policy(std::string_view name) {
  return own_policies().make(name);
}

std::vector<std::string_view> policy_names() { return own_policies().names(); }

}  // namespace gpulet::schedule

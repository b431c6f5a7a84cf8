#include <charconv>
#include <system_error>
#include <utility>

#include "config/model_reading.h"
#include "config/wording.h"

namespace gpulet::config {
namespace {

constexpr double kLongestTimeoutMs = 24 * 3600 * 1000.0;
constexpr std::uint32_t kLongestQueue = 1U << 20U;

QueuePolicy read_policy(const JsonCursor& cursor) {
  cursor.allow_keys(
      {"timeout_action", "default_timeout_ms", "allow_timeout_override", "max_queue_size"});
  QueuePolicy policy;
  if (const auto action = cursor.find("timeout_action")) {
    policy.timeout_action =
        action->choice({"reject", "delay"}) == 1 ? TimeoutAction::delay : TimeoutAction::reject;
  }
  if (const auto timeout = cursor.find("default_timeout_ms"))
    policy.default_timeout = from_ms(timeout->number(between(0, kLongestTimeoutMs)));
  if (const auto allowed = cursor.find("allow_timeout_override"))
    policy.allow_timeout_override = allowed->truth();
  if (const auto size = cursor.find("max_queue_size"))
    policy.max_queue_size = size->count(0, kLongestQueue);
  return policy;
}

void read_levels(const JsonCursor& cursor, QueueRules& rules) {
  const std::string range = "from 1 to " + std::to_string(rules.priority_levels);
  if (rules.priority_levels == 0) {
    for (const std::string_view key : {"default_priority_level", "level_policies"}) {
      if (const auto found = cursor.find(key)) {
        found->fail("there are no levels without priority_levels",
                    R"(write "priority_levels" beside it, or take it out)");
      }
    }
    return;
  }
  rules.default_priority_level =
      cursor.required("default_priority_level").count(1, rules.priority_levels);
  const auto policies = cursor.find("level_policies");
  if (!policies) return;
  for (const auto& [name, policy] : policies->members()) {
    std::uint32_t level = 0;
    const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), level);
    const bool whole = failure == std::errc() && end == name.data() + name.size();
    if (!whole || name.starts_with('0') || level < 1 || level > rules.priority_levels) {
      policy.fail(in_quotes(name) + " is none of its levels", "write a level " + range);
      continue;
    }
    rules.level_policies.emplace(level, read_policy(policy));
  }
}

}  // namespace

std::optional<QueueRules> read_queue(const JsonCursor& model) {
  const auto cursor = model.find("queue");
  if (!cursor) return std::nullopt;
  cursor->allow_keys(
      {"priority_levels", "default_priority_level", "default_policy", "level_policies"});
  QueueRules rules;
  if (const auto levels = cursor->find("priority_levels"))
    rules.priority_levels = levels->count(0, kMostPriorityLevels);
  read_levels(*cursor, rules);
  if (const auto policy = cursor->find("default_policy"))
    rules.default_policy = read_policy(*policy);
  return rules == QueueRules{} ? std::nullopt : std::optional(std::move(rules));
}

}  // namespace gpulet::config

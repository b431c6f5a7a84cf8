#include "serve/values/event_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace gpulet::serve {
namespace {

constexpr std::size_t kEventsKept = 50;
constexpr Duration kRepeatedWithin = std::chrono::seconds(60);  // counts as the same event
// Plans in force that are kept; fewer where they are large.
constexpr std::size_t kPlansKept = 8;
constexpr std::size_t kGpuletsKept = 8192;

}  // namespace

void EventLog::keep(StatusEvent event) {
  const auto before = std::find_if(events_.begin(), events_.end(), [&](const StatusEvent& other) {
    if (event.time - other.time > kRepeatedWithin || other.kind != event.kind) return false;
    const bool replaces =
        event.kind == StatusEvent::Kind::other_rates || event.kind == StatusEvent::Kind::shortage;
    return replaces || (other.text == event.text && other.warning == event.warning);
  });
  if (before != events_.end()) {
    event.count = before->count + 1;
    events_.erase(before);
  }
  events_.push_back(std::move(event));
  if (events_.size() > kEventsKept) events_.pop_front();
}

void EventLog::note(bool warning, std::string text, Time now, FrontendEffects& effects,
                    StatusEvent::Kind kind) {
  keep({now, text, warning, kind});
  effects.emplace_back(EventNote{warning, std::move(text)});
}

void EventLog::note_plan(const PlanDecision& decision, std::string text, Time now,
                         FrontendEffects& effects) {
  StatusEvent event{now, text};
  event.kind =
      decision.moves_gpulets() ? StatusEvent::Kind::reorganisation : StatusEvent::Kind::other_rates;
  event.plan = decision.number;
  keep(std::move(event));
  effects.emplace_back(EventNote{false, std::move(text)});
}

bool PlanDecision::moves_gpulets() const {
  return retired > 0 || std::find(created.begin(), created.end(), true) != created.end();
}

void PlanHistory::decide(PlanDecision decision, std::uint32_t devices_before) {
  const std::uint32_t after = decision.plan.devices_used();
  if (after > devices_before) counters_.devices_taken += after - devices_before;
  if (after < devices_before) counters_.devices_given_back += devices_before - after;
  decision_ = std::make_shared<const PlanDecision>(std::move(decision));
}

void PlanHistory::in_force(Epoch epoch, Duration took, Time now) {
  counters_.last_took = took;
  counters_.longest_took = std::max(counters_.longest_took, took);
  counters_.took.record(took);
  ++counters_.plans;
  const PlanInForce newest{decision_, epoch, now, now - decision_->decided};
  if (!plans_.empty() && plans_.back().decision == decision_) {
    plans_.back() = newest;
  } else {
    plans_.push_back(newest);
  }
  std::size_t gpulets = 0;
  for (const PlanInForce& plan : plans_) gpulets += plan.decision->plan.gpulets.size();
  while (plans_.size() > kPlansKept || (plans_.size() > 1 && gpulets > kGpuletsKept)) {
    gpulets -= plans_.front().decision->plan.gpulets.size();
    plans_.pop_front();
  }
}

std::optional<schedule::UnservedDetail> PlanHistory::missing(const std::string& model) const {
  if (plans_.empty()) return std::nullopt;
  const auto& missing = plans_.back().decision->explanation.missing;  // sorted by model
  const auto found =
      std::lower_bound(missing.begin(), missing.end(), model,
                       [](const auto& one, const auto& name) { return one.model < name; });
  if (found == missing.end() || found->model != model) return std::nullopt;
  return *found;
}

std::string per_second(double rate) { return fmt::format("{:.1f}/s", rate); }

std::string counted(std::uint64_t count, const std::string& singular) {
  return fmt::format("{} {}{}", count, singular, count == 1 ? "" : "s");
}

std::string device_name(const schedule::DeviceKey& device) {
  return fmt::format("{}/{}", device.node, device.device);
}

std::string excluded_name(const Exclusion& exclusion) {
  if (!exclusion.device) return "node " + exclusion.node;
  return "device " + device_name({exclusion.node, *exclusion.device});
}

std::string how_it_ended(FailureCause cause, const ProcessEnd& end) {
  if (cause == FailureCause::hung) return "hung and was ended";
  if (end.signal != 0) return "ended by signal " + std::to_string(end.signal);
  return "ended with exit status " + std::to_string(end.exit_status);
}

}  // namespace gpulet::serve

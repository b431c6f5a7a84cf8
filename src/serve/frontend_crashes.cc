// FrontendCore: processes that crash or hang under a model's batches.
#include <algorithm>
#include <utility>

#include "gpulet/serve/frontend_core.h"
#include "serve/wording.h"

namespace gpulet::serve {

void FrontendCore::process_lost(const LostProcess& lost, Time now, FrontendEffects& effects) {
  const FleetGpulet* const gpulet = fleet_.find(lost.gpulet);
  const std::string place =
      gpulet == nullptr ? std::string() : " on " + device_name(gpulet->device);
  const std::string how = how_it_ended(lost.cause, lost.end);
  note(true,
       "the process serving " + joined(lost.models, ", ") + place + " " + how + " while running " +
           counted(lost.requests, "request"),
       now, effects);
  if (lost.cause != FailureCause::model_crash) return;
  const bool is_known = lost.models.size() == 1;
  for (const std::string& name : lost.models) {
    if (versions_.find(name) == nullptr) continue;
    const bool first = !quarantine_.suspects(name);
    if (!is_known) {
      quarantine_.suspect(name, now);
    } else if (quarantine_.crashed(name, how, now)) {
      quarantine(name, now, effects);
    }
    if (first && has_company(name)) {
      want_plan("processes of " + name + " crash: it gets gpulets of its own");
      plan_urgent_ = true;
    }
  }
}

void FrontendCore::quarantine(const std::string& name, Time now, FrontendEffects& effects) {
  const std::string text = "model " + name + " is " + quarantine_.why(name, now);
  note(true, text, now, effects);
  NamedModel& known = *versions_.find(name);
  known.waking = false;
  DispatchOutput output;
  dispatcher_.refuse_waiting(known.current.index, {StatusCode::unavailable, text}, now, output);
  emit(std::move(output), effects);
  want_plan("model " + name + " is in quarantine");
  plan_urgent_ = true;
}

void FrontendCore::end_quarantines(Time now, FrontendEffects& effects) {
  for (const std::string& name : quarantine_.tick(now)) {
    note(false, "the quarantine of model " + name + " is over: it is tried again", now, effects);
    want_plan("the quarantine of " + name + " is over");
  }
}

bool FrontendCore::has_company(const std::string& name) const {
  return std::any_of(serving_.begin(), serving_.end(), [&name](const auto& entry) {
    const std::vector<schedule::Assignment>& held = entry.second.assignments;
    return held.size() > 1 && std::any_of(held.begin(), held.end(),
                                          [&name](const auto& one) { return one.model == name; });
  });
}

}  // namespace gpulet::serve

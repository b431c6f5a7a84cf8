#include "serve/adapt/trials.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <vector>

namespace gpulet::serve {
namespace {

struct Candidate {
  schedule::ModelDemand* demand = nullptr;
  NamedModel* known = nullptr;
  bool in_progress = false;
};

bool nothing_proven(const ModelTable& models) {
  return std::none_of(models.all().begin(), models.all().end(), [](const auto& entry) {
    const NamedModel& known = entry.second;
    return known.current.proven || (known.next && known.next->proven);
  });
}

// Versions that some gpulet is being prepared for.
std::set<std::string> versions_in_progress(const BackendRegistry& backends) {
  std::set<std::string> versions;
  for (const auto& [id, gpulet] : backends.gpulets()) {
    if (gpulet.state != GpuletState::preparing || gpulet.retiring) continue;
    for (const schedule::RunningModel& model : gpulet.models)
      versions.insert(model.name + '/' + model.version);
  }
  return versions;
}

void put_off(NamedModel& known, TrialWait wait, Time until) {
  known.wanted().tried_since.reset();
  known.trial_wait = wait;
  known.waits_until = until;
}

}  // namespace

void choose_trials(ModelTable& models, const BackendRegistry& backends, Time now,
                   MakePlan& effect) {
  const bool cold = nothing_proven(models);
  const std::set<std::string> in_progress = versions_in_progress(backends);
  std::vector<Candidate> candidates;
  std::set<std::string> left_out;
  for (schedule::ModelDemand& demand : effect.request.demands) {
    NamedModel* const known = models.find(demand.name);
    if (known == nullptr) continue;
    if (known->trial_wait == TrialWait::room && now < known->waits_until) {
      if (!known->next || !known->current.proven) left_out.insert(demand.name);
      continue;
    }
    known->trial_wait = TrialWait::none;
    ModelVersion& version = known->wanted();
    if (version.proven) continue;
    if (version.trial == Trial::none) version.trial = cold ? Trial::together : Trial::alone;
    if (version.trial == Trial::together) continue;
    candidates.push_back({&demand, known, in_progress.contains(demand.name + '/' + version.id)});
  }
  const auto rank = [](const Candidate& one) {
    const bool was_slow = one.known->slow_version == one.known->wanted().id;
    return std::tuple(!one.in_progress, was_slow, one.known->wanted().trial == Trial::suspect,
                      std::string_view(one.demand->name));
  };
  std::sort(candidates.begin(), candidates.end(),
            [&rank](const auto& a, const auto& b) { return rank(a) < rank(b); });
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& one = candidates[i];
    ModelVersion& version = one.known->wanted();
    const bool replaces = one.known->next && one.known->current.proven;
    if (i >= kTrialsAtOnce) {
      put_off(*one.known, TrialWait::turn, now);
      if (!replaces) left_out.insert(one.demand->name);
      continue;
    }
    one.demand->alone = true;
    const bool may_share = version.trial == Trial::alone && one.known->slow_version != version.id;
    effect.trials.push_back({one.demand->name, may_share, replaces});
  }
  std::erase_if(effect.request.demands,
                [&left_out](const auto& demand) { return left_out.contains(demand.name); });
}

void put_off_trials(ModelTable& models, const std::set<std::string>& names, Time until) {
  for (const std::string& name : names) {
    NamedModel* const known = models.find(name);
    if (known != nullptr && !known->wanted().proven) put_off(*known, TrialWait::room, until);
  }
}

bool trials_wait(const ModelTable& models, Time now) {
  return std::any_of(models.all().begin(), models.all().end(), [now](const auto& entry) {
    return entry.second.trial_wait != TrialWait::none && now >= entry.second.waits_until;
  });
}

}  // namespace gpulet::serve

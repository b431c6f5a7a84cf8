// Setbacks: versions that could not be loaded, and models in backoff or in quarantine. Plans leave
// them out for a while. Pure; one thread at a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "serve/deploy/backoff.h"
#include "serve/models/successions.h"

namespace gpulet::serve {

class Setbacks {
 public:
  // All outlive it.
  Setbacks(const QuarantineOptions& quarantine, ModelTable& models, Successions& successions,
           VersionLifecycle& versions, ResponseWriter& responses, Journal& journal)
      : models_(models),
        successions_(successions),
        versions_(versions),
        responses_(responses),
        journal_(journal),
        quarantine_(quarantine) {}

  // The next plan leaves the model out: it is in backoff or quarantine, refused, stuck or without a
  // file.
  [[nodiscard]] bool withheld(const std::string& name) const;
  [[nodiscard]] bool in_backoff(const std::string& name) const { return backoff_.contains(name); }
  // A gpulet with these models is ready.
  void prove(const std::vector<schedule::RunningModel>& models);
  // The model was removed.
  void forget(const std::string& name);

  // ---- refused versions

  // Refuses the wanted version until `until`.
  void refuse_version(NamedModel& known, const Status& why, Time until, Time now,
                      FrontendEffects& effects);
  // Tries refused versions again whose time has come.
  void retry_refused(Time now, FrontendEffects& effects);
  // Refuses the requests that wait for its current version.
  void refuse_waiting(NamedModel& known, std::string why, Time now, FrontendEffects& effects);

  // ---- backoffs

  // No plan includes the model until `until`.
  void back_off(const std::string& name, Time until) { backoff_[name] = until; }
  // Ends the model's backoff. Returns whether it was in backoff.
  bool end_backoff(const std::string& name) { return backoff_.erase(name) > 0; }
  // Ends the backoffs that are over and requests a plan for these models.
  void expire_backoffs(Time now);

  // ---- quarantines

  [[nodiscard]] const Quarantine& quarantine() const { return quarantine_; }
  [[nodiscard]] Quarantine& quarantine() { return quarantine_; }
  // The quarantine of the model has begun.
  void enter_quarantine(const std::string& name, Time now, FrontendEffects& effects);
  // Ends the quarantines that are over and requests a plan for these models.
  void expire_quarantines(Time now, FrontendEffects& effects);

 private:
  ModelTable& models_;
  Successions& successions_;
  VersionLifecycle& versions_;
  ResponseWriter& responses_;
  Journal& journal_;
  std::map<std::string, Time> backoff_;  // models whose gpulets failed everywhere, until when
  Quarantine quarantine_;
};

}  // namespace gpulet::serve

// Successions: which version of each model gpulets should hold, and how the next one takes over
// from the current one. Pure; one thread at a time.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "serve/deploy/deployment.h"
#include "serve/deploy/plan_requests.h"
#include "serve/deploy/response_writer.h"
#include "serve/dispatch/version_lifecycle.h"
#include "serve/models/model_table.h"

namespace gpulet::serve {

class Successions {
 public:
  // All outlive it.
  Successions(ModelTable& models, VersionLifecycle& versions, ResponseWriter& responses,
              const BackendRegistry& backends, Deployment& deployment, Journal& journal)
      : models_(models),
        versions_(versions),
        responses_(responses),
        backends_(backends),
        deployment_(deployment),
        journal_(journal) {}

  // Warms the version, which takes over when it is ready: at once where the model lacks a file.
  void stage(NamedModel& known, const ServedModel& model, std::string id, Time now,
             FrontendEffects& effects);
  // Gives up the next version, and the rollout that brings it. REQUIRES: there is one.
  void drop_next(NamedModel& known, FrontendEffects& effects);
  // Determines which next versions take over with these routes. Requests that cannot follow to the
  // next version are sent to the old gpulets while these still have routes.
  void begin(const std::vector<GpuletRoute>& routes, Time now, DispatchOutput& output);
  // Lets some versions take over and forgets some unused ones. Repeat while has_more_to_do().
  void go_on(Time now, FrontendEffects& effects);
  // Lets every next version take over: another frontend serves from now on.
  void finish(Time now, FrontendEffects& effects);
  [[nodiscard]] bool has_more_to_do() const { return !due_.empty() || sweep_goes_on_; }
  // Forgets versions that nothing uses any more, some of them in one call.
  void sweep(Time now, FrontendEffects& effects);

  // Another frontend serves the models: the next version of each takes over at once.
  void serve_elsewhere(bool elsewhere) { elsewhere_ = elsewhere; }
  // A plan is being rolled out, or versions of the last one are still taking over.
  [[nodiscard]] bool reorganising() const { return deployment_.rolls_out() || !due_.empty(); }
  // The same, or a plan is wanted or being made.
  [[nodiscard]] bool change_expected() const {
    return reorganising() || journal_.requests().pending() || journal_.requests().any();
  }

 private:
  void take_over(NamedModel& known, DispatchOutput& output, Time now, FrontendEffects& effects);
  void sweep(Time now, DispatchOutput& output);

  ModelTable& models_;
  VersionLifecycle& versions_;
  ResponseWriter& responses_;
  const BackendRegistry& backends_;
  Deployment& deployment_;
  Journal& journal_;
  std::deque<std::string> due_;  // models whose next version has routes and takes over
  bool sweep_goes_on_ = false;   // there are more versions to forget
  bool elsewhere_ = false;
};

}  // namespace gpulet::serve

// StatusReporter: builds the frontend's status, from the state of the other components, which it
// does not change. Pure; one thread at a time.
#pragma once

#include <cstddef>

#include "gpulet/serve/values/frontend_status.h"
#include "serve/status/cluster_reporter.h"
#include "serve/status/gpulet_reporter.h"
#include "serve/status/model_reporter.h"
#include "serve/status/model_status_reporter.h"
#include "serve/status/plan_reporter.h"
#include "serve/status/readiness.h"
#include "serve/status/trouble_reporter.h"

namespace gpulet::serve {

class StatusReporter {
 public:
  // All outlive it.
  struct Reporters {
    const Readiness& readiness;
    const ClusterReporter& cluster;
    const PlanReporter& plans;
    const GpuletReporter& gpulets;
    const ModelStatusReporter& models;
    const TroubleReporter& troubles;
  };

  StatusReporter(const FrontendOptions& options, const Reporters& reporters,
                 const AdaptationReporter& adaptation, const ModelReporter& for_clients)
      : options_(options), from_(reporters), adaptation_(adaptation), for_clients_(for_clients) {}

  // As the functions of FrontendCore.
  [[nodiscard]] FrontendStatus status(Time now) const;
  [[nodiscard]] bool take(StatusInSteps& taken, std::size_t parts) const;

 private:
  // The stages of take(). Each returns whether its stage is complete.
  [[nodiscard]] bool take_whole(StatusInSteps& taken, std::size_t parts) const;
  [[nodiscard]] bool take_backends(StatusInSteps& taken, std::size_t parts) const;
  [[nodiscard]] bool take_gpulets(StatusInSteps& taken, std::size_t parts) const;
  [[nodiscard]] bool take_models(StatusInSteps& taken, std::size_t parts) const;
  [[nodiscard]] bool take_applications(StatusInSteps& taken, std::size_t parts) const;

  const FrontendOptions& options_;
  const Reporters from_;
  const AdaptationReporter& adaptation_;
  const ModelReporter& for_clients_;
};

}  // namespace gpulet::serve

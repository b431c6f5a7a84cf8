// ModelStatusReporter: the models and applications, for the status. It changes nothing. Pure; one
// thread at a time.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "serve/adapt/model_loads.h"
#include "serve/requests/application_runner.h"
#include "serve/status/adaptation_reporter.h"
#include "serve/status/cluster_reporter.h"
#include "serve/status/plan_reporter.h"

namespace gpulet::serve {

class ModelStatusReporter {
 public:
  // All outlive it.
  ModelStatusReporter(const ModelRegistry& models, const ModelLoads& loads,
                      const ApplicationRunner& applications, const PlanReporter& plans,
                      const AdaptationReporter& adaptation, const ClusterReporter& cluster)
      : models_(models),
        loads_(loads),
        applications_(applications),
        plans_(plans),
        adaptation_(adaptation),
        cluster_(cluster) {}

  [[nodiscard]] const ModelTable& models() const { return models_.table(); }
  [[nodiscard]] const ApplicationRunner& applications() const { return applications_; }
  [[nodiscard]] ModelStatus status_of(const std::string& name, const NamedModel& known,
                                      Time now) const;
  [[nodiscard]] ModelStatus status_of(const ApplicationRunner::Row& row, Time now) const;
  // As FrontendCore::model_status().
  [[nodiscard]] std::optional<ModelStatus> status_of(std::string_view name, Time now) const;

 private:
  const ModelRegistry& models_;
  const ModelLoads& loads_;
  const ApplicationRunner& applications_;
  const PlanReporter& plans_;
  const AdaptationReporter& adaptation_;
  const ClusterReporter& cluster_;
};

}  // namespace gpulet::serve

// StatusReporter: builds the frontend's status and the answers to queries about models, from the
// state of the other components, which it does not change. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gpulet/serve/values/frontend_status.h"
#include "serve/adapt/estimates.h"
#include "serve/cluster/ownership.h"
#include "serve/requests/application_gateway.h"
#include "serve/requests/backend_messages.h"
#include "serve/requests/catalogue_update.h"
#include "serve/values/reported_figures.h"

namespace gpulet::serve {

class StatusReporter {
 public:
  // All outlive it.
  struct Dependencies {
    const Dispatcher& dispatcher;
    const Demands& demands;
    const BackendRegistry& backends;
    const BackendMessageHandler& messages;
    const ProfilesInForce& profiles;
    const ModelRegistry& models;
    const ApplicationRunner& applications;
    const ApplicationGateway& gateway;
    const Admission& admission;
    const Leadership& leadership;
    const RouteTable& routes;
    const Forwarder& forwarder;
    const Ownership& ownership;
    const OwnedGpulets& owned;
    const ReportedFigures& figures;
    const CatalogueUpdate& catalogue;
    const FileProblems& file_problems;
    const Exclusions& exclusions;
    const FailureHandler& failures;
    const CpuControl& control;
    const Feedback& feedback;
    const Estimates& estimates;
    const Deployment& deployment;
    const PlanRequests& plan_requests;
    const PlanHistory& history;
    const EventLog& log;
  };

  StatusReporter(const FrontendOptions& options, const Dependencies& dependencies)
      : options_(options), core_(dependencies) {}

  // Measures how busy the gpulets were, `since_last` after the last call.
  void tick(Duration since_last);

  // As the functions of FrontendCore.
  [[nodiscard]] bool serving() const;
  [[nodiscard]] FrontendStatus status(Time now) const;
  [[nodiscard]] bool take(StatusInSteps& taken, std::size_t parts) const;
  [[nodiscard]] std::optional<ModelStatus> model_status(std::string_view name, Time now) const;
  [[nodiscard]] ModelsReply models_after(const std::string& name, std::size_t most) const;
  [[nodiscard]] std::vector<ModelInfo> models(std::vector<std::string> names) const;
  [[nodiscard]] std::optional<ModelView> model(std::string_view name) const;
  // For the other frontends of a cluster; without models while this frontend does not lead.
  [[nodiscard]] ServedModels served_models() const;

 private:
  [[nodiscard]] ModelInfo describe(const std::string& name, const NamedModel& known) const;
  // The same without the model's tensors.
  [[nodiscard]] ServedModelState served_state(const std::string& name,
                                              const NamedModel& known) const;
  // The bucket of a dynamic model whose state is the worst: that is the state of the model.
  struct WorstBucket {
    std::string name;
    const NamedModel* known = nullptr;  // null: none is served
    ModelState state = ModelState::loading;
  };
  [[nodiscard]] WorstBucket worst_bucket(const DynamicModel& dynamic) const;
  [[nodiscard]] std::string reason_of(const WorstBucket& bucket) const;
  [[nodiscard]] ModelInfo describe(const DynamicModel& dynamic) const;
  [[nodiscard]] ModelInfo describe(const DrainingVersion& draining) const;
  [[nodiscard]] ModelInfo describe(const Application& application) const;

  [[nodiscard]] bool is_served(std::string_view name) const;

  // The stages of take(). Each returns whether its stage is complete.
  [[nodiscard]] bool take_whole(StatusInSteps& taken, std::size_t parts) const;
  [[nodiscard]] bool take_backends(StatusInSteps& taken, std::size_t parts) const;
  [[nodiscard]] bool take_gpulets(StatusInSteps& taken, std::size_t parts) const;
  [[nodiscard]] bool take_models(StatusInSteps& taken, std::size_t parts) const;
  [[nodiscard]] bool take_applications(StatusInSteps& taken, std::size_t parts) const;
  // Of all owners.
  [[nodiscard]] GpuletStatistics statistics_of(GpuletId id) const;
  [[nodiscard]] GpuletStatus status_of(GpuletId id, const GpuletRecord& gpulet, Time now) const;
  [[nodiscard]] ModelStatus status_of(const std::string& name, const NamedModel& known,
                                      Time now) const;
  [[nodiscard]] ModelStatus status_of(const ApplicationRunner::Row& row, Time now) const;
  void add_to_device(DeviceStatus& device, GpuletId id, const GpuletRecord& gpulet) const;
  // The fraction of its device that the gpulet has now.
  [[nodiscard]] double fraction_of_device(GpuletId id, const GpuletRecord& gpulet) const;

  const FrontendOptions& options_;
  const Dependencies core_;

  struct Busy {
    double fraction = 0;  // of the last tick
    Duration executed_at_tick{};
  };
  std::unordered_map<GpuletId, Busy> busy_;
};

}  // namespace gpulet::serve

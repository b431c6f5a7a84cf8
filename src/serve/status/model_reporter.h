// ModelReporter: describes models and applications to clients and other frontends. It changes
// nothing. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/serve/values/frontend_status.h"
#include "serve/models/model_registry.h"
#include "serve/requests/application_runner.h"
#include "serve/values/file_problems.h"
#include "serve/values/route_table.h"

namespace gpulet::serve {

class ModelReporter {
 public:
  // All outlive it. `keep_plan`: as FrontendOptions::keep_plan.
  ModelReporter(bool keep_plan, const ModelRegistry& models, const ApplicationRunner& applications,
                const RouteTable& routes, const FileProblems& file_problems)
      : keep_plan_(keep_plan),
        models_(models),
        applications_(applications),
        routes_(routes),
        file_problems_(file_problems) {}

  // As the functions of FrontendCore.
  [[nodiscard]] ModelsReply models_after(const std::string& name, std::size_t most) const;
  [[nodiscard]] std::vector<ModelInfo> models(std::vector<std::string> names) const;
  [[nodiscard]] std::optional<ModelView> model(std::string_view name) const;
  [[nodiscard]] std::uint64_t revision() const;
  void each_model(const std::function<void(const ModelView&)>& visit) const;
  // For the other frontends of a cluster; without models while this frontend does not lead.
  // `serving`: this frontend serves.
  [[nodiscard]] ServedModels served_models(bool serving) const;
  // Removed models whose last requests are being answered.
  [[nodiscard]] std::vector<std::string> leaving() const;

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

  const bool keep_plan_;
  const ModelRegistry& models_;
  const ApplicationRunner& applications_;
  const RouteTable& routes_;
  const FileProblems& file_problems_;
};

}  // namespace gpulet::serve

// CatalogueUpdate: applies a changed catalogue to the ModelRegistry, a part per turn. Pure; one
// thread at a time.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/deploy/fleet.h"
#include "serve/models/model_registry.h"
#include "serve/values/file_problems.h"

namespace gpulet::serve {

class ApplicationGateway;

class CatalogueUpdate {
 public:
  // All outlive it. `unloaded`: of the first catalogue.
  CatalogueUpdate(std::shared_ptr<const std::vector<std::string>> unloaded, ModelRegistry& models,
                  ApplicationGateway& applications, ProfilesInForce& profiles,
                  FileProblems& file_problems, Journal& journal)
      : models_(models),
        applications_(applications),
        profiles_(profiles),
        file_problems_(file_problems),
        journal_(journal),
        unloaded_(std::move(unloaded)) {}

  // Begins to apply the catalogue; an unfinished update is replaced.
  void begin(CatalogueChanged event, Time now, FrontendEffects& effects);
  void reject(const CatalogueRejected& event, Time now, FrontendEffects& effects);
  // An update is unfinished: call step() in the next turn.
  [[nodiscard]] bool in_progress() const { return update_.has_value(); }
  // Applies the next part. REQUIRES: in_progress().
  void step(Time now, FrontendEffects& effects);

  // As Catalogue::unloaded, of the last catalogue that was applied. May be null.
  [[nodiscard]] const std::shared_ptr<const std::vector<std::string>>& unloaded() const {
    return unloaded_;
  }
  [[nodiscard]] bool is_unloaded(std::string_view name) const;

 private:
  struct Update {
    std::vector<ServedModel> models;
    std::size_t next = 0;  // index into models
    ApplicationList applications;
    std::shared_ptr<const std::vector<std::string>> unloaded;
    std::set<std::string, std::less<>> present;  // names of all models
    std::set<std::string, std::less<>> asked_for;
    std::optional<std::deque<std::string>> removed;  // known once all models were applied
    bool changed = false;                            // something differs from before
  };

  // These return whether plans may depend on what changed.
  bool apply(const ServedModel& model, bool asked_for, Time now, FrontendEffects& effects);
  bool change_model(NamedModel& known, const ServedModel& model, bool asked_for, Time now,
                    FrontendEffects& effects);
  bool change_settings(const NamedModel& known, const ServedModel& model, Time now);
  void change_description(ModelIndex index, const ServedModel& model);

  ModelRegistry& models_;
  ApplicationGateway& applications_;
  ProfilesInForce& profiles_;
  FileProblems& file_problems_;
  Journal& journal_;
  std::optional<Update> update_;
  std::shared_ptr<const std::vector<std::string>> unloaded_;
};

}  // namespace gpulet::serve

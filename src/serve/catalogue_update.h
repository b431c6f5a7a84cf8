// CatalogueUpdate: applies a changed catalogue to the ModelRegistry, a part per turn. FileProblems:
// the current errors in the catalogue's files. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "serve/model_registry.h"

namespace gpulet::serve {

class ApplicationGateway;

// Errors in the models file and the profiles, and profiles that no longer contain a model.
class FileProblems {
 public:
  struct News {
    bool warning = false;
    std::string text;
  };

  // The files were read. Moves their errors out of the catalogue and returns what changed.
  [[nodiscard]] std::vector<News> read(Catalogue& catalogue);
  // The files could not be read. Returns nothing if the error was reported before. `by_hand`: an
  // administrator's request was invalid, which says nothing about the files.
  [[nodiscard]] std::vector<News> rejected(const Status& why, bool by_hand);

  // All errors, each with its place, as one line of printable text.
  [[nodiscard]] std::vector<std::string> all() const;
  // The warning that a profile has lost the model. Empty: none has.
  [[nodiscard]] std::string of_model(const std::string& name) const;

 private:
  Status rejection_;                         // of the last reading; ok: it was accepted
  std::vector<std::string> faults_;          // as Catalogue::faults
  std::map<std::string, std::string> kept_;  // as Catalogue::kept_profiles
};

class CatalogueUpdate {
 public:
  // All outlive it.
  struct Dependencies {
    Dispatcher& dispatcher;
    Demands& demands;
    ModelRegistry& models;
    ApplicationGateway& applications;
    ProfilesInForce& profiles;
    FileProblems& file_problems;
    PlanRequests& plan_requests;
    EventLog& log;
  };

  // `unloaded`: of the first catalogue.
  CatalogueUpdate(std::shared_ptr<const std::vector<std::string>> unloaded,
                  const Dependencies& dependencies)
      : core_(dependencies), unloaded_(std::move(unloaded)) {}

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

  const Dependencies core_;
  std::optional<Update> update_;
  std::shared_ptr<const std::vector<std::string>> unloaded_;
};

}  // namespace gpulet::serve

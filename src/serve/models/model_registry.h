// ModelRegistry: the models that this frontend serves, with all that is known of each: its versions
// (ModelTable), which one takes over (Successions), what went wrong (Setbacks), and its state for
// clients (ModelStates). Pure; one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/deploy/dispatch.h"
#include "serve/models/model_states.h"

namespace gpulet::serve {

class ModelRegistry {
 public:
  using ByName = ModelTable::ByName;
  // All outlive it.
  struct Context {
    Dispatch& dispatch;
    Demands& demands;
    const BackendRegistry& backends;
    const FileProblems& file_problems;
    Deployment& deployment;
    Journal& journal;
  };

  ModelRegistry(const QuarantineOptions& quarantine, const Context& on);

  [[nodiscard]] ModelTable& table() { return table_; }
  [[nodiscard]] const ModelTable& table() const { return table_; }
  [[nodiscard]] Successions& successions() { return successions_; }
  [[nodiscard]] const Successions& successions() const { return successions_; }
  [[nodiscard]] Setbacks& setbacks() { return setbacks_; }
  [[nodiscard]] const Setbacks& setbacks() const { return setbacks_; }
  [[nodiscard]] ModelStates& states() { return states_; }
  [[nodiscard]] const ModelStates& states() const { return states_; }

  // As the functions of ModelTable.
  [[nodiscard]] NamedModel* find(std::string_view name) { return table_.find(name); }
  [[nodiscard]] const NamedModel* find(std::string_view name) const { return table_.find(name); }
  [[nodiscard]] ByName& all() { return table_.all(); }
  [[nodiscard]] const ByName& all() const { return table_.all(); }
  [[nodiscard]] const ServedModel& served(const NamedModel& known) const {
    return table_.served(known);
  }

  void add(ServedModel model, Time now);
  void remove(const std::string& name, Time now, FrontendEffects& effects);
  // Settings or the description of the version changed.
  void change(ModelIndex version, ServedModel changed) {
    versions_.change(version, std::move(changed));
  }
  // Plans are made for these settings of the model.
  void plan_for(const NamedModel& known, const ServedModel& as, Time now) {
    demands_.change(known.demand, as, now);
  }
  // Plans expect requests for the model.
  void wake(const NamedModel& known) { demands_.wake(known.demand); }
  // A previous run of the frontend planned the model at this rate. Ignores unknown models.
  void adopt_rate(const std::string& name, double planned_rate, Time now);

  // The states that another frontend told are those of the models from now on (ModelStates); false:
  // the own states are again.
  void follow(const std::vector<ServedModelState>& states, bool elsewhere);
  // Replaces what is known of the stores, and logs what is new.
  void set_sources(ModelSources sources, Time now, FrontendEffects& effects) {
    states_.set_sources(std::move(sources), journal_, now, effects);
  }
  // Refuses the requests for sleeping models that cannot be served.
  void refuse_wakers(Time now, FrontendEffects& effects);
  // No requests wait here for sleeping models any more.
  void forget_waking();

 private:
  VersionLifecycle& versions_;
  Demands& demands_;
  Journal& journal_;
  ModelTable table_;
  Successions successions_;
  Setbacks setbacks_;
  ModelStates states_;
};

}  // namespace gpulet::serve

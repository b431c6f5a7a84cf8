// ModelStates: the state of each model as its clients see it, and the reasons: why a model is not
// served, or what becomes of its next version. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "serve/models/setbacks.h"

namespace gpulet::serve {

class FileProblems;

class ModelStates {
 public:
  // All outlive it.
  struct Sources {
    const ModelTable& models;
    const Successions& successions;
    const Setbacks& setbacks;
    const BackendRegistry& backends;
    const Deployment& deployment;
    const FileProblems& file_problems;
  };

  explicit ModelStates(const Sources& sources) : from_(sources) {}

  // Why no gpulet serves the model, for its clients. Empty: one serves it or may do so soon.
  [[nodiscard]] std::string why_unserved(const std::string& name, const NamedModel& known) const;
  [[nodiscard]] ModelState state_of(const std::string& name, const NamedModel& known) const;
  // The reason of its state, or the state of its next version. Empty: there is nothing to report.
  [[nodiscard]] std::string reason_of(const std::string& name, const NamedModel& known) const;

  // The states that another frontend told are those of the models from now on, and models without
  // one are loading; `elsewhere` false: the own states are again.
  void follow(const std::vector<ServedModelState>& states, bool elsewhere);
  // What the frontend that serves the model says. Null: nothing, or this one does.
  [[nodiscard]] const ServedModelState* followed(const std::string& name) const;
  // Another after each follow().
  [[nodiscard]] std::uint64_t revision() const { return revision_; }
  // NamedModel::number, or that of the frontend that serves the model.
  [[nodiscard]] std::uint32_t number_of(const std::string& name, const NamedModel& known) const;
  // The number that clients see: that of the models file where it has one.
  [[nodiscard]] std::uint64_t shown_number(const std::string& name, const NamedModel& known) const;

  // Replaces what is known of the stores, and logs what is new.
  void set_sources(ModelSources sources, Journal& journal, Time now, FrontendEffects& effects);

  // A Settle event arrived: the time for reasons that mention one.
  void set_settled(Time now) { settled_at_ = now; }
  [[nodiscard]] Time settled_at() const { return settled_at_; }

 private:
  [[nodiscard]] static std::string describe_failure(const NamedModel& known);
  // What is known of the model's store. Null: nothing.
  [[nodiscard]] const ModelSource* source_of(const std::string& name) const;

  const Sources from_;
  ModelSources sources_;
  Time settled_at_{};
  // Of the models as another frontend serves them; empty: this one does.
  using States = std::unordered_map<std::string, ServedModelState>;
  std::optional<States> followed_;
  std::uint64_t revision_ = 0;
};

}  // namespace gpulet::serve

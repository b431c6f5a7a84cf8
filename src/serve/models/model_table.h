// ModelTable: the models by name, and the versions of each: the current one, the next one (which is
// being warmed to take over), and draining ones. Each version is a model of its own in the
// Dispatcher. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/failure.h"
#include "gpulet/core/ids.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/serve/values/served_model.h"
#include "serve/deploy/backend_registry.h"
#include "serve/deploy/demands.h"
#include "serve/dispatch/serving_slots.h"
#include "serve/values/dynamic_models.h"

namespace gpulet::serve {

// How plans treat a version until it is proven (serve/adapt/trials.h).
enum class Trial : std::uint8_t {
  none,      // no plan has included it
  together,  // as any other, because nothing served when it was first planned
  alone,     // in gpulets of its own, unless no device has room for one
  suspect,   // in gpulets of its own only: it was late in one that it shared
};

struct ModelVersion {
  ModelIndex index = 0;
  std::string id;                     // version_of
  bool proven = false;                // some gpulet had it ready, so a failure is not the file's
  std::set<std::string> failed_on{};  // nodes, for unknown causes, since it was last ready
  Trial trial = Trial::none;
  std::optional<Time> tried_since{};  // its first gpulet was created then
};

// Why the wanted version of a model is in no gpulet although plans are made.
enum class TrialWait : std::uint8_t {
  none,
  turn,  // others are tried first
  room,  // no device has room for a gpulet of its own beside what serves
};

// A version that could not be loaded.
struct RefusedVersion {
  ServedModel model;
  std::string id;
  Status why;
  Time until = kNever;  // then it is tried again; kNever: when its file changes or on request
};

// The failure of a gpulet with the model.
struct ModelFailure {
  schedule::DeviceKey device;
  FailureCause cause = FailureCause::unknown;
  Status why;
  std::string version{};
};

// The predicate of "version ... waits ...". REQUIRES: not none.
[[nodiscard]] std::string_view why_waiting(TrialWait wait);

struct NamedModel {
  ModelVersion current;
  std::optional<ModelVersion> next;
  std::optional<RefusedVersion> refused;  // the current version, or one that was to take over
  std::size_t demand = 0;                 // index into Demands
  std::uint32_t number = 1;               // of the current version since the frontend's start
  bool waking = false;                    // requests wait for its first gpulet since it slept
  std::optional<ModelFailure> failure{};  // the last one, until a gpulet has that version ready
  // No device takes new gpulets: the next version waits (`parked`), or nothing serves (`stuck`).
  bool parked = false;
  bool stuck = false;
  TrialWait trial_wait = TrialWait::none;  // of the next version, or of the current one without it
  Time waits_until{};                      // no plan tries it before that time
  // The version that last took too long to load, and how often in a row.
  std::string slow_version{};
  std::uint32_t slow_loads = 0;

  // The version that gpulets should hold.
  [[nodiscard]] const ModelVersion& wanted() const { return takes_next() ? *next : current; }
  [[nodiscard]] ModelVersion& wanted() { return takes_next() ? *next : current; }
  [[nodiscard]] bool takes_next() const { return next && !parked && trial_wait == TrialWait::none; }
  [[nodiscard]] bool current_refused() const { return refused && refused->id == current.id; }
};

struct DrainingVersion {
  std::string name;
  ModelVersion version;
  bool removed = false;  // the model was removed, not only the version
  bool closed = false;   // its queue is empty and stays empty
};

class ModelTable {
 public:
  using ByName = std::map<std::string, NamedModel, std::less<>>;
  // All outlive it.
  ModelTable(const ModelQueues& queues, const ServingSlots& slots, const Demands& demands,
             const BackendRegistry& backends)
      : queues_(queues), slots_(slots), demands_(demands), backends_(backends) {}

  // ---- models

  // Null: not served.
  [[nodiscard]] NamedModel* find(std::string_view name);
  [[nodiscard]] const NamedModel* find(std::string_view name) const;
  [[nodiscard]] ByName& all() { return named_; }
  [[nodiscard]] const ByName& all() const { return named_; }
  [[nodiscard]] const DynamicModels& dynamic() const { return dynamic_; }
  // The number of models that clients see.
  [[nodiscard]] std::size_t listed() const;
  // REQUIRES: its version is one of ModelQueues.
  void add(const std::string& name, NamedModel model);
  // Returns its current version. REQUIRES: find(name) is not null and has no next version.
  ModelVersion remove(const std::string& name);
  // The current version, or its settings, have changed.
  void changed(const NamedModel& known) {
    ++revision_;
    dynamic_.set(served(known));
  }
  // Another after each change of the models or of their current versions.
  [[nodiscard]] std::uint64_t revision() const { return revision_; }

  // ---- versions

  // The current version.
  [[nodiscard]] const ServedModel& served(const NamedModel& known) const {
    return served(known.current.index);
  }
  [[nodiscard]] const ServedModel& served(ModelIndex index) const {
    return queues_.models()[index];
  }
  // Every index of a version is below this.
  [[nodiscard]] std::size_t index_end() const { return queues_.models().size(); }
  // The name of the model that has the index.
  [[nodiscard]] const std::string& name_of(ModelIndex index) const { return served(index).name; }
  // No version of the model can be served, because its file has not come from its store.
  [[nodiscard]] bool lacks_file(const NamedModel& known) const {
    return served(known).sha256.empty();
  }
  // The version of the model that the gpulet holds. Empty: it holds none that is known.
  [[nodiscard]] std::optional<ModelIndex> version_in(GpuletId gpulet,
                                                     const std::string& name) const;
  // A gpulet that takes batches has the current version.
  [[nodiscard]] bool has_ready_slot(const std::string& name) const;
  [[nodiscard]] bool has_ready_slot(const NamedModel& known) const {
    return slots_.has_ready_slot(known.current.index);
  }
  // A gpulet has the version.
  [[nodiscard]] bool has_slot(const ModelVersion& version) const {
    return slots_.has_slot(version.index);
  }
  // No request came for long.
  [[nodiscard]] bool asleep(const NamedModel& known) const { return demands_.asleep(known.demand); }
  // Some current, next or refused version has that file.
  [[nodiscard]] bool knows_file(std::string_view sha256) const;
  // All such files. Valid until models change.
  [[nodiscard]] std::unordered_set<std::string_view> known_files() const;

  // ---- versions that end

  [[nodiscard]] std::vector<DrainingVersion>& draining() { return draining_; }
  [[nodiscard]] const std::vector<DrainingVersion>& draining() const { return draining_; }
  // Takes the version back from the draining ones. Empty: it is not among them.
  [[nodiscard]] std::optional<ModelVersion> take_back(std::string_view name,
                                                      std::string_view version);

 private:
  // Whether the predicate holds for the file of some current, next or refused version.
  template <typename Predicate>
  bool any_file(const Predicate& predicate) const;

  const ModelQueues& queues_;
  const ServingSlots& slots_;
  const Demands& demands_;
  const BackendRegistry& backends_;
  ByName named_;
  DynamicModels dynamic_;
  std::vector<DrainingVersion> draining_;
  std::uint64_t revision_ = 0;
};

}  // namespace gpulet::serve

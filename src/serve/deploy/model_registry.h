// ModelRegistry: the models by name, and the versions of each: the current one, the next one (which
// is being warmed to take over), and draining ones. It decides which version gpulets should hold,
// which versions are refused, which models are in backoff or quarantine, and why a model is not
// served. Each version is a model of its own in the Dispatcher. Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "serve/deploy/backoff.h"
#include "serve/deploy/demands.h"
#include "serve/deploy/deployment.h"
#include "serve/deploy/response_writer.h"
#include "serve/values/dynamic_models.h"

namespace gpulet::serve {

class FileProblems;

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

class ModelRegistry {
 public:
  using ByName = std::map<std::string, NamedModel, std::less<>>;
  // All outlive it.
  struct Dependencies {
    Dispatcher& dispatcher;
    Demands& demands;
    const BackendRegistry& backends;
    const FileProblems& file_problems;
    Deployment& deployment;
    PlanRequests& plan_requests;
    EventLog& log;
    ResponseWriter& responses;
  };

  ModelRegistry(const QuarantineOptions& quarantine, const Dependencies& dependencies)
      : core_(dependencies), quarantine_(quarantine) {}

  // ---- lookups

  // Null: not served.
  [[nodiscard]] NamedModel* find(std::string_view name);
  [[nodiscard]] const NamedModel* find(std::string_view name) const;
  [[nodiscard]] ByName& all() { return named_; }
  [[nodiscard]] const ByName& all() const { return named_; }
  [[nodiscard]] const DynamicModels& dynamic() const { return dynamic_; }
  // The number of models that clients see.
  [[nodiscard]] std::size_t listed() const;
  [[nodiscard]] const std::vector<DrainingVersion>& draining() const { return draining_; }
  // The current version.
  [[nodiscard]] const ServedModel& served(const NamedModel& known) const;
  // The name of the model that has the index.
  [[nodiscard]] const std::string& name_of(ModelIndex index) const {
    return core_.dispatcher.models()[index].name;
  }
  // Bytes of the version's file; 0: unknown.
  [[nodiscard]] std::uint64_t file_bytes(const ModelVersion& version) const {
    return core_.dispatcher.models()[version.index].file_bytes;
  }
  // The version of the model that the gpulet holds. Empty: it holds none that is known.
  [[nodiscard]] std::optional<ModelIndex> version_in(GpuletId gpulet,
                                                     const std::string& name) const;
  // Names of the gpulet's models whose wanted version it holds.
  [[nodiscard]] std::vector<std::string> wanted_models(const GpuletRecord& gpulet) const;
  // Some current, next or refused version has that file.
  [[nodiscard]] bool knows_file(std::string_view sha256) const;
  // All such files. Valid until models change.
  [[nodiscard]] std::unordered_set<std::string_view> known_files() const;
  [[nodiscard]] const Quarantine& quarantine() const { return quarantine_; }
  [[nodiscard]] Quarantine& quarantine() { return quarantine_; }

  // ---- states

  // No version of the model can be served, because its file has not come from its store.
  [[nodiscard]] bool lacks_file(const NamedModel& known) const {
    return served(known).sha256.empty();
  }
  // A gpulet that takes batches has the current version.
  [[nodiscard]] bool has_ready_slot(const std::string& name) const;
  // The next plan leaves the model out: it is in backoff or quarantine, refused, stuck or without a
  // file.
  [[nodiscard]] bool withheld(const std::string& name) const;
  // Why no gpulet serves the model, for its clients. Empty: one serves it or may do so soon.
  [[nodiscard]] std::string why_unserved(const std::string& name, const NamedModel& known) const;
  [[nodiscard]] ModelState state_of(const std::string& name, const NamedModel& known) const;
  // The reason of its state, or the state of its next version. Empty: there is nothing to report.
  [[nodiscard]] std::string reason_of(const std::string& name, const NamedModel& known) const;
  // A plan is being rolled out, or versions of the last one are still taking over.
  [[nodiscard]] bool reorganising() const {
    return core_.deployment.rolls_out() || !successions_.empty();
  }

  // With `elsewhere`, reports the states that another frontend told instead of its own: a model
  // that they lack is loading. Otherwise reports its own states again.
  void follow(const std::vector<ServedModelState>& states, bool elsewhere);
  // What the frontend that serves the model says. Null: nothing, or this one does.
  [[nodiscard]] const ServedModelState* followed(const std::string& name) const;
  // NamedModel::number, or that of the frontend that serves the model.
  [[nodiscard]] std::uint32_t number_of(const std::string& name, const NamedModel& known) const;
  // The number that clients see: that of the models file where it has one.
  [[nodiscard]] std::uint64_t shown_number(const std::string& name, const NamedModel& known) const;

  // ---- models and versions

  void add(ServedModel model, Time now);
  // Settings of the current version have changed.
  void changed(const NamedModel& known) { dynamic_.set(served(known)); }
  void remove(const std::string& name, Time now, FrontendEffects& effects);
  // Replaces what is known of the stores, and logs what is new.
  void set_sources(ModelSources sources, Time now, FrontendEffects& effects);
  // Warms the version, which takes over when it is ready: at once where the model lacks a file.
  void stage(NamedModel& known, const ServedModel& model, std::string id, Time now,
             FrontendEffects& effects);
  // Gives up the next version, and the rollout that brings it. REQUIRES: there is one.
  void drop_next(NamedModel& known, FrontendEffects& effects);
  // Determines which next versions take over with these routes. Requests that cannot follow to the
  // next version are sent to the old gpulets while these still have routes.
  void begin_successions(const std::vector<GpuletRoute>& routes, Time now, DispatchOutput& output);
  // Lets some versions take over and forgets some unused ones. Repeat while has_more_to_do().
  void continue_successions(Time now, FrontendEffects& effects);
  // Lets every next version take over: another frontend serves from now on.
  void finish_successions(Time now, FrontendEffects& effects);
  [[nodiscard]] bool has_more_to_do() const { return !successions_.empty() || sweep_goes_on_; }
  // Forgets versions that nothing uses any more, some of them in one call.
  void sweep(Time now, FrontendEffects& effects);

  // ---- failures

  // A gpulet with these models is ready.
  void prove(const std::vector<schedule::RunningModel>& models);
  // Refuses the wanted version until `until`.
  void refuse_version(NamedModel& known, const Status& why, Time until, Time now,
                      FrontendEffects& effects);
  // No plan includes the model until `until`.
  void back_off(const std::string& name, Time until) { backoff_[name] = until; }
  // Ends the model's backoff. Returns whether it was in backoff.
  bool end_backoff(const std::string& name) { return backoff_.erase(name) > 0; }
  // Ends the backoffs that are over and requests a plan for these models.
  void expire_backoffs(Time now);
  // Tries refused versions again whose time has come.
  void retry_refused(Time now, FrontendEffects& effects);
  // Refuses the requests for sleeping models that cannot be served.
  void refuse_wakers(Time now, FrontendEffects& effects);
  // No requests wait here for sleeping models any more.
  void forget_waking();
  // The quarantine of the model has begun.
  void enter_quarantine(const std::string& name, Time now, FrontendEffects& effects);
  // Ends the quarantines that are over and requests a plan for these models.
  void expire_quarantines(Time now, FrontendEffects& effects);

  // ---- time

  // A Settle event arrived: the time for reasons that mention one.
  void set_settled(Time now) { settled_at_ = now; }
  [[nodiscard]] Time settled_at() const { return settled_at_; }

 private:
  // Takes the version back from the draining ones. Empty: it is not among them.
  [[nodiscard]] std::optional<ModelVersion> take_back(std::string_view name,
                                                      std::string_view version);
  // Whether the predicate holds for the file of some current, next or refused version.
  template <typename Predicate>
  bool any_file(const Predicate& predicate) const;
  // Refuses the requests that wait for its current version.
  void refuse_waiting(NamedModel& known, std::string why, Time now, FrontendEffects& effects);
  void take_over(NamedModel& known, DispatchOutput& output, Time now, FrontendEffects& effects);
  void sweep(Time now, DispatchOutput& output);
  [[nodiscard]] static std::string describe_failure(const NamedModel& known);
  // What is known of the model's store. Null: nothing.
  [[nodiscard]] const ModelSource* source_of(const std::string& name) const;

  const Dependencies core_;
  ByName named_;
  DynamicModels dynamic_;
  std::vector<DrainingVersion> draining_;
  std::deque<std::string> successions_;  // models whose next version has routes and takes over
  bool sweep_goes_on_ = false;           // there are more versions to forget
  ModelSources sources_;
  std::map<std::string, Time> backoff_;  // models whose gpulets failed everywhere, until when
  Quarantine quarantine_;
  Time settled_at_{};
  // Of the models as another frontend serves them; empty: this one does.
  using States = std::unordered_map<std::string, ServedModelState>;
  std::optional<States> followed_;
};

}  // namespace gpulet::serve

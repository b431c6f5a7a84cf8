// FrontendCore: the frontend without its sockets. It takes events with their time and returns
// effects. The daemon, the simulator and the tests run this same code: the same events at the same
// times give the same effects. Pure: no I/O, clock, thread or log. One thread at a time.
//
// FrontendCore coordinates the components in src/serve: Admission, ModelRegistry, Dispatcher,
// ReorganisationController, BackendRegistry, ApplicationGateway and StatusReporter.
//
// The host must: pass every event in order; pass Settle after a run of events and when next_wake()
// has come; carry out every effect in order; and answer each MakePlan with one PlanMade and each
// StepToRun with one StepCompleted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/serve/values/application.h"
#include "gpulet/serve/values/frontend_events.h"
#include "gpulet/serve/values/frontend_options.h"
#include "gpulet/serve/values/frontend_status.h"
#include "gpulet/serve/values/served_model.h"

namespace gpulet::serve {

class FrontendCore {
 public:
  FrontendCore(FrontendOptions options, Catalogue catalogue, Time now);
  ~FrontendCore();
  FrontendCore(const FrontendCore&) = delete;
  FrontendCore& operator=(const FrontendCore&) = delete;

  void on(FrontendEvent event, Time now, FrontendEffects& effects);

  // When the next Settle is due without any other event. Never kNever: the rate estimates tick.
  [[nodiscard]] Time next_wake() const;

  // Accepts requests: a plan is in force, a usable device is connected, and it does not drain.
  [[nodiscard]] bool serving() const;
  // Of the plan in force; 0 before the first.
  [[nodiscard]] Epoch epoch() const;
  [[nodiscard]] const schedule::Plan& plan() const;

  // The member that serves the requests of this frontend's clients; empty: this one, or none that
  // is connected.
  [[nodiscard]] std::string served_by() const;
  // In which this frontend leads; 0: it does not.
  [[nodiscard]] Term leading_term() const;
  [[nodiscard]] FrontendStatus status(Time now) const;
  // Adds about `parts` more models, gpulets and devices. Returns true when it is complete.
  [[nodiscard]] bool take(StatusInSteps& taken, std::size_t parts) const;
  // The status of one model or application. Empty if the name is not served.
  [[nodiscard]] std::optional<ModelStatus> model_status(std::string_view name, Time now) const;
  // The models whose names follow `name`, `most` at most. Models with dynamic dimensions are listed
  // in place of their buckets.
  [[nodiscard]] ModelsReply models_after(const std::string& name, std::size_t most) const;
  // Those of these models that are served or draining, sorted by name. The version of one with
  // dynamic dimensions is that of its file.
  [[nodiscard]] std::vector<ModelInfo> models(std::vector<std::string> names) const;
  // One model or application. Empty if the name is not served. Valid until the next event.
  [[nodiscard]] std::optional<ModelView> model(std::string_view name) const;
  // Calls `visit` for each model and application as model() describes it, but without its state and
  // the reason. In no particular order, buckets included.
  void each_model(const std::function<void(const ModelView&)>& visit) const;
  // Another after each change of what each_model() tells.
  [[nodiscard]] std::uint64_t models_revision() const;
  // The names of the model's buckets; none where its shapes are fixed.
  [[nodiscard]] std::vector<std::string> buckets_of(std::string_view name) const;
  // The model is not served but can be loaded (Catalogue::unloaded).
  [[nodiscard]] bool is_unloaded(std::string_view name) const;
  // Null: there is no application of that name.
  [[nodiscard]] std::shared_ptr<const Application> application(std::string_view name) const;

  // Entries for versions of models, in use or free. Bounded however often models change.
  [[nodiscard]] std::size_t model_slots() const;
  // SHA-256 of the files of all current, next and refused versions. Valid until the next event.
  [[nodiscard]] std::unordered_set<std::string_view> known_files() const;
  // The last CatalogueChanged is not fully applied yet: large catalogues take several turns.
  [[nodiscard]] bool takes_in_catalogue() const;
  // The violation that a result for `batch` would be, before its payload arrives. Empty: none.
  [[nodiscard]] std::optional<PeerBreach> breach_of_result(BackendId from, BatchId batch) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::serve

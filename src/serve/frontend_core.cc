#include "gpulet/serve/frontend_core.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "serve/adapt/probes.h"
#include "serve/cluster/ownership.h"
#include "serve/plans/reorganisation.h"
#include "serve/status/status_reporter.h"

namespace gpulet::serve {
namespace {

DemandOptions demand_options(const FrontendOptions& options) {
  DemandOptions demands = options.demands;
  demands.tick = options.tick;
  // Devices for a load that has gone are given back after about one period.
  demands.slow_time_constant = std::max(2 * demands.time_constant, options.period);
  if (options.keep_plan) demands.growth = 0;
  return demands;
}

ProfilesInForce profiles_of(Catalogue& catalogue) {
  if (catalogue.profiles == nullptr)
    catalogue.profiles = std::make_shared<const profile::ProfileSet>();
  return {catalogue.profiles, std::move(catalogue.interference), catalogue.profiles};
}

}  // namespace

// Owns the components, wires them, and passes events and time to them in a fixed order.
class FrontendCore::Impl {
 public:
  Impl(FrontendOptions options, Catalogue catalogue, Time now)
      : options_(std::move(options)),
        profiles_(profiles_of(catalogue)),
        dispatcher_({}, options_.max_queue_per_model, BatchId{(options_.run << kRunShift) + 1},
                    options_.control),
        demands_({}, demand_options(options_)),
        control_(options_.control),
        exclusions_(options_.exclusions),
        limiter_(options_.inflight),
        traces_(options_.trace_every),
        runs_(options_.max_queue_per_model),
        routes_(!options_.clustered, options_.member),
        deployment_(backends_, options_.run),
        owner_figures_(dispatcher_, routes_),
        responses_(dispatcher_, backends_, traces_, owner_figures_),
        models_(options_.quarantine, {dispatcher_, demands_, backends_, file_problems_, deployment_,
                                      plan_requests_, log_, responses_}),
        estimates_(options_.estimates, {dispatcher_, backends_, models_, profiles_}),
        probes_({dispatcher_, backends_, models_, estimates_, plan_requests_, log_}),
        failures_(options_,
                  {backends_, profiles_, models_, exclusions_, deployment_, plan_requests_, log_}),
        feedback_(options_,
                  {dispatcher_, demands_, backends_, profiles_, models_, deployment_,
                   reported_figures_, plan_requests_, log_},
                  now),
        instances_(control_, {dispatcher_, backends_, profiles_, models_, deployment_}),
        rollouts_(options_,
                  {dispatcher_, demands_, backends_, profiles_, models_, failures_, instances_,
                   feedback_, deployment_, plan_requests_, history_, log_, responses_}),
        reorganisation_(options_,
                        {dispatcher_, demands_, backends_, profiles_, models_, exclusions_,
                         failures_, deployment_, rollouts_, feedback_, estimates_,
                         reported_figures_, plan_requests_, history_, log_},
                        now),
        forwarder_(options_, {models_, responses_, routes_}),
        owned_(options_.member, {dispatcher_, backends_, models_, routes_, owner_figures_}),
        ownership_(options_, {dispatcher_, demands_, backends_, models_, deployment_, failures_,
                              feedback_, reported_figures_, routes_}),
        leadership_(options_, {dispatcher_, backends_, models_, deployment_, rollouts_,
                               plan_requests_, log_, responses_, routes_, forwarder_}),
        admission_(options_, {dispatcher_, demands_, models_, limiter_, traces_, plan_requests_,
                              leadership_, routes_, forwarder_, owner_figures_, responses_}),
        applications_(options_, {runs_, dispatcher_, demands_, models_, admission_, routes_,
                                 forwarder_, limiter_, traces_, responses_}),
        catalogue_(std::move(catalogue.unloaded),
                   {dispatcher_, demands_, models_, applications_, profiles_, file_problems_,
                    plan_requests_, log_}),
        messages_(options_, {dispatcher_, backends_, profiles_, models_, exclusions_, failures_,
                             deployment_, leadership_, owned_, owner_figures_, feedback_,
                             estimates_, probes_, plan_requests_, log_, responses_}),
        reporter_(options_,
                  {dispatcher_, demands_,       backends_,     messages_,      profiles_,
                   models_,     runs_,          applications_, admission_,     leadership_,
                   routes_,     forwarder_,     ownership_,    owned_,         reported_figures_,
                   catalogue_,  file_problems_, exclusions_,   failures_,      control_,
                   feedback_,   estimates_,     deployment_,   plan_requests_, history_,
                   log_}),
        next_tick_(now + options_.tick) {
    plan_requests_.add("the frontend started");
    for (const ServedModel& model : catalogue.models) models_.add(model, now);
    applications_.replace(catalogue.applications, now);
    demands_.tick(now);
    messages_.update_absence();
  }

  // ---- events

  void on(RequestReceived event, Time now, FrontendEffects& effects) {
    if (!applications_.on_request(event, now, effects))
      admission_.on_request(std::move(event), now, effects);
  }

  void on(ClientDisconnected event, Time now, FrontendEffects& effects) {
    dispatcher_.client_gone(event.client);
    forwarder_.client_gone(event.client, effects);
    applications_.on_client_disconnected(event.client, now, effects);
  }

  void on(const RequestCancelled& event, Time /*now*/, FrontendEffects& effects) {
    const auto withdraw = [&](const std::string& name) {
      if (const NamedModel* const known = models_.find(name))
        dispatcher_.withdraw(known->current.index, event.client, event.tag);
    };
    withdraw(event.model);
    if (const DynamicModel* const dynamic = models_.dynamic().find(event.model)) {
      for (const std::string& bucket : dynamic->names()) withdraw(bucket);
    }
    forwarder_.withdraw(event.client, event.tag, effects);
  }

  void on(const PeerConnected& event, Time now, FrontendEffects& effects) {
    levels_.insert_or_assign(event.member, event.level);
    forwarder_.on_connected(event.member, now, effects);
    ownership_.on_connected(event.member);
    report_to_leader(effects);
  }
  void on(const PeerDisconnected& event, Time now, FrontendEffects& effects) {
    ownership_.on_disconnected(event.member, now);
    forwarder_.on_disconnected(event.member, now, effects);
  }
  void on(PeerReplied event, Time now, FrontendEffects& effects) {
    forwarder_.on_reply(event.member, std::move(event.reply), now, effects);
  }
  void on(PeerServes event, Time now, FrontendEffects& effects) {
    forwarder_.on_served_models(event.member, std::move(event.served), now, effects);
  }
  void on(RoutesReceived event, Time now, FrontendEffects& effects) {
    owned_.on_routes(event.member, std::move(event.routes), now);
    follow_owned(now, effects);
  }
  void on(OwnerReported event, Time now, FrontendEffects& effects) {
    ownership_.on_report(event.member, std::move(event.report), now, effects);
  }

  void on(BackendMessageReceived event, Time now, FrontendEffects& effects) {
    messages_.on_message(std::move(event), now, effects);
    follow_owned(now, effects);
  }
  void on(const BackendDisconnected& event, Time now, FrontendEffects& effects) {
    messages_.on_disconnected(event.backend, event.reason, now, effects);
    follow_owned(now, effects);
  }
  void on(const BackendViolatedProtocol& event, Time now, FrontendEffects& effects) {
    messages_.on_violation(event.backend, event.breach, now, effects);
  }
  void on(PlanMade event, Time now, FrontendEffects& effects) {
    reorganisation_.on_plan_made(std::move(event), now, effects);
  }
  void on(CatalogueChanged event, Time now, FrontendEffects& effects) {
    catalogue_.begin(std::move(event), now, effects);
    estimates_.refresh();
  }
  void on(const CatalogueRejected& event, Time now, FrontendEffects& effects) {
    catalogue_.reject(event, now, effects);
  }
  void on(ModelSourcesChanged event, Time now, FrontendEffects& effects) {
    models_.set_sources(std::move(event.sources), now, effects);
  }
  void on(StepCompleted event, Time now, FrontendEffects& effects) {
    applications_.on_step_completed(std::move(event), now, effects);
  }
  void on(const LeadershipWon& event, Time now, FrontendEffects& effects) {
    const bool led = leadership_.leads();
    leadership_.on_won(event, now, effects);
    if (led || !leadership_.leads()) return;
    owned_.hand_in();
    ownership_.on_won(now);
  }
  void on(LeadershipLost event, Time now, FrontendEffects& effects) {
    if (leadership_.leads()) ownership_.on_lost();
    leadership_.on_lost(std::move(event), now, effects);
    report_to_leader(effects);
  }
  void on(const LeadershipDoubted& event, Time now, FrontendEffects& effects) {
    leadership_.on_doubted(event, now, effects);
  }
  void on(TraceUntil event, Time now, FrontendEffects& /*effects*/) {
    traces_.sample_window(now, event.time);
  }
  void on(TraceEvery event, Time /*now*/, FrontendEffects& /*effects*/) {
    traces_.sample_every(event.every);
  }

  void on(Settle /*event*/, Time now, FrontendEffects& effects) {
    models_.set_settled(now);
    // A part of a catalogue and a plan request each make for a long turn.
    plan_next_turn_ = catalogue_.in_progress();
    const bool models_change = catalogue_.in_progress() || models_.has_more_to_do();
    if (catalogue_.in_progress()) catalogue_.step(now, effects);
    if (models_.has_more_to_do()) models_.continue_successions(now, effects);
    if (models_change) owned_.refresh(now);
    if (now >= next_tick_) tick(now, effects);
    instances_.step_if_due(now, effects);
    reorganisation_.advance(now, effects);
    if (!plan_next_turn_ && !has_more_to_do() && !admission_.draining() && may_plan())
      reorganisation_.plan_if_requested(now, effects);
    applications_.answer_overdue(now, effects);
    if (options_.clustered && leadership_.leads() && !leadership_.taking_over(now) &&
        ownership_.settle(!leadership_.doubtful(), now, effects)) {
      tell_peers(effects);
      forwarder_.routes_changed(now, effects);
    }
    follow_owned(now, effects);
    // Batches of an earlier owner may have brought requests back.
    leadership_.hand_on(now, effects);
    forwarder_.settle(now, effects);
    DispatchOutput output;
    dispatcher_.pump(now, output);
    responses_.write(std::move(output), effects);
    // What it owns is handed over first: until then, its models' requests come here.
    const bool handed_over = admission_.refuses() || !options_.clustered || !owned_.any();
    if (admission_.draining() && !drained_ && now >= drained_at_ && dispatcher_.idle() &&
        runs_.idle() && forwarder_.idle() && handed_over) {
      drained_ = true;
      effects.emplace_back(Drained{});
    }
  }

  void on(Drain event, Time now, FrontendEffects& effects) {
    // Serving on may end in refusing.
    if (admission_.draining() && (event.hands_over || admission_.refuses())) return;
    admission_.start_draining(event.hands_over);
    drained_at_ = event.earliest;
    report_to_leader(effects);
    log_.note(false,
              event.hands_over ? "draining: serving on while clients leave"
                               : "draining: no new requests, answering what is in flight",
              now, effects);
  }

  // ---- queries

  [[nodiscard]] Time next_wake() const {
    const Time settled_at = models_.settled_at();
    Time wake =
        std::min({next_tick_, dispatcher_.next_wake(), runs_.next_wake(), forwarder_.next_wake(),
                  instances_.next_step(), reorganisation_.next_wake(settled_at)});
    if (!leadership_.taking_over(settled_at)) wake = std::min(wake, ownership_.next_wake());
    if (admission_.draining() && !drained_ && settled_at < drained_at_)
      wake = std::min(wake, drained_at_);
    if (has_more_to_do() || plan_next_turn_) wake = std::min(wake, settled_at);
    return wake;
  }

 private:
  friend class FrontendCore;

  // The order is part of the behaviour: it determines the order of effects.
  void tick(Time now, FrontendEffects& effects) {
    const Duration late = now - next_tick_;
    next_tick_ = now + options_.tick;
    demands_.tick(now);
    runs_.tick(now);
    reporter_.tick(options_.tick + late);
    messages_.tick(now, late, effects);
    feedback_.tick(now, effects);
    reorganisation_.tick(now);
    models_.expire_backoffs(now);
    failures_.expire_exclusions(now);
    models_.expire_quarantines(now, effects);
    models_.retry_refused(now, effects);
    models_.refuse_wakers(now, effects);
    messages_.retire_unclaimed(now, effects);
    messages_.give_up_overdue(late, now, effects);
    models_.sweep(now, effects);
    if (backends_.gpulets_ended()) backends_.forget_files(models_.known_files());
    owned_.refresh(now);
    tell_peers(effects);
    report_to_leader(effects);
  }

  // The gpulets that this frontend owns may have changed: so has the place of requests that wait.
  void follow_owned(Time now, FrontendEffects& effects) {
    if (owned_.take_changed()) forwarder_.routes_changed(now, effects);
  }

  void report_to_leader(FrontendEffects& effects) {
    const std::string& leader = routes_.leader();
    const auto level = levels_.find(leader);
    if (routes_.leads() || !forwarder_.leader_connected() || level == levels_.end() ||
        level->second < kLevelOfOwners)
      return;
    effects.emplace_back(SendToPeer{leader, owned_.take_report(admission_.draining())});
  }

  // Other frontends answer their clients' questions about models with what this one says.
  void tell_peers(FrontendEffects& effects) {
    if (!options_.clustered) return;
    ServedModels served = reporter_.served_models();
    if (served == told_) return;
    told_ = served;
    effects.emplace_back(TellPeers{std::move(served)});
  }

  [[nodiscard]] bool may_plan() const {
    return leadership_.leads() && (!leadership_.doubtful() || plan_requests_.urgent());
  }

  // Work on thousands of models or gpulets takes several turns, and the next one is due now.
  [[nodiscard]] bool has_more_to_do() const {
    return catalogue_.in_progress() || models_.has_more_to_do() || rollouts_.has_more_to_do();
  }

  const FrontendOptions options_;

  // Without dependencies on others.
  ProfilesInForce profiles_;
  Dispatcher dispatcher_;
  Demands demands_;
  CpuControl control_;
  Exclusions exclusions_;
  InflightLimiter limiter_;
  TraceSampler traces_;
  ApplicationRunner runs_;
  BackendRegistry backends_;
  FileProblems file_problems_;
  PlanRequests plan_requests_;
  PlanHistory history_;
  EventLog log_;

  ReportedFigures reported_figures_;
  RouteTable routes_;

  // Each depends only on those before it.
  Deployment deployment_;
  OwnerFigures owner_figures_;
  ResponseWriter responses_;
  ModelRegistry models_;
  Estimates estimates_;
  Probes probes_;
  FailureHandler failures_;
  Feedback feedback_;
  InstanceController instances_;
  RolloutController rollouts_;
  ReorganisationController reorganisation_;
  Forwarder forwarder_;
  OwnedGpulets owned_;
  Ownership ownership_;
  Leadership leadership_;
  Admission admission_;
  ApplicationGateway applications_;
  CatalogueUpdate catalogue_;
  BackendMessageHandler messages_;
  StatusReporter reporter_;

  Time next_tick_;
  bool plan_next_turn_ = false;  // the turn was long already
  bool drained_ = false;
  Time drained_at_{};                            // at the earliest
  ServedModels told_;                            // in the last TellPeers
  std::map<std::string, std::uint32_t> levels_;  // of the members that were connected
};

FrontendCore::FrontendCore(FrontendOptions options, Catalogue catalogue, Time now)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(catalogue), now)) {}

FrontendCore::~FrontendCore() = default;

void FrontendCore::on(FrontendEvent event, Time now, FrontendEffects& effects) {
  std::visit([&](auto& one) { impl_->on(std::move(one), now, effects); }, event);
  impl_->admission_.take_back(impl_->forwarder_.take_local(), now, effects);
  impl_->applications_.deliver_call_answers(now, effects);
}
Time FrontendCore::next_wake() const { return impl_->next_wake(); }
bool FrontendCore::serving() const { return impl_->reporter_.serving(); }
Epoch FrontendCore::epoch() const { return impl_->deployment_.epoch(); }
const schedule::Plan& FrontendCore::plan() const { return impl_->deployment_.plan(); }
std::string FrontendCore::served_by() const {
  return impl_->forwarder_.leader_connected() ? impl_->routes_.leader() : std::string();
}
Term FrontendCore::leading_term() const {
  return impl_->leadership_.leads() ? impl_->backends_.term() : Term{};
}
FrontendStatus FrontendCore::status(Time now) const { return impl_->reporter_.status(now); }
bool FrontendCore::take(StatusInSteps& taken, std::size_t parts) const {
  return impl_->reporter_.take(taken, parts);
}
std::optional<ModelStatus> FrontendCore::model_status(std::string_view name, Time now) const {
  return impl_->reporter_.model_status(name, now);
}
ModelsReply FrontendCore::models_after(const std::string& name, std::size_t most) const {
  return impl_->reporter_.models_after(name, most);
}
std::vector<ModelInfo> FrontendCore::models(std::vector<std::string> names) const {
  return impl_->reporter_.models(std::move(names));
}
std::optional<ModelView> FrontendCore::model(std::string_view name) const {
  return impl_->reporter_.model(name);
}
std::vector<std::string> FrontendCore::buckets_of(std::string_view name) const {
  const DynamicModel* const dynamic = impl_->models_.dynamic().find(name);
  return dynamic == nullptr ? std::vector<std::string>() : dynamic->names();
}
bool FrontendCore::is_unloaded(std::string_view name) const {
  return impl_->catalogue_.is_unloaded(name);
}
std::shared_ptr<const Application> FrontendCore::application(std::string_view name) const {
  return impl_->runs_.find(name);
}
std::size_t FrontendCore::model_slots() const { return impl_->dispatcher_.models().size(); }
std::unordered_set<std::string_view> FrontendCore::known_files() const {
  return impl_->models_.known_files();
}
bool FrontendCore::takes_in_catalogue() const { return impl_->catalogue_.in_progress(); }
std::optional<PeerBreach> FrontendCore::breach_of_result(BackendId from, BatchId batch) const {
  return serve::breach_of_result(from, batch, impl_->backends_, impl_->dispatcher_);
}

}  // namespace gpulet::serve

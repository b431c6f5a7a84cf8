#include "gpulet/serve/frontend_core.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "serve/adapt/probes.h"
#include "serve/cluster/peer_events.h"
#include "serve/plans/gpulet_adoption.h"
#include "serve/plans/reorganisation.h"
#include "serve/requests/application_gateway.h"
#include "serve/requests/backend_messages.h"
#include "serve/requests/request_intake.h"
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
        journal_(log_, plan_requests_, history_),
        fleet_(backends_, profiles_),
        deployment_(backends_, options_.run),
        owner_figures_(dispatcher_.queues(), routes_),
        entries_(backends_),
        responses_(dispatcher_.queues(), backends_, traces_, owner_figures_, entries_),
        dispatch_(dispatcher_, responses_),
        models_(options_.quarantine,
                {dispatch_, demands_, backends_, file_problems_, deployment_, journal_}),
        loads_(dispatcher_.queues(), dispatcher_.records(), demands_, reported_figures_),
        estimates_(options_.estimates, backends_, models_.table(), profiles_),
        probes_(dispatcher_.batch_numbers(), backends_, models_.table(), estimates_, journal_),
        failures_(options_, fleet_, models_, exclusions_, deployment_, journal_),
        feedback_(options_, loads_, fleet_, models_.table(), deployment_, journal_, now),
        instances_(control_, dispatcher_.instances(), fleet_, models_.table(), deployment_),
        routes_in_force_(options_, dispatch_, fleet_, models_, instances_, feedback_, deployment_),
        starter_(backends_, fleet_, models_.table(), deployment_, journal_),
        in_place_(options_, fleet_, starter_, routes_in_force_, failures_, deployment_, journal_),
        mixtures_(backends_, fleet_, models_.table(), routes_in_force_, deployment_),
        rollouts_(options_, starter_, in_place_, mixtures_, routes_in_force_, deployment_,
                  journal_),
        adoption_(options_, backends_, fleet_, models_, routes_in_force_, deployment_, journal_),
        demands_to_plan_(options_, demands_, loads_, models_, feedback_, estimates_),
        inputs_(options_, demands_to_plan_, fleet_, models_.table(), failures_, feedback_,
                deployment_),
        triggers_(options_.period, demands_, fleet_, models_.table(), deployment_, journal_),
        decisions_(options_, inputs_, in_place_, models_.table(), deployment_, journal_),
        stages_(fleet_, inputs_, rollouts_, deployment_, journal_),
        reorganisation_(options_, {triggers_, inputs_, decisions_, stages_}, deployment_, journal_,
                        now),
        forwarder_(options_, models_, responses_, routes_),
        owned_(options_.member, dispatcher_, backends_, models_.table(), routes_, owner_figures_),
        ownership_(options_, backends_, models_.table(), deployment_, reported_figures_, routes_),
        owner_reports_(demands_, backends_, models_.table(), failures_, feedback_,
                       reported_figures_),
        peers_(forwarder_, owned_, ownership_, owner_reports_, backends_),
        takeover_(options_, dispatch_, backends_, deployment_, adoption_, routes_, journal_),
        leadership_(options_, dispatcher_, backends_, deployment_, takeover_, forwarder_, journal_),
        arrivals_(demands_, models_, owner_figures_, plan_requests_),
        admission_(options_, dispatch_, models_, arrivals_, limiter_, leadership_, forwarder_,
                   entries_),
        intake_(options_, dispatch_, models_, traces_, admission_),
        applications_(options_, runs_, models_, admission_, traces_, responses_),
        catalogue_(std::move(catalogue.unloaded), models_, applications_, profiles_, file_problems_,
                   journal_),
        rules_(backends_, dispatcher_.batches(), journal_),
        sessions_(options_, backends_, exclusions_, takeover_, owned_, probes_, journal_),
        nodes_(options_, dispatch_, backends_, deployment_, owned_, sessions_, journal_),
        gpulets_(options_, dispatch_, backends_, models_, failures_, deployment_, journal_),
        results_(dispatch_, failures_, feedback_, owner_figures_, journal_),
        messages_({rules_, sessions_, nodes_, gpulets_, results_, probes_}, routes_),
        readiness_(admission_, leadership_, forwarder_, owned_, deployment_, backends_),
        for_clients_(options_.keep_plan, models_, runs_, routes_, file_problems_),
        adaptation_status_(control_, feedback_, estimates_),
        plan_status_(deployment_, models_.successions(), plan_requests_, history_, log_),
        cluster_status_(options_, leadership_, forwarder_, ownership_, owned_,
                        deployment_.in_force()),
        gpulet_status_(dispatcher_.gpulets(), reported_figures_, fleet_, deployment_,
                       adaptation_status_),
        model_status_(models_, loads_, runs_, plan_status_, adaptation_status_, cluster_status_),
        trouble_status_(rules_, exclusions_, failures_, file_problems_, catalogue_),
        reporter_(options_,
                  {readiness_, cluster_status_, plan_status_, gpulet_status_, model_status_,
                   trouble_status_},
                  adaptation_status_, for_clients_),
        next_tick_(now + options_.tick) {
    plan_requests_.add("the frontend started");
    for (const ServedModel& model : catalogue.models) models_.add(model, now);
    applications_.replace(catalogue.applications, now);
    demands_.tick(now);
    nodes_.update_absence();
  }

  // ---- events

  void on(RequestReceived event, Time now, FrontendEffects& effects) {
    if (!applications_.on_request(event, now, effects))
      intake_.on_request(std::move(event), now, effects);
  }

  void on(ClientDisconnected event, Time now, FrontendEffects& effects) {
    dispatcher_.client_gone(event.client);
    forwarder_.client_gone(event.client, effects);
    entries_.remove(event.client);
    applications_.on_client_disconnected(event.client, now, effects);
  }

  void on(const RequestCancelled& event, Time /*now*/, FrontendEffects& effects) {
    admission_.withdraw(event.model, event.client, event.tag, effects);
  }

  template <PeerEvent Event>
  void on(Event event, Time now, FrontendEffects& effects) {
    peers_.on(std::move(event), now, effects);
  }

  void on(BackendMessageReceived event, Time now, FrontendEffects& effects) {
    messages_.on_message(std::move(event), now, effects);
    peers_.follow_owned(now, effects);
  }
  void on(const BackendDisconnected& event, Time now, FrontendEffects& effects) {
    messages_.on_disconnected(event.backend, event.reason, now, effects);
    peers_.follow_owned(now, effects);
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
  void on(const LeadershipLost& event, Time now, FrontendEffects& effects) {
    if (leadership_.leads()) ownership_.on_lost();
    if (leadership_.on_lost(event, now, effects)) {
      models_.forget_waking();
      leadership_.hand_on(now, effects);
      models_.successions().finish(now, effects);
    }
    peers_.report_to_leader(effects);
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
    models_.states().set_settled(now);
    // A part of a catalogue and a plan request each make for a long turn.
    plan_next_turn_ = catalogue_.in_progress();
    const bool models_change = catalogue_.in_progress() || models_.successions().has_more_to_do();
    if (catalogue_.in_progress()) catalogue_.step(now, effects);
    if (models_.successions().has_more_to_do()) models_.successions().go_on(now, effects);
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
    peers_.follow_owned(now, effects);
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
    peers_.start_draining();
    drained_at_ = event.earliest;
    peers_.report_to_leader(effects);
    log_.note(false,
              event.hands_over ? "draining: serving on while clients leave"
                               : "draining: no new requests, answering what is in flight",
              now, effects);
  }

  // ---- queries

  [[nodiscard]] Time next_wake() const {
    const Time settled_at = models_.states().settled_at();
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
    gpulet_status_.tick(options_.tick + late);
    messages_.tick(now, late, effects);
    feedback_.tick(now, effects);
    reorganisation_.tick(now);
    models_.setbacks().expire_backoffs(now);
    failures_.expire_exclusions(now);
    models_.setbacks().expire_quarantines(now, effects);
    models_.setbacks().retry_refused(now, effects);
    models_.refuse_wakers(now, effects);
    messages_.retire_unclaimed(now, effects);
    messages_.give_up_overdue(late, now, effects);
    models_.successions().sweep(now, effects);
    if (backends_.gpulets_ended()) backends_.forget_files(models_.table().known_files());
    owned_.refresh(now);
    tell_peers(effects);
    peers_.report_to_leader(effects);
  }

  // Other frontends answer their clients' questions about models with what this one says.
  void tell_peers(FrontendEffects& effects) {
    if (!options_.clustered) return;
    ServedModels served = for_clients_.served_models(readiness_.serving());
    if (served == told_) return;
    told_ = served;
    effects.emplace_back(TellPeers{std::move(served)});
  }

  [[nodiscard]] bool may_plan() const {
    return leadership_.leads() && (!leadership_.doubtful() || plan_requests_.urgent());
  }

  // Work on thousands of models or gpulets takes several turns, and the next one is due now.
  [[nodiscard]] bool has_more_to_do() const {
    return catalogue_.in_progress() || models_.successions().has_more_to_do() ||
           rollouts_.has_more_to_do();
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
  Journal journal_;
  Fleet fleet_;
  Deployment deployment_;
  OwnerFigures owner_figures_;
  Entries entries_;
  ResponseWriter responses_;
  Dispatch dispatch_;
  ModelRegistry models_;
  ModelLoads loads_;
  Estimates estimates_;
  Probes probes_;
  FailureHandler failures_;
  Feedback feedback_;
  InstanceController instances_;

  // Plans.
  RoutesInForce routes_in_force_;
  GpuletStarter starter_;
  InPlaceReplacement in_place_;
  Mixtures mixtures_;
  RolloutController rollouts_;
  GpuletAdoption adoption_;
  DemandsToPlan demands_to_plan_;
  PlanInputs inputs_;
  PlanTriggers triggers_;
  PlanDecisions decisions_;
  PlanStages stages_;
  ReorganisationController reorganisation_;

  // The cluster.
  Forwarder forwarder_;
  OwnedGpulets owned_;
  Ownership ownership_;
  OwnerReports owner_reports_;
  PeerEvents peers_;
  Takeover takeover_;
  Leadership leadership_;

  // Requests and messages.
  Arrivals arrivals_;
  Admission admission_;
  RequestIntake intake_;
  ApplicationGateway applications_;
  CatalogueUpdate catalogue_;
  PeerRules rules_;
  BackendSessions sessions_;
  NodeLosses nodes_;
  GpuletReports gpulets_;
  BatchResults results_;
  BackendMessageHandler messages_;

  // The status.
  Readiness readiness_;
  ModelReporter for_clients_;
  AdaptationReporter adaptation_status_;
  PlanReporter plan_status_;
  ClusterReporter cluster_status_;
  GpuletReporter gpulet_status_;
  ModelStatusReporter model_status_;
  TroubleReporter trouble_status_;
  StatusReporter reporter_;

  Time next_tick_;
  bool plan_next_turn_ = false;  // the turn was long already
  bool drained_ = false;
  Time drained_at_{};  // at the earliest
  ServedModels told_;  // in the last TellPeers
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
bool FrontendCore::serving() const { return impl_->readiness_.serving(); }
Epoch FrontendCore::epoch() const { return impl_->deployment_.in_force().epoch(); }
const schedule::Plan& FrontendCore::plan() const { return impl_->deployment_.in_force().plan(); }
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
  return impl_->model_status_.status_of(name, now);
}
ModelsReply FrontendCore::models_after(const std::string& name, std::size_t most) const {
  return impl_->for_clients_.models_after(name, most);
}
std::vector<ModelInfo> FrontendCore::models(std::vector<std::string> names) const {
  return impl_->for_clients_.models(std::move(names));
}
std::optional<ModelView> FrontendCore::model(std::string_view name) const {
  return impl_->for_clients_.model(name);
}
void FrontendCore::each_model(const std::function<void(const ModelView&)>& visit) const {
  impl_->for_clients_.each_model(visit);
}
std::uint64_t FrontendCore::models_revision() const { return impl_->for_clients_.revision(); }
std::vector<std::string> FrontendCore::buckets_of(std::string_view name) const {
  const DynamicModel* const dynamic = impl_->models_.table().dynamic().find(name);
  return dynamic == nullptr ? std::vector<std::string>() : dynamic->names();
}
bool FrontendCore::is_unloaded(std::string_view name) const {
  return impl_->catalogue_.is_unloaded(name);
}
std::shared_ptr<const Application> FrontendCore::application(std::string_view name) const {
  return impl_->runs_.find(name);
}
std::size_t FrontendCore::model_slots() const {
  return impl_->dispatcher_.queues().models().size();
}
std::unordered_set<std::string_view> FrontendCore::known_files() const {
  return impl_->models_.table().known_files();
}
bool FrontendCore::takes_in_catalogue() const { return impl_->catalogue_.in_progress(); }
std::optional<PeerBreach> FrontendCore::breach_of_result(BackendId from, BatchId batch) const {
  return serve::breach_of_result(from, batch, impl_->backends_, impl_->dispatcher_.batches());
}

}  // namespace gpulet::serve

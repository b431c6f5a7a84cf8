// The frontend's components, wired as FrontendCore wires them, for tests of a single component.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/serve/values/frontend_events.h"
#include "gpulet/serve/values/frontend_options.h"
#include "serve/adapt/cpu_control.h"
#include "serve/adapt/feedback.h"
#include "serve/cluster/owned_gpulets.h"
#include "serve/deploy/backend_registry.h"
#include "serve/deploy/backoff.h"
#include "serve/deploy/demands.h"
#include "serve/deploy/deployment.h"
#include "serve/deploy/response_writer.h"
#include "serve/dispatch/dispatcher.h"
#include "serve/models/failures.h"
#include "serve/models/model_registry.h"
#include "serve/plans/gpulet_adoption.h"
#include "serve/plans/reorganisation.h"
#include "serve/plans/rollout.h"
#include "serve/requests/admission.h"
#include "serve/requests/application_gateway.h"
#include "serve/requests/backend_messages.h"
#include "serve/requests/catalogue_update.h"
#include "serve/requests/request_intake.h"
#include "serve/values/event_log.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::testing {

constexpr Time at_ms(int ms) {
  return Time(std::chrono::seconds(1) + std::chrono::milliseconds(ms));
}

// Models "a" and "b" are profiled on devices of type "card".
struct FrontendParts {
  explicit FrontendParts(FrontendOptions the_options = {}) : options(std::move(the_options)) {}

  // A device with sizes of 50 and 100 percent.
  static DeviceOffer device(const std::string& node, std::uint32_t number) {
    DeviceOffer offer;
    offer.device.key = {node, number};
    offer.device.type = "card";
    offer.device.partitioning = "simulated";
    offer.device.sizes = {Share{50}, Share{100}};
    offer.mechanism = "simulated";
    return offer;
  }

  // A backend with one device joins.
  FrontendEffects join(std::uint64_t backend, const std::string& node, Time now) {
    return send(backend, Hello{node, {device(node, 0)}, {}}, now);
  }
  FrontendEffects send(std::uint64_t backend, BackendMessage message, Time now) {
    FrontendEffects effects;
    messages.on_message({BackendId{backend}, std::move(message)}, now, effects);
    return effects;
  }

  // A plan with one gpulet of half a device for each of the models, all on device 0 of the node.
  static schedule::Plan plan_for(const std::string& node, const std::vector<std::string>& names) {
    schedule::Plan plan;
    plan.policy = "elastic";
    for (const std::string& name : names) {
      schedule::PlannedGpulet gpulet;
      gpulet.device = {node, 0};
      gpulet.size = Share{50};
      gpulet.duty_cycle_ms = 20;
      gpulet.assignments = {{name, 10, 1, 10, 1, 1000}};
      plan.gpulets.push_back(gpulet);
    }
    return plan;
  }

  FrontendOptions options;
  std::shared_ptr<const profile::ProfileSet> measured = std::make_shared<const profile::ProfileSet>(
      profile::ProfileSet{{"card", card_profile({{"a", 5}, {"b", 5}})}});
  ProfilesInForce profiles{measured, nullptr, measured};
  Dispatcher dispatcher{{}, options.max_queue_per_model, BatchId{1}};
  Demands demands{{}, options.demands};
  CpuControl control{options.control};
  Exclusions exclusions{options.exclusions};
  InflightLimiter limiter{options.inflight};
  TraceSampler traces{options.trace_every};
  BackendRegistry backends;
  FileProblems file_problems;
  PlanRequests plan_requests;
  PlanHistory history;
  EventLog log;
  ReportedFigures reported;
  RouteTable routes{!options.clustered, options.member};
  Journal journal{log, plan_requests, history};
  Fleet fleet{backends, profiles};
  Deployment deployment{backends, options.run};
  OwnerFigures owner_figures{dispatcher.queues(), routes};
  Entries entries{backends};
  ResponseWriter responses{dispatcher.queues(), backends, traces, owner_figures, entries};
  Dispatch dispatch{dispatcher, responses};
  ModelRegistry models{options.quarantine,
                       {dispatch, demands, backends, file_problems, deployment, journal}};
  ModelLoads loads{dispatcher.queues(), dispatcher.records(), demands, reported};
  Estimates estimates{options.estimates, backends, models.table(), profiles};
  Probes probes{dispatcher.batch_numbers(), backends, models.table(), estimates, journal};
  FailureHandler failures{options, fleet, models, exclusions, deployment, journal};
  Feedback feedback{options, loads, fleet, models.table(), deployment, journal, at_ms(0)};
  InstanceController instances{control, dispatcher.instances(), fleet, models.table(), deployment};
  RoutesInForce routes_in_force{options, dispatch, fleet, models, instances, feedback, deployment};
  GpuletStarter starter{backends, fleet, models.table(), deployment, journal};
  InPlaceReplacement in_place{options,  fleet,      starter, routes_in_force,
                              failures, deployment, journal};
  Mixtures mixtures{backends, fleet, models.table(), routes_in_force, deployment};
  RolloutController rollouts{options,         starter,    in_place, mixtures,
                             routes_in_force, deployment, journal};
  GpuletAdoption adoption{options, backends, fleet, models, routes_in_force, deployment, journal};
  DemandsToPlan demands_to_plan{options, demands, loads, models, feedback, estimates};
  PlanInputs inputs{options,  demands_to_plan, fleet,     models.table(),
                    failures, feedback,        deployment};
  PlanTriggers triggers{options.period, demands, fleet, models.table(), deployment, journal};
  PlanDecisions decisions{options, inputs, in_place, models.table(), deployment, journal};
  PlanStages stages{fleet, inputs, rollouts, deployment, journal};
  ReorganisationController reorganisation{
      options, {triggers, inputs, decisions, stages}, deployment, journal, at_ms(0)};
  Forwarder forwarder{options, models, responses, routes};
  OwnedGpulets owned{options.member, dispatcher, backends, models.table(), routes, owner_figures};
  Takeover takeover{options, dispatch, backends, deployment, adoption, routes, journal};
  Leadership leadership{options, dispatcher, backends, deployment, takeover, forwarder, journal};
  Arrivals arrivals{demands, models, owner_figures, plan_requests};
  Admission admission{options, dispatch, models, arrivals, limiter, leadership, forwarder, entries};
  RequestIntake intake{options, dispatch, models, traces, admission};
  ApplicationRunner runs{options.max_queue_per_model};
  ApplicationGateway applications{options, runs, models, admission, traces, responses};
  CatalogueUpdate catalogue{nullptr, models, applications, profiles, file_problems, journal};
  PeerRules rules{backends, dispatcher.batches(), journal};
  BackendSessions sessions{options, backends, exclusions, takeover, owned, probes, journal};
  NodeLosses nodes{options, dispatch, backends, deployment, owned, sessions, journal};
  GpuletReports gpulets{options, dispatch, backends, models, failures, deployment, journal};
  BatchResults results{dispatch, failures, feedback, owner_figures, journal};
  BackendMessageHandler messages{{rules, sessions, nodes, gpulets, results, probes}, routes};
};

// The effects of one type, in their order.
template <typename Effect>
std::vector<Effect> only(const FrontendEffects& effects) {
  std::vector<Effect> found;
  for (const FrontendEffect& effect : effects) {
    if (const auto* const one = std::get_if<Effect>(&effect)) found.push_back(*one);
  }
  return found;
}

// The commands of one type to any backend, in their order.
template <typename Command>
std::vector<Command> commands(const FrontendEffects& effects) {
  std::vector<Command> found;
  for (const SendToBackend& sent : only<SendToBackend>(effects)) {
    if (const auto* const one = std::get_if<Command>(&sent.command)) found.push_back(*one);
  }
  return found;
}

}  // namespace gpulet::serve::testing

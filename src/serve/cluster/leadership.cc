#include "serve/cluster/leadership.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace gpulet::serve {
namespace {

constexpr Term kFirstTerm{1};
// A frontend alone begins a term with each run, and takes no more than that at once.
constexpr std::uint64_t kMostRuns = std::uint64_t{1} << 20U;
// Backends that do not answer in that time hold up no requests.
constexpr Duration kTakeOverTimeout = std::chrono::seconds(5);

}  // namespace

Leadership::Leadership(const FrontendOptions& options, const Dependencies& dependencies)
    : options_(options), core_(dependencies) {
  if (leads()) core_.backends.set_term(kFirstTerm);
}

bool Leadership::taking_over(Time now) const {
  if (!options_.clustered || !leads() || now - won_at_ > kTakeOverTimeout) return false;
  const auto& backends = core_.backends.backends();
  return backends.empty() || std::any_of(backends.begin(), backends.end(), [this](const auto& one) {
           return one.second.level > 0 && !core_.backends.commanded(one.first);
         });
}

LeadershipStatus Leadership::status() const {
  return {options_.clustered, leads(), core_.backends.term(), leader_, superseded_};
}

// ---- the role of this frontend

void Leadership::on_won(const LeadershipWon& event, Time now, FrontendEffects& effects) {
  if (!options_.clustered || (leads() && event.term <= core_.backends.term())) return;
  doubtful_ = false;
  leader_.clear();
  if (!leads()) won_at_ = now;
  core_.dispatcher.set_routes({}, now);  // until the backends tell what runs
  core_.forwarder.lead(now, effects);
  core_.backends.set_term(event.term);
  core_.plan_requests.start_over();
  core_.plan_requests.add("this frontend leads now");
  core_.plan_requests.gather_until(now + options_.gather);
  core_.log.note(false, fmt::format("leads the cluster in term {}", event.term.value), now,
                 effects);
  take_all(effects);
}

// The gpulets finish the batches that they hold: their backends still send the results here.
void Leadership::on_lost(LeadershipLost event, Time now, FrontendEffects& effects) {
  leader_ =
      event.leader.empty() ? std::string() : fmt::format("{} at {}", event.leader, event.address);
  if (!leads()) return core_.forwarder.set_leader(event.leader, now, effects);
  doubtful_ = false;
  core_.log.note(true,
                 leader_.empty() ? "no longer leads the cluster"
                                 : "no longer leads the cluster: " + leader_ + " does",
                 now, effects);
  core_.plan_requests.discard();
  core_.backends.set_commanded_by_none();
  core_.deployment.start_over();
  core_.dispatcher.set_routes({}, now);
  core_.models.forget_waking();
  core_.forwarder.set_leader(event.leader, now, effects);
  hand_on(now, effects);
  core_.models.finish_successions(now, effects);
}

void Leadership::hand_on(Time now, FrontendEffects& effects) {
  if (core_.routes.all_here()) return;
  const auto name_of = [this](ModelIndex model) -> const std::string& {
    return core_.dispatcher.models()[model].name;
  };
  const auto elsewhere = [&](ModelIndex model) { return !core_.routes.here(name_of(model)); };
  for (auto& [model, request] : core_.dispatcher.take_waiting(elsewhere)) {
    if (request.forwarded) {
      effects.emplace_back(ReplyElsewhere{request.client, request.tag});
    } else {
      core_.forwarder.forward(name_of(model), std::move(request), true, now, effects);
    }
  }
}

void Leadership::on_doubted(const LeadershipDoubted& event, Time now, FrontendEffects& effects) {
  if (!options_.clustered || !leads() || event.doubtful == doubtful_) return;
  doubtful_ = event.doubtful;
  core_.log.note(doubtful_,
                 doubtful_ ? "another frontend may lead by now: only urgent plans are made"
                           : "leads the cluster without doubt again",
                 now, effects);
}

// ---- backends

void Leadership::take(BackendId backend, FrontendEffects& effects) {
  core_.backends.set_taken_before(backend, core_.deployment.next_gpulet());
  effects.emplace_back(SendToBackend{backend, TakeLeadership{core_.backends.term_for(backend)}});
}

void Leadership::take_all(FrontendEffects& effects) {
  for (const auto& [id, backend] : core_.backends.backends()) {
    if (backend.level > 0) take(id, effects);
  }
}

void Leadership::on_joined(BackendId backend, Term highest, FrontendEffects& effects) {
  if (!leads()) return;
  if (highest < core_.backends.term()) return take(backend, effects);
  if (options_.clustered) {
    // Its own term may be the highest: then this is a connection made again.
    if (highest == core_.backends.term()) return take(backend, effects);
    effects.emplace_back(SupersededBy{highest});
    return;
  }
  // An earlier run, or another frontend, led with that term. One that is far ahead is made up, or
  // was once: it concerns nobody else, so that no backend uses up the terms of the others.
  if (highest.value - core_.backends.term().value > kMostRuns) {
    core_.backends.set_term_for(backend, Term{highest.value + 1});
    return take(backend, effects);
  }
  core_.backends.set_term(Term{highest.value + 1});
  take_all(effects);
}

void Leadership::on_state(BackendId backend, const BackendState& state, Time now,
                          FrontendEffects& effects) {
  if (!leads() || state.term != core_.backends.term_for(backend))
    return;  // of an earlier TakeLeadership
  core_.backends.set_commanded(backend);
  DispatchOutput output;
  for (const GpuletId id : core_.backends.missing_in(backend, state.gpulets)) {
    core_.dispatcher.remove(id, now, output);
    core_.deployment.lose(id);
    core_.backends.forget_gpulet(id);
  }
  core_.responses.write(std::move(output), effects);
  take_over(backend, state.gpulets, now, effects);
}

void Leadership::on_superseded(BackendId backend, Term term, Time now, FrontendEffects& effects) {
  ++superseded_;
  if (!leads() || term <= core_.backends.term_for(backend) || !core_.backends.commanded(backend))
    return;
  core_.backends.set_commanded(backend, false);
  core_.log.note(true,
                 fmt::format("another frontend leads node {}, in term {}",
                             core_.backends.backends().at(backend).node, term.value),
                 now, effects);
  DispatchOutput output;
  for (const GpuletId id : core_.backends.gpulets_of(backend)) core_.deployment.lose(id);
  core_.deployment.stages().clear();
  core_.rollouts.put_routes_in_force(now, effects);
  core_.plan_requests.add("another frontend leads a node");
  effects.emplace_back(SupersededBy{term});
}

void Leadership::take_over(BackendId backend, const std::vector<GpuletReport>& gpulets, Time now,
                           FrontendEffects& effects) {
  const std::string node = core_.backends.backends().at(backend).node;
  for (const GpuletId id : core_.backends.claim(backend, gpulets, now)) {
    effects.emplace_back(
        SendToBackend{backend, RetireGpulet{id, core_.backends.term_for(backend)}});
    core_.log.note(
        true,
        fmt::format("{} of node {} is retired: another node claimed it before", name_of(id), node),
        now, effects);
  }
  core_.plan_requests.add("node " + node + " joined");
  core_.plan_requests.gather_until(
      std::max(core_.plan_requests.gather_until(), now + options_.gather));
  for (const GpuletReport& report : gpulets) {
    const GpuletRecord* const known = core_.backends.find(report.id);
    if (known == nullptr || known->backend != backend) continue;
    if (report.state == GpuletState::ready) core_.models.prove(report.models);
    if (report.state == GpuletState::failed) core_.deployment.retire(report.id, effects);
  }
  core_.rollouts.adopt_gpulets(backend, now, effects);
}

}  // namespace gpulet::serve

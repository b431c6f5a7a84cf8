#include "serve/cluster/takeover.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace gpulet::serve {
namespace {

// A frontend alone begins a term with each run, and takes no more than that at once.
constexpr std::uint64_t kMostRuns = std::uint64_t{1} << 20U;

}  // namespace

void Takeover::take(BackendId backend, FrontendEffects& effects) {
  backends_.set_taken_before(backend, deployment_.gpulets().next_id());
  effects.emplace_back(SendToBackend{backend, TakeLeadership{backends_.term_for(backend)}});
}

void Takeover::take_all(FrontendEffects& effects) {
  for (const auto& [id, backend] : backends_.backends()) {
    if (backend.level > 0) take(id, effects);
  }
}

void Takeover::on_joined(BackendId backend, Term highest, FrontendEffects& effects) {
  if (!routes_.leads()) return;
  if (highest < backends_.term()) return take(backend, effects);
  if (options_.clustered) {
    // Its own term may be the highest: then this is a connection made again.
    if (highest == backends_.term()) return take(backend, effects);
    effects.emplace_back(SupersededBy{highest});
    return;
  }
  // An earlier run, or another frontend, led with that term. One that is far ahead is made up, or
  // was once: it concerns nobody else, so that no backend uses up the terms of the others.
  if (highest.value - backends_.term().value > kMostRuns) {
    backends_.set_term_for(backend, Term{highest.value + 1});
    return take(backend, effects);
  }
  backends_.set_term(Term{highest.value + 1});
  take_all(effects);
}

void Takeover::on_state(BackendId backend, const BackendState& state, Time now,
                        FrontendEffects& effects) {
  if (!routes_.leads() || state.term != backends_.term_for(backend))
    return;  // of an earlier TakeLeadership
  backends_.set_commanded(backend);
  DispatchOutput output;
  for (const GpuletId id : backends_.missing_in(backend, state.gpulets)) {
    dispatch_.dispatcher().remove(id, now, output);
    deployment_.lose(id);
    backends_.forget_gpulet(id);
  }
  dispatch_.write(std::move(output), effects);
  take_over(backend, state.gpulets, now, effects);
}

void Takeover::on_superseded(BackendId backend, Term term, Time now, FrontendEffects& effects) {
  ++superseded_;
  if (!routes_.leads() || term <= backends_.term_for(backend) || !backends_.commanded(backend))
    return;
  backends_.set_commanded(backend, false);
  journal_.note(true,
                fmt::format("another frontend leads node {}, in term {}",
                            backends_.backends().at(backend).node, term.value),
                now, effects);
  adoption_.give_up(backend, now, effects);
  journal_.request_plan("another frontend leads a node");
  effects.emplace_back(SupersededBy{term});
}

bool Takeover::incomplete() const {
  const auto& backends = backends_.backends();
  return backends.empty() || std::any_of(backends.begin(), backends.end(), [this](const auto& one) {
           return one.second.level > 0 && !backends_.commanded(one.first);
         });
}

}  // namespace gpulet::serve

#include "frontend/engine.h"

#include <cstddef>
#include <optional>
#include <utility>
#include <variant>

namespace gpulet::frontend {
namespace {

// Memory for more is returned: thousands of requests may be dropped at once.
constexpr std::size_t kEffectsKept = 1024;

// Names an event in the reports of LoopWatch.
struct TaskName {
  using Text = std::string_view;
  Text operator()(const serve::RequestReceived&) const { return "a client's request"; }
  Text operator()(const serve::ClientDisconnected&) const { return "a client that left"; }
  Text operator()(const serve::BackendMessageReceived&) const { return "a backend's message"; }
  Text operator()(const serve::BackendDisconnected&) const { return "a backend that left"; }
  Text operator()(const serve::PlanMade&) const { return "a new plan"; }
  Text operator()(const serve::CatalogueChanged&) const { return "a changed catalogue"; }
  Text operator()(const serve::ModelSourcesChanged&) const { return "news of stores"; }
  Text operator()(const serve::StepCompleted&) const { return "a step of an application"; }
  Text operator()(const serve::Settle&) const { return "follow-up work"; }
  Text operator()(const auto&) const { return "an event"; }
};

bool concerns_leader(const serve::FrontendEvent& event) {
  return std::holds_alternative<serve::LeadershipWon>(event) ||
         std::holds_alternative<serve::LeadershipLost>(event) ||
         std::holds_alternative<serve::LeadershipDoubted>(event) ||
         std::holds_alternative<serve::PeerServes>(event);
}

}  // namespace

Engine::Engine(net::asio::io_context& io, const Setup& setup, LoopWatch& watch,
               CoreObserver observer, Host& host)
    : io_(io),
      watch_(watch),
      observer_(std::move(observer)),
      host_(host),
      started_(net::now()),
      core_(core_options(setup), setup.catalogue, started_),
      wake_(io) {}

void Engine::deliver_from(std::string_view address, serve::FrontendEvent event) {
  cause_ = address;
  deliver(std::move(event));
  cause_.clear();
}

void Engine::deliver(serve::FrontendEvent event) {
  const bool leader = concerns_leader(event);
  if (!stopped_) {
    run(std::move(event));
    if (!std::exchange(settle_posted_, true)) {
      net::asio::post(io_, [this] {
        settle_posted_ = false;
        if (stopped_) return;
        run(serve::Settle{});
        arm_wake();
      });
    }
  }
  if (leader) host_.follow_leader();
}

void Engine::run(serve::FrontendEvent event) {
  const Time now = net::now();
  // Requests are not measured: they are short, and reading the clock would slow them down.
  std::optional<LoopWatch::Scope> scope;
  if (std::holds_alternative<serve::RequestReceived>(event)) {
    last_request_ = now;
  } else {
    scope.emplace(watch_, std::visit(TaskName(), event), now);
  }
  effects_.clear();
  if (observer_) {
    const serve::FrontendEvent seen = event;
    core_.on(std::move(event), now, effects_);
    observer_(seen, now, effects_);
  } else {
    core_.on(std::move(event), now, effects_);
  }
  for (serve::FrontendEffect& effect : effects_) host_.carry_out(effect);
  if (effects_.capacity() > kEffectsKept) effects_ = {};
  host_.on_turn(now);
  if (when_applied_.empty() || core_.takes_in_catalogue()) return;
  for (const Done& notify : std::exchange(when_applied_, {})) notify();
}

// Never postpones the alarm: an early wake-up costs less than setting the alarm for every batch.
void Engine::arm_wake() {
  const Time wake = core_.next_wake();
  if (wake >= armed_for_) return;
  armed_for_ = wake;
  wake_.set(wake, [this] {
    armed_for_ = kNever;
    run(serve::Settle{});
    arm_wake();
  });
}

void Engine::stop() {
  stopped_ = true;
  wake_.cancel();
}

}  // namespace gpulet::frontend

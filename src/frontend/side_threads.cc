#include "side_threads.h"

#include <string>
#include <utility>

#include "gpulet/serve/planning.h"

namespace gpulet::frontend {

namespace asio = net::asio;

namespace {

// Each takes up to a millisecond: what waits longer than a second has no point.
constexpr std::size_t kMaxSteps = 1024;

}  // namespace

SideThreads::~SideThreads() {
  planner_.join();
  steps_.join();
}

void SideThreads::make_plan(serve::MakePlan request) {
  asio::post(planner_, [this, request = std::move(request)] {
    serve::PlanMade made = serve::make_plan(request, *policy_);
    asio::post(io_, [this, made = std::move(made)]() mutable { done_(std::move(made)); });
  });
}

void SideThreads::run_step(serve::StepToRun step) {
  if (steps_waiting_ >= kMaxSteps) {
    const Status full(StatusCode::overloaded, std::to_string(kMaxSteps) + " steps are waiting");
    asio::post(io_, [this, id = step.id, full] { done_(serve::StepDone{id, full}); });
    return;
  }
  ++steps_waiting_;
  asio::post(steps_, [this, step = std::move(step)] {
    serve::StepDone done{step.id, serve::run_step(step.step, step.inputs)};
    asio::post(io_, [this, done = std::move(done)]() mutable {
      --steps_waiting_;
      done_(std::move(done));
    });
  });
}

}  // namespace gpulet::frontend

// SideThreads: what the frontend's core wants done and what would hold up its thread: planning, and
// the steps of applications. Each has a thread of its own; results come back on the io_context,
// which must not run any more when this is destroyed.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <cstddef>
#include <functional>
#include <memory>

#include "gpulet/net/asio.h"
#include "gpulet/schedule/policy.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::frontend {

class SideThreads {
 public:
  SideThreads(net::asio::io_context& io, std::shared_ptr<const schedule::Policy> policy,
              std::function<void(serve::FrontendEvent)> done)
      : io_(io), policy_(std::move(policy)), done_(std::move(done)) {}
  ~SideThreads();
  SideThreads(const SideThreads&) = delete;
  SideThreads& operator=(const SideThreads&) = delete;

  void make_plan(serve::MakePlan request);
  // A bounded number waits; what is beyond fails with overloaded.
  void run_step(serve::StepToRun step);

 private:
  net::asio::io_context& io_;
  std::shared_ptr<const schedule::Policy> policy_;
  std::function<void(serve::FrontendEvent)> done_;
  std::size_t steps_waiting_ = 0;
  boost::asio::thread_pool planner_{1};
  boost::asio::thread_pool steps_{1};
};

}  // namespace gpulet::frontend

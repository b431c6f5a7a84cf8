// Engine: runs serve::FrontendCore on the event loop. It delivers events with their time, has their
// effects carried out, and wakes the core when it asks for that. It makes no decisions. Belongs to
// the thread of the io_context, which must have stopped before it is destroyed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "frontend/daemon.h"
#include "frontend/loop/done.h"
#include "frontend/loop/event_loop.h"
#include "frontend/loop/event_sink.h"
#include "frontend/setup.h"
#include "gpulet/base/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::frontend {

class Engine final : public EventSink {
 public:
  class Host {
   public:
    // In the order of the effects. An event that follows must be posted.
    virtual void carry_out(serve::FrontendEffect& effect) = 0;
    // All effects of an event were carried out.
    virtual void on_turn(Time now) = 0;
    // Who leads, or what the leader serves, may have changed.
    virtual void follow_leader() = 0;

   protected:
    ~Host() = default;
  };

  // `observer` may be empty. `watch` and `host` must outlive it.
  Engine(net::asio::io_context& io, const Setup& setup, LoopWatch& watch, CoreObserver observer,
         Host& host);

  [[nodiscard]] const serve::FrontendCore& core() const { return core_; }
  [[nodiscard]] Time started_at() const { return started_; }
  // When the last request arrived.
  [[nodiscard]] Time last_request() const { return last_request_; }
  // The address of the backend whose event is being handled; empty: none.
  [[nodiscard]] const std::string& cause() const { return cause_; }

  void deliver(serve::FrontendEvent event) override;
  void deliver_from(std::string_view address, serve::FrontendEvent event) override;
  // Calls `done` after an event, once the core has taken in the whole catalogue.
  void when_applied(Done done) { when_applied_.push_back(std::move(done)); }
  // The core is woken from now on.
  void start() { arm_wake(); }
  // Drops later events.
  void stop();

 private:
  void run(serve::FrontendEvent event);
  void arm_wake();

  net::asio::io_context& io_;
  LoopWatch& watch_;
  const CoreObserver observer_;
  Host& host_;
  const Time started_;
  serve::FrontendCore core_;
  serve::FrontendEffects effects_;
  std::vector<Done> when_applied_;
  bool settle_posted_ = false;
  bool stopped_ = false;
  net::Alarm wake_;
  Time armed_for_ = kNever;
  Time last_request_ = Time::min();
  std::string cause_;
};

}  // namespace gpulet::frontend

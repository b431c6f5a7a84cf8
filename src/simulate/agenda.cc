#include "simulate/agenda.h"

#include <algorithm>
#include <utility>

namespace gpulet::simulate {

void Agenda::advance(Time time) { now_ = std::max(now_, time); }

std::uint64_t Agenda::add(Time time, Timer::Kind kind, NodeIndex node, GpuletId gpulet) {
  const std::uint64_t order = next_order();
  timers_.push({{time, order}, kind, node, gpulet});
  return order;
}

void Agenda::call_at(Time time, Call call) {
  calls_.emplace(add(std::max(time, now_), Timer::Kind::call, 0, {}), std::move(call));
}

Timer Agenda::take_first() {
  const Timer timer = timers_.top();
  timers_.pop();
  return timer;
}

void Agenda::run_call(const Timer& timer) {
  const auto found = calls_.find(timer.due.order);
  const Call call = std::move(found->second);
  calls_.erase(found);
  call();
}

}  // namespace gpulet::simulate

#include "gpulet/serve/warm_pool.h"

#include <algorithm>

namespace gpulet::serve {

bool WarmPool::lacks_one() const { return !starting_ && !loading_ && idle_ < options_.wanted; }

bool WarmPool::wants_another(Time now) const { return lacks_one() && now >= not_before_; }

Time WarmPool::next_look() const { return lacks_one() ? not_before_ : kNever; }

void WarmPool::idle() {
  starting_ = false;
  ++idle_;
}

void WarmPool::forget(bool was_idle) {
  if (was_idle) {
    --idle_;
  } else {
    starting_ = false;
  }
}

void WarmPool::died(bool was_idle, Time now) {
  forget(was_idle);
  if (now - last_death_ >= options_.healthy_after) deaths_ = 0;
  last_death_ = now;
  auto delay = options_.first_restart_delay;
  for (std::uint32_t i = 0; i < deaths_ && delay < options_.longest_restart_delay; ++i) delay *= 2;
  ++deaths_;
  not_before_ = std::max(not_before_, now + std::min(delay, options_.longest_restart_delay));
}

void WarmPool::loading(bool any, Time now) {
  if (loading_ && !any) not_before_ = std::max(not_before_, now + options_.quiet_after_loading);
  loading_ = any;
}

}  // namespace gpulet::serve

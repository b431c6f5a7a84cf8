#include "serve/requests/arrivals.h"

namespace gpulet::serve {

bool Arrivals::expect(const std::string& name, NamedModel& known) {
  const bool was_asleep = demands_.asleep(known.demand);
  demands_.arrived(known.demand);
  figures_.arrived(name);
  if (models_.table().has_ready_slot(known)) {
    known.waking = false;
    return false;
  }
  // Without a planned gpulet, the plan is made now, not when the rate has been estimated.
  if (demands_.rate_planned(known.demand) <= 0 && !known.current_refused() &&
      !models_.setbacks().quarantine().holds(name))
    plan_requests_.add_urgent("first request of " + name);
  return was_asleep;
}

}  // namespace gpulet::serve

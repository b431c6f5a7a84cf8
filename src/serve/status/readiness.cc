#include "serve/status/readiness.h"

namespace gpulet::serve {

bool Readiness::serving() const {
  const bool started =
      deployment_.in_force().epoch().value > 0 || !deployment_.in_force().serving().empty();
  if (admission_.draining()) return false;
  if (leadership_.leads()) return started && backends_.has_usable_device();
  const ServedModels* const elsewhere = forwarder_.served();
  return owned_.any() || (elsewhere != nullptr && elsewhere->serving);
}

std::string Readiness::state() const {
  if (admission_.draining()) return "draining";
  if (!leadership_.leads()) return serving() ? "forwarding" : "standby";
  if (deployment_.in_force().serving().empty() && deployment_.in_force().epoch().value == 0)
    return "starting";
  return backends_.why_nothing_serves().empty() ? "serving" : "unavailable";
}

}  // namespace gpulet::serve

#include "gpulet/protocol/messages.h"

namespace gpulet {

std::string_view to_string(ModelState state) {
  switch (state) {
    case ModelState::loading:
      return "loading";
    case ModelState::ready:
      return "ready";
    case ModelState::idle:
      return "idle";
    case ModelState::unavailable:
      return "unavailable";
    case ModelState::leaving:
      return "leaving";
  }
  return "unknown";
}

std::string_view to_string(GpuletState state) {
  switch (state) {
    case GpuletState::preparing:
      return "preparing";
    case GpuletState::ready:
      return "ready";
    case GpuletState::restarting:
      return "restarting";
    case GpuletState::failed:
      return "failed";
    case GpuletState::gone:
      return "gone";
  }
  return "unknown";
}

}  // namespace gpulet

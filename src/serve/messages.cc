#include "gpulet/serve/messages.h"

namespace gpulet::serve {

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

}  // namespace gpulet::serve

#include "gpulet/core/failure.h"

namespace gpulet {

std::string_view to_string(FailureCause cause) {
  switch (cause) {
    case FailureCause::unknown:
      return "unknown";
    case FailureCause::node_disk:
      return "node_disk";
    case FailureCause::node_store:
      return "node_store";
    case FailureCause::node_spawn:
      return "node_spawn";
    case FailureCause::node_memory:
      return "node_memory";
    case FailureCause::node_cgroup:
      return "node_cgroup";
    case FailureCause::device:
      return "device";
    case FailureCause::model_file:
      return "model_file";
    case FailureCause::model_crash:
      return "model_crash";
    case FailureCause::hung:
      return "hung";
    case FailureCause::input:
      return "input";
  }
  return "unknown";
}

}  // namespace gpulet

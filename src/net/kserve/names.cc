#include "gpulet/net/kserve/names.h"

namespace gpulet::net::kserve {

std::vector<std::string> extensions(bool shared_memory) {
  std::vector<std::string> names{"classification",     "model_repository", "model_configuration",
                                 "binary_tensor_data", "parameters",       "statistics"};
  if (shared_memory) names.emplace_back("system_shared_memory");
  return names;
}

std::string_view repository_state(serve::ModelState state) {
  switch (state) {
    case serve::ModelState::ready:
    case serve::ModelState::idle:
      return "READY";
    case serve::ModelState::loading:
      return "LOADING";
    case serve::ModelState::leaving:
      return "UNLOADING";
    case serve::ModelState::unavailable:
      break;
  }
  return "UNAVAILABLE";
}

bool takes_requests(serve::ModelState state) {
  return state == serve::ModelState::ready || state == serve::ModelState::idle;
}

}  // namespace gpulet::net::kserve

#include "gpulet/net/kserve/names.h"

namespace gpulet::net::kserve {

const char* platform_of(const Model& model) {
  return model.application ? kApplicationPlatform : kPlatform;
}

const char* backend_of(const Model& model) { return model.application ? "" : kBackend; }

std::string model_filename(const Model& model) {
  return model.description ? model.description->file_name : std::string();
}

std::string label_filename(const Model& model, std::size_t output) {
  if (!model.description || output >= model.description->labels.size()) return {};
  return model.description->labels[output].file_name;
}

std::vector<std::string> extensions(bool shared_memory) {
  std::vector<std::string> names{
      "classification", "model_repository", "model_configuration", "binary_tensor_data",
      "parameters",     "statistics",       "schedule_policy",     "trace",
      "logging"};
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

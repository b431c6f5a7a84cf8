#include "gpulet/serve/load_outcome.h"

#include "gpulet/serve/served_model.h"

namespace gpulet::serve {

std::string wanted_version(const ModelInfo& model) {
  const bool stages = !model.next.empty() && !model.next_refused;
  return stages ? model.next : model.version;
}

std::optional<LoadOutcome> outcome_of_load(const ModelInfo& now,
                                           const std::string& wanted_version) {
  const std::string version = "version " + short_version(wanted_version);
  if (now.version != wanted_version) {
    if (now.next == wanted_version && !now.next_refused) return std::nullopt;
    return LoadOutcome{false, now.reason.empty() ? "another version took its place" : now.reason};
  }
  switch (now.state) {
    case ModelState::ready:
      if (now.pending) return std::nullopt;
      return LoadOutcome{true, version + " serves"};
    case ModelState::idle:
      return LoadOutcome{true, version + " is registered; its first request wakes it"};
    case ModelState::unavailable:
      return LoadOutcome{false, now.reason};
    case ModelState::leaving:
      return LoadOutcome{false, "it is being unloaded"};
    case ModelState::loading:
      break;
  }
  return std::nullopt;
}

}  // namespace gpulet::serve

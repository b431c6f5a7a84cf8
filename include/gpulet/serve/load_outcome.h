// What becomes of models that somebody asked to load, from what the frontend tells of them. Pure;
// any thread.
#pragma once

#include <optional>
#include <string>

#include "gpulet/serve/messages.h"

namespace gpulet::serve {

struct LoadOutcome {
  bool serves = false;
  std::string text;  // why it does not serve, or that it does
};

// The version that is to serve, as told right after the change.
[[nodiscard]] std::string wanted_version(const ModelInfo& model);

// `now`: the model as it is told of now. Nothing: it is not decided yet. A model that serves while
// a plan that may change that is on its way is not decided: its last change may leave it without a
// place.
[[nodiscard]] std::optional<LoadOutcome> outcome_of_load(const ModelInfo& now,
                                                         const std::string& wanted_version);

}  // namespace gpulet::serve

// An application as the protocol's model configuration describes it: an ensemble whose steps are
// the calls of models. Pure; any thread.
//
// Tensors have the name of the request's input or of the answer's output that they are, else
// "<node>.<tensor>" as in the models file, with "[i]" for one item. The built-in steps (select,
// crop, resize, argmax) are no models, so clients that look up the model of every step must not
// find them among the steps: they are parameters of the configuration.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gpulet/config/application_config.h"

namespace gpulet::net::kserve {

struct EnsembleStep {
  std::string model;
  std::map<std::string, std::string> input_map;   // from the model's input to the tensor
  std::map<std::string, std::string> output_map;  // from the model's output to the tensor
};

// In an order in which they can run.
[[nodiscard]] std::vector<EnsembleStep> ensemble_steps(const config::ApplicationConfig& graph);
// By "step.<node>": what the node computes and of which tensors, "resize(cut.image)".
[[nodiscard]] std::map<std::string, std::string> built_in_steps(
    const config::ApplicationConfig& graph);

}  // namespace gpulet::net::kserve

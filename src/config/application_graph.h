// From the nodes and edges as they are written to a graph that holds together: every edge found,
// nodes in an order in which they can run, tensors that fit, nothing unused. Errors go to the
// cursor of what is wrong.
#pragma once

#include <string>
#include <vector>

#include "gpulet/config/application_config.h"
#include "gpulet/config/json.h"

namespace gpulet::config {

struct DraftNode {
  ApplicationNode node;  // without its inputs and outputs
  JsonCursor place;
  std::vector<JsonCursor> edges;
};
struct DraftOutput {
  std::string name;
  JsonCursor from;
};

// Fills nodes, outputs and answered of the application, whose inputs are there; `inputs` is where
// they are written. Leaves them in any state where an error was recorded. REQUIRES: a node at
// least, and names that occur once.
void join_graph(ApplicationConfig& application, std::vector<DraftNode> drafts,
                const std::vector<DraftOutput>& outputs, const std::vector<ModelConfig>& models,
                const JsonCursor& inputs);

}  // namespace gpulet::config

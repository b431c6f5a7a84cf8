// Requests for a served model that a user can paste into a shell: what `gpulet serve` prints. Pure;
// any thread.
#pragma once

#include <string>

#include "gpulet/config/daemon_config.h"
#include "gpulet/config/model_config.h"

namespace gpulet::tools {

// A line for sh that sends one request of zeros with curl; the tensors are in binary, so the line
// is short for every model. The answer shows the highest values of outputs that have one row of
// numbers, and all values of the others. Where an output has a type without a form in JSON, the
// answer goes into a file. A model of encoded images gets the file photo.jpg.
[[nodiscard]] std::string curl_line(const config::ModelConfig& model, const config::Endpoint& http);

// The same with Python's standard library: prints the first values of each output.
[[nodiscard]] std::string python_snippet(const config::ModelConfig& model,
                                         const config::Endpoint& http);

}  // namespace gpulet::tools

// Shapes that a model's file leaves open, found out by running the model in a proxy program, which
// confines it as when it serves.
#pragma once

#include "tools/measure/proxy_programs.h"
#include "tools/serve/model_tensors.h"

namespace gpulet::tools {

// Of ONNX files; fails with invalid for others, with timeout after a minute, and with unavailable
// where the program cannot run it. A call blocks for as long as the model takes to load and to run.
[[nodiscard]] LearnShapes shape_learner(const ProxyPrograms& programs);

}  // namespace gpulet::tools

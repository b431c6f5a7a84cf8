// ModelToLoad: a model that a process serves, from the backend's order to the executor. A value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpulet/core/tensor.h"

namespace gpulet {

struct ModelToLoad {
  std::string name;
  std::string file;  // its path; need not be UTF-8
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::uint32_t max_batch = 1;  // loading warms up batches up to this size
  std::uint32_t variant = 0;    // as reported by an earlier load of this file; 0: not known
  Numerics numerics{};
  // The batch sizes that loading must prepare, each in 1..max_batch; empty: those that the executor
  // chooses. It may prepare others later.
  std::vector<std::uint32_t> planned_batches{};
};

}  // namespace gpulet

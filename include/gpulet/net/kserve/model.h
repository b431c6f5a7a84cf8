// What the Open Inference Protocol says of a model. Its shapes have the batch in front; ours are
// those of one request. Values; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/core/queue_rules.h"
#include "gpulet/core/tensor.h"
#include "gpulet/serve/application.h"
#include "gpulet/serve/messages.h"
#include "gpulet/serve/served_model.h"

namespace gpulet::net::kserve {

// How often and how long something took.
struct DurationCount {
  std::uint64_t count = 0;
  std::uint64_t ns = 0;
};
struct BatchCount {  // of executions with so many requests in a batch
  std::uint32_t batch_size = 0;
  DurationCount compute_input{};
  DurationCount compute_infer{};
  DurationCount compute_output{};
};
// The statistics extension. All since the frontend's start.
struct ModelStatistics {
  std::string name;
  std::string version;
  std::uint64_t last_inference_ms = 0;  // since the epoch of Unix; 0: none yet
  std::uint64_t inference_count = 0;    // requests, a row of a batch each
  std::uint64_t execution_count = 0;    // batches
  DurationCount success;
  DurationCount fail;
  DurationCount queue;
  DurationCount compute_input{};
  DurationCount compute_infer{};
  DurationCount compute_output{};
  std::vector<BatchCount> batches;  // ascending
};

// A model or an application, as the endpoints show it. `version` is a number in words: the
// protocol's versions are numbers. It counts the versions of that name since the frontend's start.
// Empty where the model is unloaded.
struct Model {
  std::string name;
  std::string version = "1";
  std::vector<TensorSpec> inputs;   // of one request
  std::vector<TensorSpec> outputs;  // of one request
  std::uint32_t max_batch = 1;      // rows of one call
  serve::ModelState state = serve::ModelState::loading;
  std::string reason;                                            // why it is not ready
  std::shared_ptr<const serve::ModelDescription> description{};  // null: there is nothing to tell
  std::shared_ptr<const serve::Application> application{};       // null: it is a model
  std::optional<QueueRules> queue{};  // none: requests go by deadline alone
};

}  // namespace gpulet::net::kserve

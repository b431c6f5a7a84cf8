#include "gpulet/config/full_batches.h"

#include <cstdint>
#include <limits>

#include "config/wording.h"
#include "gpulet/core/tensor.h"

namespace gpulet::config {
namespace {

struct Bound {
  std::string key;
  std::uint64_t bytes = 0;
};

Bound bound_of(const FrontendConfig& config) {
  if (config.max_payload_bytes) return {"max_payload_bytes", *config.max_payload_bytes};
  return {"max_buffered_mb", std::uint64_t{config.max_buffered_mb} << 20U};
}

// Saturates.
std::uint64_t bytes_of(const std::vector<TensorSpec>& inputs, std::uint32_t rows) {
  const Result<std::size_t> row = byte_size(inputs);
  std::uint64_t bytes = 0;
  if (!row.ok() || __builtin_mul_overflow(std::uint64_t{row.value()}, std::uint64_t{rows}, &bytes))
    return std::numeric_limits<std::uint64_t>::max();
  return bytes;
}

}  // namespace

std::vector<std::string> full_batches_too_long(const FrontendConfig& config,
                                               const ServingConfig& serving) {
  const Bound bound = bound_of(config);
  std::vector<std::string> warnings;
  const auto look = [&](const std::string& what, const std::vector<TensorSpec>& inputs,
                        std::uint32_t rows) {
    const std::uint64_t bytes = bytes_of(inputs, rows);
    if (bytes <= bound.bytes) return;
    warnings.push_back(what + ": a full batch of " + std::to_string(rows) + " has " +
                       std::to_string(bytes) + " bytes, and " + bound.key + " lets " +
                       std::to_string(bound.bytes) + " through; raise " + bound.key +
                       ", or lower the model's max_batch");
  };
  for (const ModelConfig& model : serving.models)
    look("model " + in_quotes(model.name), model.inputs, model.max_batch);
  for (const ApplicationConfig& application : serving.applications)
    look("application " + in_quotes(application.name), application.inputs, 1);
  return warnings;
}

}  // namespace gpulet::config

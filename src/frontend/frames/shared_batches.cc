#include "frontend/frames/shared_batches.h"

#include <utility>

#include "gpulet/protocol/messages.h"

namespace gpulet::frontend {

SharedBatches::~SharedBatches() {
  for (const auto& [id, inputs] : unanswered_) {
    for (const Bytes& input : inputs) memory_->retire(input);
  }
}

std::optional<Batch> SharedBatches::share(const Batch& batch) {
  if (batch.inputs.empty() || batch.inputs.size() > kMaxSharedSlices) return std::nullopt;
  std::vector<SharedSlice> slices;
  slices.reserve(batch.inputs.size());
  for (const Bytes& input : batch.inputs) {
    const std::optional<SharedSlice> slice = memory_->find(input);
    if (!slice) return std::nullopt;
    slices.push_back(*slice);
  }
  unanswered_[batch.id] = batch.inputs;
  Batch named = batch;
  named.inputs.clear();
  named.shared = std::move(slices);
  return named;
}

}  // namespace gpulet::frontend

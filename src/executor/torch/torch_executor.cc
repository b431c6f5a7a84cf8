#include "gpulet/executor/torch/torch_executor.h"

namespace gpulet::executor {

TorchExecutor::~TorchExecutor() = default;

void TorchExecutor::use_memory(std::span<std::byte> memory) { lane_->use_memory(memory); }

Result<partition::FoundShare> TorchExecutor::found_share() { return lane_->found_share(); }

partition::DeviceHealth TorchExecutor::health() const { return lane_->health(); }

Result<std::uint32_t> TorchExecutor::load(const ModelToLoad& model) { return lane_->load(model); }

double TorchExecutor::error_of(std::uint32_t form) const { return lane_->error_of(form); }

Result<std::size_t> TorchExecutor::run(const BatchToRun& batch) { return lane_->run(batch); }

std::size_t TorchExecutor::depth() const { return lane_->depth(); }

Result<std::unique_ptr<RunningBatch>> TorchExecutor::begin(const BatchToRun& batch) {
  return lane_->begin(batch);
}

}  // namespace gpulet::executor

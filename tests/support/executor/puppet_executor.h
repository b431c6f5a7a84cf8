// PuppetExecutor: runs a batch when the test permits it, and records the calls. The output is the
// beginning of the input. The test's thread and the executor's thread may both call it.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/executor/executor.h"

namespace gpulet::executor {

class PuppetExecutor final : public Executor {
 public:
  Result<std::uint32_t> load(const ModelToLoad& model) override {
    const std::lock_guard lock(mutex_);
    if (!load_status_.ok()) return load_status_;
    return model.variant + 1;
  }

  Result<std::size_t> run(const BatchToRun& batch) override {
    std::unique_lock lock(mutex_);
    started_.emplace_back(batch.model);
    changed_.notify_all();
    changed_.wait(lock, [this] { return permits_ > 0; });
    --permits_;
    const std::size_t bytes = std::min(batch.input.size(), batch.output.size());
    std::copy_n(batch.input.begin(), bytes, batch.output.begin());
    return bytes;
  }

  void fail_loading(Status status) {
    const std::lock_guard lock(mutex_);
    load_status_ = std::move(status);
  }

  // Permits that many more batches.
  void permit(std::size_t batches) {
    const std::lock_guard lock(mutex_);
    permits_ += batches;
    changed_.notify_all();
  }

  void wait_until_started(std::size_t batches) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, batches] { return started_.size() >= batches; });
  }

  // The models of the started batches, in order.
  std::vector<std::string> started() const {
    const std::lock_guard lock(mutex_);
    return started_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> started_;
  std::size_t permits_ = 0;
  Status load_status_;
};

}  // namespace gpulet::executor

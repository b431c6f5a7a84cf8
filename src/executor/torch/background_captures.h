// BackgroundCaptures: makes the graphs of further batch sizes on another thread, one at a time in
// the gaps between batches (CaptureGaps). The thread that serves takes them and replays them.
//
// Any thread, except as said below. It must be owned by a shared_ptr: a capture that is running
// keeps it alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "executor/torch/batch_sizes.h"
#include "executor/torch/cuda_graph_cache.h"
#include "executor/torch/model.h"
#include "executor/torch/preparer.h"

namespace gpulet::executor {

class BackgroundCaptures : public std::enable_shared_from_this<BackgroundCaptures> {
 public:
  using ModelPointer = std::shared_ptr<const TorchModel>;
  // Called on the thread of the preparer. Throws if the batch cannot be captured; the further sizes
  // of the model are then not tried.
  using Make = std::function<CapturedBatch(const TorchModel& model, std::uint32_t size)>;
  struct Captured {
    ModelPointer model;
    std::uint32_t size = 0;
    CapturedBatch batch;
  };

  // A weak pointer, because the last reference to a preparer must not be dropped on its thread.
  BackgroundCaptures(std::weak_ptr<Preparer> preparer, Make make);

  // Queues sizes of a model. Nothing is captured before start().
  void add(const ModelPointer& model, std::span<const std::uint32_t> sizes);
  void start();
  // Drops the model's sizes, and what was captured of them and not taken.
  void erase(const TorchModel& model);
  // Drops everything: nothing more is captured.
  void close();

  // Between the two, the device works for a batch.
  void batch_begun();
  void batch_ended();

  // What was captured since the last call.
  [[nodiscard]] std::vector<Captured> take();
  // The number of sizes that are not captured so far.
  [[nodiscard]] std::size_t pending() const;

 private:
  struct Task {
    ModelPointer model;
    std::uint32_t size = 0;
  };

  // Posts the next capture if one is due. REQUIRES: mutex_ is held.
  void post_if_due();
  void capture_next();
  void drop(const TorchModel& model);  // REQUIRES: mutex_ is held

  const std::weak_ptr<Preparer> preparer_;
  const Make make_;
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  CaptureGaps gaps_;
  bool started_ = false;
  std::deque<Task> tasks_;               // the first one may be running
  const TorchModel* running_ = nullptr;  // null: none is running, or its result is not wanted
  std::vector<Captured> captured_;
};

}  // namespace gpulet::executor

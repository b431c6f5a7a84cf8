// GreenStreamPool: divides a GPU among the gpulets of one process, by green contexts over blocks of
// SMs.
//
// Each stream gets as many blocks as its share has, the ones that the fewest other streams use:
// blocks of its own where there is room. During a plan change there may be no room. A stream for
// models that others serve then starts on what is free and on theirs, because it replaces them, and
// grows when blocks become free. Another stream overlaps, and moves once others have gone.
//
// GreenStreamPool: any thread. PooledGreenStream: one thread at a time; its copies are one stream.
// Adding or moving a stream creates one context and one CUDA stream on the calling thread, and
// waits for no other stream's work.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "gpulet/base/status.h"
#include "gpulet/core/ids.h"
#include "gpulet/gpu/cuda_driver.h"

namespace gpulet::gpu {

class GreenStreamPool;

class PooledGreenStream {
 public:
  // The stream on the blocks that it has now. The copy stays valid after a move.
  [[nodiscard]] GreenStream stream() const;
  // Whether move() may succeed: other streams have changed since the last one, or a refused move is
  // due again. Cheap; call it before each batch.
  [[nodiscard]] bool move_due();
  // Moves to blocks that fewer other streams use, or to more of them up to its share, if there are
  // any. False if the stream keeps its blocks.
  [[nodiscard]] bool move();
  [[nodiscard]] std::uint32_t sms() const;  // as the driver reports
  // Of these, the SMs that other streams may use as well, now.
  [[nodiscard]] std::uint32_t shared_sms() const;

 private:
  friend class GreenStreamPool;
  class Impl;
  explicit PooledGreenStream(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;  // the last copy frees the blocks
};

class GreenStreamPool {
 public:
  // Partitions the SMs of the GPU. Fails as CudaDriver::cut does.
  [[nodiscard]] static Result<GreenStreamPool> make(const CudaDriver& driver, std::uint32_t gpu);

  [[nodiscard]] const SmGroups& sizes() const;
  // `models`: the names of those that the stream will serve. The stream keeps the resources of the
  // pool alive. Fails with invalid for an invalid share, or as SmBlocks::stream_over does.
  [[nodiscard]] Result<PooledGreenStream> add(Share share,
                                              std::span<const std::string> models = {});

 private:
  friend class PooledGreenStream;
  class State;
  explicit GreenStreamPool(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

}  // namespace gpulet::gpu

// GreenLanes: divides a GPU among the gpulets of one process, by green contexts over blocks of SMs.
//
// A lane gets the blocks of its size that the fewest others use: disjoint ones where there is room.
// While a plan is being replaced by another there may not be; then lanes overlap, and one that does
// moves to free blocks once others have gone, between two of its batches.
//
// GreenLanes: any thread. A lane: one thread at a time; its contexts are made by add() and by
// stream(), and destroyed by stream() and the destructor, on the thread that calls. Adding or
// moving makes one context and one stream, and nothing waits for a neighbour's.
#pragma once

#include <cstdint>
#include <memory>

#include "gpulet/core/share.h"
#include "gpulet/core/status.h"
#include "gpulet/gpu/cuda_driver.h"

namespace gpulet::gpu {

class GreenLanes;

class GreenLane {
 public:
  // For the next batch; to be called where none of this lane is on the GPU, because it may move the
  // lane. A CUstream, good until the next call. Should moving fail, the lane stays where it was,
  // and tries again later.
  [[nodiscard]] void* stream();
  [[nodiscard]] std::uint32_t sms() const;  // that the driver says it has
  [[nodiscard]] bool overlaps() const;      // with another lane, now

  GreenLane(GreenLane&&) noexcept;
  GreenLane& operator=(GreenLane&&) noexcept;
  ~GreenLane();  // its blocks are free again

 private:
  friend class GreenLanes;
  class Place;
  explicit GreenLane(std::unique_ptr<Place> place);
  std::unique_ptr<Place> place_;
};

class GreenLanes {
 public:
  // Cuts that GPU. Failures: CudaDriver::cut.
  [[nodiscard]] static Result<GreenLanes> make(const CudaDriver& driver, std::uint32_t gpu);

  [[nodiscard]] const SmGroups& sizes() const;
  // Lanes keep what they need of this alive. Fails with invalid (no share), or as
  // SmBlocks::stream_over, in the driver's own words.
  [[nodiscard]] Result<GreenLane> add(Share share);

  GreenLanes(GreenLanes&&) noexcept;
  GreenLanes& operator=(GreenLanes&&) noexcept;
  ~GreenLanes();

 private:
  friend class GreenLane;
  class State;
  explicit GreenLanes(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace gpulet::gpu

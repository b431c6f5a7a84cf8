// WriteQueue: frames that wait for the kernel to take them, gathered into as few system calls as
// possible. Private to net. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <deque>

#include "gpulet/net/asio.h"
#include "gpulet/net/codec/frame.h"

namespace gpulet::net {

class WriteQueue {
 public:
  // Asio gives the kernel no more than 64 pieces at once, which is below every system's IOV_MAX.
  static constexpr std::size_t kMaxPieces = 64;

  // A buffer sequence in Asio's sense, valid until the queue changes.
  class Pieces {
   public:
    [[nodiscard]] const asio::const_buffer* begin() const { return buffers_.data(); }
    [[nodiscard]] const asio::const_buffer* end() const { return buffers_.data() + count_; }
    [[nodiscard]] std::size_t byte_size() const { return bytes_; }

   private:
    friend class WriteQueue;
    void add(const void* data, std::size_t bytes);

    std::array<asio::const_buffer, kMaxPieces> buffers_;
    std::size_t count_ = 0;
    std::size_t bytes_ = 0;
  };

  void push(OutgoingFrame frame);
  [[nodiscard]] bool empty() const { return frames_.empty(); }
  // The first pieces that are not written yet.
  [[nodiscard]] Pieces front() const;
  // The kernel took that many bytes from the front. REQUIRES: no more than front() holds.
  void written(std::size_t bytes);
  void clear();
  // Bytes that wait, and the memory that keeping them costs.
  [[nodiscard]] std::size_t cost() const { return bytes_ + frames_.size() * kFrameCost; }

 private:
  // Of a frame's objects: thus a queue of tiny frames is bounded too.
  static constexpr std::size_t kFrameCost = 128;

  std::deque<OutgoingFrame> frames_;
  std::size_t bytes_ = 0;
  std::size_t piece_ =
      0;  // of the first frame, the first that is not wholly written: 0 head, 1.. payload
  std::size_t piece_offset_ = 0;  // written of it
};

}  // namespace gpulet::net

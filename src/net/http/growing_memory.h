// GrowingMemory: the pool's memory for a body whose length is not known before its end. Private to
// net/http. One thread at a time.
#pragma once

#include <cstddef>
#include <span>

#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"
#include "gpulet/net/buffer_pool.h"

namespace gpulet::net::http {

class GrowingMemory {
 public:
  GrowingMemory(BufferPool& buffers, std::size_t max_bytes)
      : buffers_(&buffers), max_bytes_(max_bytes) {}

  void set_limit(std::size_t max_bytes) { max_bytes_ = max_bytes; }
  // Room for more, at least a byte. Fails with invalid (the limit is reached) or overloaded (the
  // pool's is).
  [[nodiscard]] Result<std::span<std::byte>> space();
  // So many bytes were written to the front of space(). REQUIRES: no more than it has.
  void filled(std::size_t bytes) { size_ += bytes; }
  // Fails as space().
  [[nodiscard]] Status append(std::span<const std::byte> bytes);

  [[nodiscard]] std::size_t size() const { return size_; }
  // All of it. What follows begins afresh.
  [[nodiscard]] Bytes take();

 private:
  BufferPool* buffers_;
  std::size_t max_bytes_;
  MutableBytes memory_;
  std::size_t size_ = 0;
};

}  // namespace gpulet::net::http

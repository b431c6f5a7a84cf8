// BufferPool: memory to receive tensors into.
//
// The kernel maps and clears a fresh buffer of hundreds of kilobytes page by page, which costs more
// than receiving into it. The pool keeps such buffers when their last Bytes is released, and hands
// them out again. Small ones come from the heap. take() and the release of what it gave are safe on
// any thread; buffers may outlive the pool.
#pragma once

#include <cstddef>
#include <memory>

#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"

namespace gpulet::net {

struct BufferPoolOptions {
  std::size_t max_idle_bytes = 256U << 20U;     // kept for later; more is given back to the system
  std::size_t max_used_bytes = 2048ULL << 20U;  // out at once
};

class BufferPool {
 public:
  explicit BufferPool(const BufferPoolOptions& options);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Memory of exactly that size, not initialised. Fails (overloaded) where too much is in use
  // already.
  [[nodiscard]] Result<MutableBytes> take(std::size_t bytes);

  // Of the buffers that the pool keeps track of: small ones do not count.
  [[nodiscard]] std::size_t idle_bytes() const;
  [[nodiscard]] std::size_t used_bytes() const;

 private:
  class Shelf;
  std::shared_ptr<Shelf> shelf_;  // shared with every buffer that is out
};

}  // namespace gpulet::net

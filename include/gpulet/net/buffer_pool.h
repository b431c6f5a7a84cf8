// BufferPool: memory to receive tensors into.
//
// The kernel maps and clears a fresh buffer of hundreds of kilobytes page by page, which costs more
// than receiving into it. The pool keeps such buffers when their last Bytes is released, and hands
// them out again. Small ones come from the heap. take() and the release of what it gave are safe on
// any thread; buffers may outlive the pool.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"

namespace gpulet::net {

struct BufferPoolOptions {
  std::size_t max_idle_bytes = 256U << 20U;     // kept for later; more is given back to the system
  std::size_t max_used_bytes = 2048ULL << 20U;  // out at once
};

// Memory for bytes that are on their way. It counts against the pool's limit as it is filled, not
// as the sender announced it: an announcement costs the sender nothing, so it reserves nothing. One
// thread at a time.
class IncomingBytes {
 public:
  // What a buffer counts for in its pool.
  class Account {
   public:
    // Fails (overloaded) where the pool's limit is reached. REQUIRES: no less than before.
    [[nodiscard]] virtual Status charge(std::size_t bytes) = 0;
    Account() = default;
    Account(const Account&) = delete;
    Account& operator=(const Account&) = delete;

   protected:
    ~Account() = default;
  };

  IncomingBytes() = default;
  // Counted in full already.
  explicit IncomingBytes(MutableBytes memory) : memory_(std::move(memory)) {}
  IncomingBytes(MutableBytes memory, std::shared_ptr<Account> account, std::size_t charged)
      : memory_(std::move(memory)),
        size_(memory_.size()),
        account_(std::move(account)),
        charged_(charged) {}

  [[nodiscard]] const MutableBytes& memory() const { return memory_; }
  // Gives the memory away. filled() still counts what is received into it.
  [[nodiscard]] MutableBytes take_memory() { return std::exchange(memory_, {}); }
  // So many bytes at its front were received. Fails (overloaded) where the pool has no room for
  // them.
  [[nodiscard]] Status filled(std::size_t bytes);

 private:
  MutableBytes memory_;
  std::size_t size_ = 0;
  std::shared_ptr<Account> account_;  // null once all of it counts
  std::size_t charged_ = 0;
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
  // The same for bytes that are still to be received: at first no more of it counts than
  // kFirstCharge, later at most twice what was received.
  [[nodiscard]] Result<IncomingBytes> take_incoming(std::size_t bytes);
  static constexpr std::size_t kFirstCharge = 64U << 10U;

  // Of the buffers that the pool keeps track of: small ones do not count.
  [[nodiscard]] std::size_t idle_bytes() const;
  [[nodiscard]] std::size_t used_bytes() const;

 private:
  class Shelf;
  std::shared_ptr<Shelf> shelf_;  // shared with every buffer that is out
};

}  // namespace gpulet::net

// BufferPool: memory to receive tensors into.
//
// The kernel maps and clears a fresh large buffer page by page, which costs more than receiving
// into it. The pool therefore keeps large buffers when their last Bytes is released, and reuses
// them. Small ones come from the heap. take() and the release of a buffer may happen on any thread;
// buffers may outlive the pool.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <utility>

#include "gpulet/base/bytes.h"
#include "gpulet/base/files.h"
#include "gpulet/base/status.h"
#include "gpulet/core/request.h"

namespace gpulet::net {

// ---- memory reserve
//
// MemoryReserve: memory that a daemon gives up when the system has no more for it. What fails first
// is as likely a small allocation in the middle of something as a large buffer of a request. The
// reserve lets small allocations go on, while BufferPool refuses new buffers until it is renewed.

// Replaces the new-handler of the process, so there is one. Reserves address space, which a limit
// (RLIMIT_AS) or a system without overcommitment counts; it touches no page. Any thread.
class MemoryReserve {
 public:
  static constexpr std::size_t kBlocks = 4;  // each failed allocation costs one
  static constexpr std::size_t kBlockBytes = 8U << 20U;

  MemoryReserve();
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  // An allocation failed since the reserve was whole.
  [[nodiscard]] bool spent() const;
  // Takes back what was given up. Returns whether the reserve is whole. One thread at a time.
  bool renew();

 private:
  static void on_failed_allocation();
  [[nodiscard]] bool give_up_one();

  static std::atomic<MemoryReserve*> installed_;  // a new-handler has no argument

  std::array<std::atomic<void*>, kBlocks> blocks_{};
  std::new_handler previous_ = nullptr;
};

// ---- memory that another process reads
//
// SharedMemory: a file without a name that this process writes. SharedView: the same file in a
// process that reads it. The size of the file is fixed, so that no access can fail; pages exist
// once they are written.

// Divided into blocks of whole pages. Any thread.
class SharedMemory {
 public:
  // Reserves address space of that size. Fails with unavailable.
  [[nodiscard]] static Result<std::shared_ptr<SharedMemory>> create(std::size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  // Null where there is no room for such a block.
  [[nodiscard]] std::byte* allocate(std::size_t bytes);
  // Returns the pages of a block to the system. REQUIRES: it came from allocate().
  void release(std::byte* block);

  // Where the bytes lie; empty: not in this memory, or there are none.
  [[nodiscard]] std::optional<SharedSlice> find(const Bytes& bytes) const;
  // A process may read these bytes at any time from now on. Their block is never used again once it
  // is released.
  void retire(const Bytes& bytes);
  // Whether the block of that address was retired.
  [[nodiscard]] bool retired(const std::byte* block) const;

  // A descriptor that cannot write. Fails with unavailable.
  [[nodiscard]] Result<FileDescriptor> reader() const;

 private:
  struct Block {
    std::size_t bytes = 0;
    bool retired = false;
  };
  SharedMemory(FileDescriptor file, std::span<std::byte> bytes);
  [[nodiscard]] std::size_t offset_of(const std::byte* at) const;
  void add_room(std::size_t offset, std::size_t bytes);

  const FileDescriptor file_;
  const std::span<std::byte> bytes_;
  mutable std::mutex mutex_;
  std::map<std::size_t, Block> blocks_;      // in use, by offset
  std::map<std::size_t, std::size_t> room_;  // free: the bytes at each offset
};

// Any thread.
class SharedView {
 public:
  // Fails with invalid (the file could shrink) or unavailable.
  [[nodiscard]] static Result<std::shared_ptr<const SharedView>> map(const FileDescriptor& file);
  ~SharedView();
  SharedView(const SharedView&) = delete;
  SharedView& operator=(const SharedView&) = delete;

  // Empty: the slice is not within the memory.
  [[nodiscard]] std::optional<std::span<const std::byte>> find(const SharedSlice& slice) const;

 private:
  explicit SharedView(std::span<const std::byte> bytes) : bytes_(bytes) {}

  const std::span<const std::byte> bytes_;
};

// ---- buffer pool

struct BufferPoolOptions {
  std::size_t max_idle_bytes = 256U << 20U;     // kept for reuse; more is returned to the system
  std::size_t max_used_bytes = 2048ULL << 20U;  // handed out at the same time
  // Null: none. While it is spent, only buffers that are kept for reuse are handed out.
  std::shared_ptr<const MemoryReserve> reserve{};
};

// Memory for bytes that are being received. It counts against the pool's limit as it is filled: an
// announced size costs the sender nothing and must not reserve memory. One thread at a time.
class IncomingBytes {
 public:
  // A buffer's account with its pool.
  class Account {
   public:
    // Sets the charged size. Fails (overloaded) at the pool's limit. REQUIRES: no less than before.
    [[nodiscard]] virtual Status charge(std::size_t bytes) = 0;
    Account() = default;
    Account(const Account&) = delete;
    Account& operator=(const Account&) = delete;

   protected:
    ~Account() = default;
  };

  IncomingBytes() = default;
  // Memory that is already charged in full.
  explicit IncomingBytes(MutableBytes memory) : memory_(std::move(memory)) {}
  IncomingBytes(MutableBytes memory, std::shared_ptr<Account> account, std::size_t charged)
      : memory_(std::move(memory)),
        size_(memory_.size()),
        account_(std::move(account)),
        charged_(charged) {}

  [[nodiscard]] const MutableBytes& memory() const { return memory_; }
  // Transfers the memory to the caller. filled() keeps charging the bytes received into it.
  [[nodiscard]] MutableBytes take_memory() { return std::exchange(memory_, {}); }
  // The first `bytes` were received. Fails (overloaded) where the pool's limit is reached.
  [[nodiscard]] Status filled(std::size_t bytes);

 private:
  MutableBytes memory_;
  std::size_t size_ = 0;
  std::shared_ptr<Account> account_;  // null once charged in full
  std::size_t charged_ = 0;
};

class BufferPool {
 public:
  explicit BufferPool(const BufferPoolOptions& options);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Uninitialised memory of exactly that size. Fails (overloaded) where the limit is reached.
  [[nodiscard]] Result<MutableBytes> take(std::size_t bytes);
  // The same for bytes that are still to be received. At first at most kFirstCharge is charged,
  // later at most twice the received size.
  [[nodiscard]] Result<IncomingBytes> take_incoming(std::size_t bytes);
  static constexpr std::size_t kFirstCharge = 64U << 10U;

  // Begins a window of time. Buffers that stayed idle throughout the last window are stale until
  // they are taken. Any thread.
  void begin_window();
  // Returns the stale buffers to the system. Any thread.
  void release_stale();
  [[nodiscard]] std::size_t stale_bytes() const;

  // From the first call on, large buffers lie in the memory that this returns, as long as it has
  // room. Fails with unavailable. Any thread.
  [[nodiscard]] Result<std::shared_ptr<SharedMemory>> share();

  // Both count pooled buffers only, not small ones from the heap.
  [[nodiscard]] std::size_t idle_bytes() const;
  [[nodiscard]] std::size_t used_bytes() const;

 private:
  class Shared;
  std::shared_ptr<Shared> shared_;  // with every buffer that is handed out
};

}  // namespace gpulet::net

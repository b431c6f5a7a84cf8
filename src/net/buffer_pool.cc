#include "gpulet/net/buffer_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <vector>

namespace gpulet::net {
namespace {

// The heap is as fast for smaller buffers.
constexpr std::size_t kSmallestPooled = 32U << 10U;

// Four sizes per power of two: no buffer is more than a quarter larger than requested.
std::size_t size_class(std::size_t bytes) {
  const std::size_t step = std::max<std::size_t>(std::bit_floor(bytes - 1) / 4, 1);
  return (bytes + step - 1) / step * step;
}

// Heap memory is not counted.
IncomingBytes small(std::size_t bytes) {
  std::shared_ptr<std::byte[]> memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
  const std::span<std::byte> view(memory.get(), bytes);
  return IncomingBytes(MutableBytes(std::move(memory), view));
}

}  // namespace

Status IncomingBytes::filled(std::size_t bytes) {
  if (!account_ || bytes <= charged_) return {};
  const std::size_t charge = std::min(2 * bytes, size_);
  if (Status status = account_->charge(charge); !status.ok()) return status;
  charged_ = charge;
  if (charged_ == size_) account_.reset();
  return {};
}

class BufferPool::Shared : public std::enable_shared_from_this<BufferPool::Shared> {
 public:
  explicit Shared(const BufferPoolOptions& options) : options_(options) {}

  // Charges `charged` bytes at once.
  [[nodiscard]] Result<IncomingBytes> take(std::size_t bytes, std::size_t charged) {
    Loan loan;
    loan.capacity = size_class(bytes);
    const bool in_full = charged >= bytes;
    {
      const std::lock_guard lock(mutex_);
      const auto found = idle_.find(loan.capacity);
      loan.was_idle = found != idle_.end() && !found->second.buffers.empty();
      if (const Status status = charge_locked(loan, in_full ? loan.capacity : charged);
          !status.ok())
        return status;
      if (loan.was_idle) loan.memory = found->second.take();
    }
    if (!loan.memory) loan.memory = allocate(loan.capacity, shared_memory());
    const bool failed = !loan.memory;
    auto lent = std::make_shared<Lent>(shared_from_this(), bytes, std::move(loan));
    if (failed) {
      return Status(StatusCode::overloaded,
                    fmt::format("out of system memory: cannot receive {} bytes", bytes));
    }
    MutableBytes memory(lent, std::span(lent->data(), bytes));
    if (in_full) return IncomingBytes(std::move(memory));
    return IncomingBytes(std::move(memory), std::move(lent), charged);
  }

  void begin_window() {
    const std::lock_guard lock(mutex_);
    for (auto& [capacity, idle] : idle_) {
      idle.stale = std::min(idle.least, idle.buffers.size());
      idle.least = idle.buffers.size();
    }
  }

  void release_stale() {
    std::vector<Memory> unneeded;  // freed after the lock
    const std::lock_guard lock(mutex_);
    for (auto& [capacity, idle] : idle_) {
      const std::size_t count = std::exchange(idle.stale, 0);
      for (std::size_t i = 0; i < count; ++i) unneeded.push_back(idle.take());
      idle_bytes_ -= capacity * count;
    }
  }

  // Buffers of the heap are not kept any more.
  [[nodiscard]] Result<std::shared_ptr<SharedMemory>> share() {
    std::map<std::size_t, Idle> unneeded;  // freed after the lock
    const std::lock_guard lock(mutex_);
    if (memory_) return memory_;
    constexpr std::size_t kRoomForGaps = 2;
    GPULET_TRY(memory_, SharedMemory::create(kRoomForGaps *
                                             (options_.max_used_bytes + options_.max_idle_bytes)));
    unneeded = std::exchange(idle_, {});
    for (const auto& [capacity, idle] : unneeded) idle_bytes_ -= capacity * idle.buffers.size();
    return memory_;
  }

  [[nodiscard]] std::size_t stale_bytes() const {
    const std::lock_guard lock(mutex_);
    return std::accumulate(
        idle_.begin(), idle_.end(), std::size_t{0},
        [](std::size_t total, const auto& idle) { return total + idle.first * idle.second.stale; });
  }

  [[nodiscard]] std::size_t idle_bytes() const {
    const std::lock_guard lock(mutex_);
    return idle_bytes_;
  }
  [[nodiscard]] std::size_t used_bytes() const {
    const std::lock_guard lock(mutex_);
    return used_bytes_;
  }

 private:
  struct Free {
    std::shared_ptr<SharedMemory> owner;  // null: the heap

    void operator()(std::byte* memory) const {
      if (owner == nullptr) return std::free(memory);
      owner->release(memory);
    }
    [[nodiscard]] bool retired(const std::byte* memory) const {
      return owner != nullptr && owner->retired(memory);
    }
  };
  using Memory = std::unique_ptr<std::byte[], Free>;

  // The idle buffers of one size.
  struct Idle {
    std::vector<Memory> buffers;
    std::size_t least = 0;  // of them since the window began
    std::size_t stale = 0;  // at most as many

    // REQUIRES: there is one.
    [[nodiscard]] Memory take() {
      Memory taken = std::move(buffers.back());
      buffers.pop_back();
      least = std::min(least, buffers.size());
      stale = std::min(stale, buffers.size());
      return taken;
    }
  };

  // A buffer in use. The uncharged part of a reused one counts as idle: its pages are mapped.
  struct Loan {
    Memory memory;
    std::size_t capacity = 0;
    std::size_t charged = 0;
    bool was_idle = false;
  };

  // Returns its memory to the pool when the last Bytes releases it.
  class Lent final : public IncomingBytes::Account {
   public:
    Lent(std::shared_ptr<Shared> shelf, std::size_t bytes, Loan loan)
        : shared_(std::move(shelf)), bytes_(bytes), loan_(std::move(loan)) {}
    ~Lent() { shared_->give_back(std::move(loan_)); }
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;

    [[nodiscard]] std::byte* data() const { return loan_.memory.get(); }
    [[nodiscard]] Status charge(std::size_t bytes) override {
      return shared_->charge(loan_, bytes == bytes_ ? loan_.capacity : bytes);
    }

   private:
    std::shared_ptr<Shared> shared_;
    const std::size_t bytes_;
    Loan loan_;
  };

  [[nodiscard]] Status charge(Loan& loan, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    return charge_locked(loan, bytes);
  }

  // Null where the system has no memory. malloc() leaves the reserve to those who cannot fail.
  [[nodiscard]] Memory allocate(std::size_t bytes,
                                const std::shared_ptr<SharedMemory>& shared) const {
    if (options_.reserve && options_.reserve->spent()) return nullptr;
    std::byte* const block = shared ? shared->allocate(bytes) : nullptr;
    if (block != nullptr) return {block, Free{shared}};
    return Memory(static_cast<std::byte*>(std::malloc(bytes)));
  }

  [[nodiscard]] std::shared_ptr<SharedMemory> shared_memory() const {
    const std::lock_guard lock(mutex_);
    return memory_;
  }

  void give_back(Loan loan) {
    std::vector<Memory> unneeded;  // freed after the lock
    const std::lock_guard lock(mutex_);
    used_bytes_ -= loan.charged;
    if (loan.was_idle) idle_bytes_ -= loan.capacity - loan.charged;
    if (!loan.memory || !is_reusable(loan.memory)) return;
    unneeded = make_room_for(loan.capacity);
    if (idle_bytes_ + loan.capacity > options_.max_idle_bytes) return;
    idle_[loan.capacity].buffers.push_back(std::move(loan.memory));
    idle_bytes_ += loan.capacity;
  }

  // ---- REQUIRES: mutex_ is held

  [[nodiscard]] bool is_reusable(const Memory& memory) const {
    const Free& owner = memory.get_deleter();
    return owner.owner == memory_ && !owner.retired(memory.get());
  }

  [[nodiscard]] Status charge_locked(Loan& loan, std::size_t bytes) {
    const std::size_t more = bytes - loan.charged;
    if (more > options_.max_used_bytes - std::min(used_bytes_, options_.max_used_bytes)) {
      return {StatusCode::overloaded,
              fmt::format("cannot receive {} bytes: {} of {} bytes of receive memory are in use",
                          more, used_bytes_, options_.max_used_bytes)};
    }
    used_bytes_ += more;
    if (loan.was_idle) idle_bytes_ -= more;
    loan.charged = bytes;
    return {};
  }

  // Sizes that are no longer requested would otherwise fill the pool for good.
  [[nodiscard]] std::vector<Memory> make_room_for(std::size_t capacity) {
    std::vector<Memory> unneeded;
    for (auto other = idle_.rbegin(); other != idle_.rend(); ++other) {
      if (other->first == capacity) continue;
      while (!other->second.buffers.empty() && idle_bytes_ + capacity > options_.max_idle_bytes) {
        unneeded.push_back(other->second.take());
        idle_bytes_ -= other->first;
      }
    }
    return unneeded;
  }

  const BufferPoolOptions options_;
  mutable std::mutex mutex_;          // buffers are released on any thread
  std::map<std::size_t, Idle> idle_;  // by capacity
  std::size_t idle_bytes_ = 0;
  std::size_t used_bytes_ = 0;
  std::shared_ptr<SharedMemory> memory_;  // of new buffers; null: the heap
};

BufferPool::BufferPool(const BufferPoolOptions& options)
    : shared_(std::make_shared<Shared>(options)) {}
BufferPool::~BufferPool() = default;

Result<MutableBytes> BufferPool::take(std::size_t bytes) {
  GPULET_TRY(IncomingBytes taken,
             bytes >= kSmallestPooled ? shared_->take(bytes, bytes) : small(bytes));
  return taken.take_memory();
}

Result<IncomingBytes> BufferPool::take_incoming(std::size_t bytes) {
  return bytes >= kSmallestPooled ? shared_->take(bytes, kFirstCharge) : small(bytes);
}

Result<std::shared_ptr<SharedMemory>> BufferPool::share() { return shared_->share(); }

void BufferPool::begin_window() { shared_->begin_window(); }
void BufferPool::release_stale() { shared_->release_stale(); }
std::size_t BufferPool::stale_bytes() const { return shared_->stale_bytes(); }

std::size_t BufferPool::idle_bytes() const { return shared_->idle_bytes(); }
std::size_t BufferPool::used_bytes() const { return shared_->used_bytes(); }

}  // namespace gpulet::net

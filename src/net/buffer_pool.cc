#include "gpulet/net/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace gpulet::net {
namespace {

// Below this the heap is as fast.
constexpr std::size_t kSmallestPooled = 32U << 10U;

// Four sizes to each power of two: no buffer is more than a quarter larger than asked for.
std::size_t size_class(std::size_t bytes) {
  const std::size_t step = std::max<std::size_t>(std::bit_floor(bytes - 1) / 4, 1);
  return (bytes + step - 1) / step * step;
}

}  // namespace

class BufferPool::Shelf : public std::enable_shared_from_this<BufferPool::Shelf> {
 public:
  explicit Shelf(const BufferPoolOptions& options) : options_(options) {}

  [[nodiscard]] Result<MutableBytes> take(std::size_t bytes);
  [[nodiscard]] std::size_t idle_bytes() const;
  [[nodiscard]] std::size_t used_bytes() const;

 private:
  using Memory = std::unique_ptr<std::byte[]>;

  // Returns its memory to the shelf when the last Bytes lets go of it.
  class Lent {
   public:
    Lent(std::shared_ptr<Shelf> shelf, Memory memory, std::size_t capacity)
        : shelf_(std::move(shelf)), memory_(std::move(memory)), capacity_(capacity) {}
    ~Lent() { shelf_->give_back(std::move(memory_), capacity_); }
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;

    [[nodiscard]] std::byte* data() const { return memory_.get(); }

   private:
    std::shared_ptr<Shelf> shelf_;
    Memory memory_;
    std::size_t capacity_;
  };

  void give_back(Memory memory, std::size_t capacity);
  [[nodiscard]] std::vector<Memory> make_room_for(std::size_t capacity);

  const BufferPoolOptions options_;
  mutable std::mutex mutex_;  // buffers are released wherever their last Bytes is
  std::map<std::size_t, std::vector<Memory>> idle_;
  std::size_t idle_bytes_ = 0;
  std::size_t used_bytes_ = 0;
};

Result<MutableBytes> BufferPool::Shelf::take(std::size_t bytes) {
  const std::size_t capacity = size_class(bytes);
  Memory memory;
  {
    const std::lock_guard lock(mutex_);
    if (capacity > options_.max_used_bytes - std::min(used_bytes_, options_.max_used_bytes)) {
      return Status(StatusCode::overloaded,
                    "no memory to receive " + std::to_string(bytes) +
                        " bytes: " + std::to_string(used_bytes_) + " of at most " +
                        std::to_string(options_.max_used_bytes) + " are in use");
    }
    used_bytes_ += capacity;
    const auto shelved = idle_.find(capacity);
    if (shelved != idle_.end() && !shelved->second.empty()) {
      memory = std::move(shelved->second.back());
      shelved->second.pop_back();
      idle_bytes_ -= capacity;
    }
  }
  if (!memory) memory = std::make_unique_for_overwrite<std::byte[]>(capacity);
  auto lent = std::make_shared<Lent>(shared_from_this(), std::move(memory), capacity);
  const std::span<std::byte> view(lent->data(), bytes);
  return MutableBytes(std::move(lent), view);
}

void BufferPool::Shelf::give_back(Memory memory, std::size_t capacity) {
  std::vector<Memory> unneeded;  // goes back to the system after the lock
  const std::lock_guard lock(mutex_);
  used_bytes_ -= capacity;
  unneeded = make_room_for(capacity);
  if (idle_bytes_ + capacity > options_.max_idle_bytes) return;
  idle_[capacity].push_back(std::move(memory));
  idle_bytes_ += capacity;
}

// Sizes that are no longer asked for would otherwise keep the shelf full for ever.
std::vector<BufferPool::Shelf::Memory> BufferPool::Shelf::make_room_for(std::size_t capacity) {
  std::vector<Memory> unneeded;
  for (auto other = idle_.rbegin(); other != idle_.rend(); ++other) {
    if (other->first == capacity) continue;
    while (!other->second.empty() && idle_bytes_ + capacity > options_.max_idle_bytes) {
      unneeded.push_back(std::move(other->second.back()));
      other->second.pop_back();
      idle_bytes_ -= other->first;
    }
  }
  return unneeded;
}

std::size_t BufferPool::Shelf::idle_bytes() const {
  const std::lock_guard lock(mutex_);
  return idle_bytes_;
}

std::size_t BufferPool::Shelf::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

BufferPool::BufferPool(const BufferPoolOptions& options)
    : shelf_(std::make_shared<Shelf>(options)) {}
BufferPool::~BufferPool() = default;

Result<MutableBytes> BufferPool::take(std::size_t bytes) {
  if (bytes >= kSmallestPooled) return shelf_->take(bytes);
  std::shared_ptr<std::byte[]> memory = std::make_shared_for_overwrite<std::byte[]>(bytes);
  const std::span<std::byte> view(memory.get(), bytes);
  return MutableBytes(std::move(memory), view);
}

std::size_t BufferPool::idle_bytes() const { return shelf_->idle_bytes(); }
std::size_t BufferPool::used_bytes() const { return shelf_->used_bytes(); }

}  // namespace gpulet::net

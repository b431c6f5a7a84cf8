#include "gpulet/gpu/green_streams.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "gpu/sm_allocator.h"

namespace gpulet::gpu {

std::uint64_t SmAllocator::add(std::uint32_t count) {
  const auto most = static_cast<std::uint32_t>(users_.size());
  const std::uint64_t user = ++last_user_;
  held_[user];
  move(user, least_used(std::clamp(count, 1U, std::max(1U, most)), {}));
  return user;
}

void SmAllocator::remove(std::uint64_t user) {
  move(user, {});
  held_.erase(user);
}

void SmAllocator::move(std::uint64_t user, Blocks blocks) {
  Blocks& held = held_.at(user);
  for (const std::uint32_t block : held) --users_[block];
  for (const std::uint32_t block : blocks) ++users_[block];
  held = std::move(blocks);
}

bool SmAllocator::overlaps(std::uint64_t user) const {
  const Blocks& mine = held_.at(user);
  return most_others(mine, mine) > 0;
}

std::optional<SmAllocator::Blocks> SmAllocator::better(std::uint64_t user) const {
  const Blocks& mine = held_.at(user);
  const std::uint32_t now = most_others(mine, mine);
  if (now == 0) return std::nullopt;
  Blocks other = least_used(static_cast<std::uint32_t>(mine.size()), mine);
  if (most_others(other, mine) >= now) return std::nullopt;
  return other;
}

SmAllocator::Blocks SmAllocator::least_used(std::uint32_t count, const Blocks& mine) const {
  Blocks blocks(users_.size());
  std::iota(blocks.begin(), blocks.end(), 0U);
  std::stable_sort(blocks.begin(), blocks.end(), [&](std::uint32_t one, std::uint32_t other) {
    return others_on(one, mine) < others_on(other, mine);
  });
  blocks.resize(std::min<std::size_t>(count, blocks.size()));
  std::sort(blocks.begin(), blocks.end());
  return blocks;
}

std::uint32_t SmAllocator::most_others(const Blocks& blocks, const Blocks& mine) const {
  std::uint32_t most = 0;
  for (const std::uint32_t block : blocks) most = std::max(most, others_on(block, mine));
  return most;
}

std::uint32_t SmAllocator::others_on(std::uint32_t block, const Blocks& mine) const {
  return users_[block] - (std::binary_search(mine.begin(), mine.end(), block) ? 1U : 0U);
}

namespace {

// After the driver refused a move, the stream retries after this many batches even where no other
// stream changed.
constexpr std::uint32_t kBatchesUntilRetry = 1000;

}  // namespace

// The shared state of the streams. The driver is called without the lock, so that no batch waits
// for another stream's context. The allocator is updated first, so that no two streams move to the
// same blocks.
class GreenStreamPool::State {
 public:
  explicit State(SmBlocks cut) : blocks(std::move(cut)), allocator(blocks.count()) {}

  [[nodiscard]] Result<GreenStream> make_stream(const SmAllocator::Blocks& held,
                                                std::uint32_t sms) const {
    const bool all = held.size() == blocks.count() && sms == blocks.sizes().sms;
    return all ? blocks.stream_over_all() : blocks.stream_over(held);
  }
  // Lets overlapping streams look for room.
  void notify_change() { changes.fetch_add(1, std::memory_order_release); }

  const SmBlocks blocks;
  std::mutex mutex;  // guards allocator
  SmAllocator allocator;
  std::atomic<std::uint64_t> changes = 0;  // counts changes of the allocator
};

class PooledGreenStream::Impl {
 public:
  Impl(std::shared_ptr<GreenStreamPool::State> state, std::uint32_t sms)
      : state_(std::move(state)), sms_(sms) {
    const SmGroups& sizes = state_->blocks.sizes();
    const std::uint32_t count = sms == sizes.sms ? state_->blocks.count() : sms / sizes.step;
    const std::lock_guard lock(state_->mutex);
    user_ = state_->allocator.add(count);
    held_ = state_->allocator.blocks_of(user_);
  }
  ~Impl() {
    stream_.reset();  // first: frees the blocks
    {
      const std::lock_guard lock(state_->mutex);
      state_->allocator.remove(user_);
    }
    state_->notify_change();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] Status open() {
    auto stream = state_->make_stream(held_, sms_);
    if (!stream.ok()) return stream.status();
    stream_ = std::move(stream).value();
    return {};
  }

  [[nodiscard]] GreenStream stream() const { return *stream_; }
  [[nodiscard]] std::uint32_t sms() const { return stream_->sms(); }
  [[nodiscard]] bool overlaps() const {
    const std::lock_guard lock(state_->mutex);
    return state_->allocator.overlaps(user_);
  }

  // Needs no lock where nothing has changed.
  [[nodiscard]] bool move_due() {
    const std::uint64_t changes = state_->changes.load(std::memory_order_acquire);
    if (changes == seen_changes_ && ++batches_since_ < kBatchesUntilRetry) return false;
    seen_changes_ = changes;
    batches_since_ = 0;
    return true;
  }

  [[nodiscard]] bool move() {
    std::optional<SmAllocator::Blocks> better;
    {
      const std::lock_guard lock(state_->mutex);
      better = state_->allocator.better(user_);
      if (better) state_->allocator.move(user_, *better);
    }
    if (!better) return false;
    auto made = state_->make_stream(*better, sms_);
    if (!made.ok()) {
      const std::lock_guard lock(state_->mutex);
      state_->allocator.move(user_, held_);
      return false;
    }
    stream_ = std::move(made).value();
    held_ = std::move(*better);
    state_->notify_change();
    return true;
  }

 private:
  const std::shared_ptr<GreenStreamPool::State> state_;
  const std::uint32_t sms_;
  std::uint64_t user_ = 0;
  SmAllocator::Blocks held_;  // the blocks of stream_
  std::optional<GreenStream> stream_;
  std::uint64_t seen_changes_ = 0;
  std::uint32_t batches_since_ = 0;
};

GreenStream PooledGreenStream::stream() const { return impl_->stream(); }
bool PooledGreenStream::move_due() { return impl_->move_due(); }
bool PooledGreenStream::move() { return impl_->move(); }
std::uint32_t PooledGreenStream::sms() const { return impl_->sms(); }
bool PooledGreenStream::overlaps() const { return impl_->overlaps(); }

Result<GreenStreamPool> GreenStreamPool::make(const CudaDriver& driver, std::uint32_t gpu) {
  Result<SmBlocks> blocks = driver.cut(gpu);
  if (!blocks.ok()) return blocks.status();
  return GreenStreamPool(std::make_shared<State>(std::move(blocks).value()));
}

const SmGroups& GreenStreamPool::sizes() const { return state_->blocks.sizes(); }

Result<PooledGreenStream> GreenStreamPool::add(Share share) {
  if (!share.valid()) {
    return Status(StatusCode::invalid, "the share of a green stream must be 1..100 %; was " +
                                           std::to_string(share.percent));
  }
  const auto impl =
      std::make_shared<PooledGreenStream::Impl>(state_, sizes().sms_of(share.percent));
  if (Status opened = impl->open(); !opened.ok()) return opened;
  return PooledGreenStream(impl);
}

}  // namespace gpulet::gpu

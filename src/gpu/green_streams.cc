#include "gpulet/gpu/green_streams.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "gpu/sm_allocator.h"

namespace gpulet::gpu {

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
  // Adds a user for the models, in place of those of the same models. REQUIRES: mutex is held.
  [[nodiscard]] std::uint64_t add_user(std::uint32_t count, std::span<const std::string> models) {
    std::vector<std::uint64_t> replaced;
    for (const auto& served : models_of) {
      const bool same = std::any_of(models.begin(), models.end(), [&served](const auto& model) {
        return served.second.contains(model);
      });
      if (same) replaced.push_back(served.first);
    }
    const std::uint64_t user = allocator.add(count, replaced);
    models_of[user] = {models.begin(), models.end()};
    return user;
  }

  std::mutex mutex;  // guards allocator and models_of
  SmAllocator allocator;
  std::map<std::uint64_t, std::set<std::string>> models_of;  // by user
  std::atomic<std::uint64_t> changes = 0;                    // counts changes of the allocator
};

class PooledGreenStream::Impl {
 public:
  Impl(std::shared_ptr<GreenStreamPool::State> state, std::uint32_t sms,
       std::span<const std::string> models)
      : state_(std::move(state)), sms_(sms) {
    const SmGroups& sizes = state_->blocks.sizes();
    const std::uint32_t count = sms == sizes.sms ? state_->blocks.count() : sms / sizes.step;
    const std::lock_guard lock(state_->mutex);
    user_ = state_->add_user(count, models);
    held_ = state_->allocator.blocks_of(user_);
  }
  ~Impl() {
    stream_.reset();  // first: frees the blocks
    {
      const std::lock_guard lock(state_->mutex);
      state_->allocator.remove(user_);
      state_->models_of.erase(user_);
    }
    state_->notify_change();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] Status open() {
    GPULET_TRY(auto stream, state_->make_stream(held_, sms_));
    stream_ = std::move(stream);
    return {};
  }

  [[nodiscard]] GreenStream stream() const { return *stream_; }
  [[nodiscard]] std::uint32_t sms() const { return stream_->sms(); }
  [[nodiscard]] std::uint32_t shared_sms() const {
    const std::lock_guard lock(state_->mutex);
    return state_->allocator.shared_blocks(user_) * state_->blocks.sizes().step;
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
std::uint32_t PooledGreenStream::shared_sms() const { return impl_->shared_sms(); }

Result<GreenStreamPool> GreenStreamPool::make(const CudaDriver& driver, std::uint32_t gpu) {
  GPULET_TRY(SmBlocks blocks, driver.cut(gpu));
  return GreenStreamPool(std::make_shared<State>(std::move(blocks)));
}

const SmGroups& GreenStreamPool::sizes() const { return state_->blocks.sizes(); }

Result<PooledGreenStream> GreenStreamPool::add(Share share, std::span<const std::string> models) {
  if (!share.valid()) {
    return Status(StatusCode::invalid, "the share of a green stream must be 1..100 %; was " +
                                           std::to_string(share.percent));
  }
  const auto impl =
      std::make_shared<PooledGreenStream::Impl>(state_, sizes().sms_of(share.percent), models);
  if (Status opened = impl->open(); !opened.ok()) return opened;
  return PooledGreenStream(impl);
}

}  // namespace gpulet::gpu

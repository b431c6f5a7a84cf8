#include "gpulet/gpu/green_lanes.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "gpu/block_book.h"

namespace gpulet::gpu {
namespace {

// A lane that the driver refused to move asks again after so many batches, whatever happens to the
// others: what it refused for may be over.
constexpr std::uint32_t kBatchesUntilNextLook = 1000;

}  // namespace

// What lanes have in common. The driver is called without the lock, so that no batch waits for a
// neighbour's context; the book is written first, so that no two go to the same blocks.
class GreenLanes::State {
 public:
  explicit State(SmBlocks cut) : blocks(std::move(cut)), book(blocks.count()) {}

  [[nodiscard]] bool takes_all(const BlockBook::Blocks& held, std::uint32_t sms) const {
    return held.size() == blocks.count() && sms == blocks.sizes().sms;
  }
  [[nodiscard]] Result<GreenStream> make_stream(const BlockBook::Blocks& held,
                                                std::uint32_t sms) const {
    return takes_all(held, sms) ? blocks.stream_over_all() : blocks.stream_over(held);
  }
  // Another lane may have room now.
  void has_changed() { changes.fetch_add(1, std::memory_order_release); }

  const SmBlocks blocks;
  std::mutex mutex;  // guards the book
  BlockBook book;
  std::atomic<std::uint64_t> changes = 0;  // of the book
};

class GreenLane::Place {
 public:
  Place(std::shared_ptr<GreenLanes::State> state, std::uint32_t sms)
      : state_(std::move(state)), sms_(sms) {
    const SmGroups& sizes = state_->blocks.sizes();
    const std::uint32_t count = sms == sizes.sms ? state_->blocks.count() : sms / sizes.step;
    const std::lock_guard lock(state_->mutex);
    user_ = state_->book.add(count);
    held_ = state_->book.blocks_of(user_);
  }
  ~Place() {
    stream_.reset();  // first: the blocks are not free before
    {
      const std::lock_guard lock(state_->mutex);
      state_->book.drop(user_);
    }
    state_->has_changed();
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  [[nodiscard]] Status open() {
    auto stream = state_->make_stream(held_, sms_);
    if (!stream.ok()) return stream.status();
    stream_ = std::move(stream).value();
    return {};
  }

  [[nodiscard]] void* stream() {
    if (may_be_better_elsewhere()) move();
    return stream_->stream();
  }
  [[nodiscard]] std::uint32_t sms() const { return stream_->sms(); }
  [[nodiscard]] bool overlaps() const {
    const std::lock_guard lock(state_->mutex);
    return state_->book.overlaps(user_);
  }

 private:
  // Without a lock where nothing has changed.
  [[nodiscard]] bool may_be_better_elsewhere() {
    const std::uint64_t changes = state_->changes.load(std::memory_order_acquire);
    if (changes == seen_changes_ && ++batches_since_ < kBatchesUntilNextLook) return false;
    seen_changes_ = changes;
    batches_since_ = 0;
    return true;
  }

  void move() {
    std::optional<BlockBook::Blocks> better;
    {
      const std::lock_guard lock(state_->mutex);
      better = state_->book.better(user_);
      if (better) state_->book.move(user_, *better);
    }
    if (!better) return;
    auto made = state_->make_stream(*better, sms_);
    if (!made.ok()) {
      const std::lock_guard lock(state_->mutex);
      state_->book.move(user_, held_);
      return;
    }
    stream_ = std::move(made).value();
    held_ = std::move(*better);
    state_->has_changed();
  }

  const std::shared_ptr<GreenLanes::State> state_;
  const std::uint32_t sms_;
  std::uint64_t user_ = 0;
  BlockBook::Blocks held_;  // those that the stream is over
  std::optional<GreenStream> stream_;
  std::uint64_t seen_changes_ = 0;
  std::uint32_t batches_since_ = 0;
};

GreenLane::GreenLane(std::unique_ptr<Place> place) : place_(std::move(place)) {}
GreenLane::GreenLane(GreenLane&&) noexcept = default;
GreenLane& GreenLane::operator=(GreenLane&&) noexcept = default;
GreenLane::~GreenLane() = default;
void* GreenLane::stream() { return place_->stream(); }
std::uint32_t GreenLane::sms() const { return place_->sms(); }
bool GreenLane::overlaps() const { return place_->overlaps(); }

GreenLanes::GreenLanes(std::shared_ptr<State> state) : state_(std::move(state)) {}
GreenLanes::GreenLanes(GreenLanes&&) noexcept = default;
GreenLanes& GreenLanes::operator=(GreenLanes&&) noexcept = default;
GreenLanes::~GreenLanes() = default;

Result<GreenLanes> GreenLanes::make(const CudaDriver& driver, std::uint32_t gpu) {
  Result<SmBlocks> blocks = driver.cut(gpu);
  if (!blocks.ok()) return blocks.status();
  return GreenLanes(std::make_shared<State>(std::move(blocks).value()));
}

const SmGroups& GreenLanes::sizes() const { return state_->blocks.sizes(); }

Result<GreenLane> GreenLanes::add(Share share) {
  if (!share.valid()) {
    return Status(StatusCode::invalid,
                  "a lane's share must be 1..100 %; was " + std::to_string(share.percent));
  }
  auto place = std::make_unique<GreenLane::Place>(state_, sizes().sms_of(share.percent));
  if (Status opened = place->open(); !opened.ok()) return opened;
  return GreenLane(std::move(place));
}

}  // namespace gpulet::gpu

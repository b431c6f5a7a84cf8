#include "frontend/loop/engine_inbox.h"

namespace gpulet::frontend {
namespace {

// Memory for more is returned.
constexpr std::size_t kItemsKept = 256;

}  // namespace

void EngineInbox::put(Item item) {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [this] { return items_.size() < kMostWaiting || closed_; });
  if (closed_) return;
  items_.push_back(std::move(item));
  if (std::exchange(scheduled_, true)) return;
  lock.unlock();
  net::asio::post(io_, [this] { run_turn(); });
}

bool EngineInbox::take() {
  if (taken_.capacity() > kItemsKept) taken_ = {};
  taken_.clear();
  next_ = 0;
  const std::lock_guard lock(mutex_);
  scheduled_ = !items_.empty() && !closed_;
  if (!scheduled_) return false;
  if (items_.size() >= kMostWaiting) room_.notify_all();
  taken_.swap(items_);
  return true;
}

void EngineInbox::run_turn() {
  if (next_ == taken_.size() && !take()) return;
  for (std::size_t handled = 0; handled < kMostInATurn && next_ < taken_.size(); ++handled) {
    Item item = std::move(taken_[next_++]);
    if (auto* const event = std::get_if<serve::FrontendEvent>(&item)) {
      engine_.deliver(std::move(*event));
    } else {
      std::get<Call>(item)();
    }
  }
  // Other handlers of the loop run before the next turn.
  if (next_ < taken_.size() || take()) net::asio::post(io_, [this] { run_turn(); });
}

void EngineInbox::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  room_.notify_all();
}

}  // namespace gpulet::frontend

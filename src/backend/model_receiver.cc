#include "gpulet/backend/model_receiver.h"

#include <spdlog/spdlog.h>

#include <string>
#include <utility>

namespace gpulet::backend {
namespace {

constexpr std::size_t kMostWaiting = 64U << 20U;

}  // namespace

ModelReceiver::ModelReceiver(net::asio::any_io_executor executor, ModelStore store, Tell tell)
    : executor_(std::move(executor)),
      tell_(std::move(tell)),
      store_(std::move(store)),
      thread_([this] { work(); }) {}

ModelReceiver::~ModelReceiver() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

Status ModelReceiver::take(serve::ModelPiece piece) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_bytes_ + piece.data.size() > kMostWaiting) {
      return {StatusCode::overloaded, "pieces of model files came faster than they were asked for"};
    }
  }
  push(std::move(piece));
  return {};
}

void ModelReceiver::forget_unfinished() { push(std::nullopt); }

void ModelReceiver::push(Order order) {
  {
    const std::lock_guard lock(mutex_);
    if (order) waiting_bytes_ += order->data.size();
    waiting_.push_back(std::move(order));
  }
  changed_.notify_one();
}

void ModelReceiver::work() {
  for (;;) {
    Order order;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
      if (ending_) return;
      order = std::move(waiting_.front());
      waiting_.pop_front();
      if (order) waiting_bytes_ -= order->data.size();
    }
    if (order) {
      write(*order);
    } else {
      store_.forget_unfinished();
    }
  }
}

void ModelReceiver::write(serve::ModelPiece& piece) {
  auto taken = store_.take(piece);
  if (!taken.ok()) {
    spdlog::error("model store: {}", taken.status().to_string());
    tell_later(serve::ModelFailed{std::move(piece.sha256), taken.status(),
                                  ModelStore::cause_of(taken.status().code())});
  } else if (taken.value()) {
    spdlog::info("model store: {}", taken.value()->string());
    tell_later(serve::ModelStored{std::move(piece.sha256), taken.value()->string()});
  } else {
    tell_later(serve::ModelProgress{std::move(piece.sha256), piece.offset + piece.data.size(),
                                    piece.total_bytes});
  }
}

void ModelReceiver::tell_later(serve::BackendEvent event) {
  net::asio::post(executor_,
                  [this, alive = std::weak_ptr(alive_), event = std::move(event)]() mutable {
                    if (!alive.expired()) tell_(std::move(event));
                  });
}

}  // namespace gpulet::backend

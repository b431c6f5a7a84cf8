#include "backend/model_receiver.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "gpulet/net/event_loop.h"

namespace gpulet::backend {
namespace {

constexpr std::size_t kMaxQueuedBytes = 64U << 20U;

}  // namespace

ModelReceiver::ModelReceiver(net::asio::any_io_executor executor, store::ModelStore store,
                             OnEvent on_event)
    : executor_(std::move(executor)),
      on_event_(std::move(on_event)),
      store_(std::move(store)),
      thread_([this] {
        net::name_thread("model-receiver");
        work();
      }) {}

ModelReceiver::~ModelReceiver() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

Status ModelReceiver::add(ModelPiece piece) {
  {
    const std::lock_guard lock(mutex_);
    if (queued_bytes_ + piece.data.size() > kMaxQueuedBytes) {
      return {StatusCode::overloaded,
              "the frontend sent pieces of model files faster than requested"};
    }
  }
  push(std::move(piece));
  return {};
}

void ModelReceiver::forget_unfinished() { push(std::nullopt); }

void ModelReceiver::push(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (task) queued_bytes_ += task->data.size();
    queue_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void ModelReceiver::work() {
  for (;;) {
    Task task;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      task = std::move(queue_.front());
      queue_.pop_front();
      if (task) queued_bytes_ -= task->data.size();
    }
    if (task) {
      write(*task);
    } else {
      store_.forget_unfinished();
    }
  }
}

void ModelReceiver::write(ModelPiece& piece) {
  auto written = store_.add(piece);
  if (!written.ok()) {
    spdlog::error("model store: {}", written.status().to_string());
    post_event(node::ModelFailed{std::move(piece.sha256), written.status(),
                                 store::ModelStore::cause_of(written.status().code())});
  } else if (written.value()) {
    spdlog::info("model store: {}", written.value()->string());
    post_event(
        node::ModelStored{std::move(piece.sha256), written.value()->string(), piece.total_bytes});
  } else {
    post_event(node::ModelProgress{std::move(piece.sha256), piece.offset + piece.data.size(),
                                   piece.total_bytes});
  }
}

void ModelReceiver::post_event(node::BackendEvent event) {
  net::asio::post(executor_, [this, watch = alive_.watch(), event = std::move(event)]() mutable {
    if (watch.alive()) on_event_(std::move(event));
  });
}

}  // namespace gpulet::backend

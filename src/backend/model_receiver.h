// ModelReceiver: runs a ModelStore on a thread of its own, so that writing, hashing and syncing a
// large file does not delay batches.
//
// Calls come from one thread. Results are delivered on the executor given, in the order of the
// pieces. The number of queued bytes is bounded: the core requests only what fits, so a sender that
// exceeds it sends pieces that were not requested.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "gpulet/base/alive.h"
#include "gpulet/net/asio.h"
#include "gpulet/node/backend_core.h"
#include "gpulet/store/model_store.h"

namespace gpulet::backend {

class ModelReceiver {
 public:
  using OnEvent = std::function<void(node::BackendEvent)>;

  ModelReceiver(net::asio::any_io_executor executor, store::ModelStore store, OnEvent on_event);
  // Waits for the piece that is being written. No events follow.
  ~ModelReceiver();
  ModelReceiver(const ModelReceiver&) = delete;
  ModelReceiver& operator=(const ModelReceiver&) = delete;

  // As ModelStore.
  [[nodiscard]] std::optional<std::filesystem::path> find(std::string_view sha256) const {
    return store_.find(sha256);
  }
  [[nodiscard]] std::optional<std::filesystem::path> use(std::string_view sha256) {
    return store_.use(sha256);
  }
  void keep_only(const std::set<std::string, std::less<>>& sha256) { store_.keep_only(sha256); }

  // Queues a piece. ModelProgress, ModelStored or ModelFailed follows. Fails with overloaded if too
  // many bytes are queued.
  [[nodiscard]] Status add(ModelPiece piece);
  // As ModelStore, after the queued pieces.
  void forget_unfinished();

 private:
  using Task = std::optional<ModelPiece>;  // empty: forget_unfinished()

  void work();
  void write(ModelPiece& piece);
  void push(Task task);
  void post_event(node::BackendEvent event);

  const net::asio::any_io_executor executor_;
  const OnEvent on_event_;
  store::ModelStore store_;  // used by the thread, except for its thread-safe functions
  AliveToken alive_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;        // guarded by mutex_
  std::size_t queued_bytes_ = 0;  // guarded by mutex_
  bool stopping_ = false;         // guarded by mutex_
  std::thread thread_;            // last: starts when the other members exist
};

}  // namespace gpulet::backend

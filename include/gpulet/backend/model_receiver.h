// ModelReceiver: a model store with a thread of its own, so that writing, hashing and syncing a
// file of hundreds of megabytes holds up no batch.
//
// Calls come from one thread, and what came of the pieces is told on the executor given, in their
// order. A bounded number of bytes waits to be written: the core asks for no more than it has room
// for, so whoever sends more was not asked.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "gpulet/backend/model_store.h"
#include "gpulet/net/asio.h"
#include "gpulet/serve/backend_events.h"

namespace gpulet::backend {

class ModelReceiver {
 public:
  using Tell = std::function<void(serve::BackendEvent)>;

  ModelReceiver(net::asio::any_io_executor executor, ModelStore store, Tell tell);
  // Ends with the piece that is being written; tells nothing any more.
  ~ModelReceiver();
  ModelReceiver(const ModelReceiver&) = delete;
  ModelReceiver& operator=(const ModelReceiver&) = delete;

  // As ModelStore::find.
  [[nodiscard]] std::optional<std::filesystem::path> find(std::string_view sha256) const {
    return store_.find(sha256);
  }

  // As ModelStore::use and keep_only.
  [[nodiscard]] std::optional<std::filesystem::path> use(std::string_view sha256) {
    return store_.use(sha256);
  }
  void keep_only(const std::set<std::string, std::less<>>& sha256) { store_.keep_only(sha256); }

  // ModelProgress, ModelStored or ModelFailed follows. Fails with overloaded where too much waits
  // already.
  [[nodiscard]] Status take(serve::ModelPiece piece);
  // As ModelStore's, after the pieces taken before.
  void forget_unfinished();

 private:
  // A piece, or, where there is none, the order to forget.
  using Order = std::optional<serve::ModelPiece>;

  void work();
  void write(serve::ModelPiece& piece);
  void push(Order order);
  void tell_later(serve::BackendEvent event);

  const net::asio::any_io_executor executor_;
  const Tell tell_;
  ModelStore store_;  // the thread's, but for what any thread may call
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // gone: nobody is left to tell

  std::mutex mutex_;  // the thread and its owner meet here
  std::condition_variable changed_;
  std::deque<Order> waiting_;      // guarded by mutex_
  std::size_t waiting_bytes_ = 0;  // guarded by mutex_
  bool ending_ = false;            // guarded by mutex_
  std::thread thread_;             // last: starts when the rest is there
};

}  // namespace gpulet::backend

// EngineInbox: the way into the engine from other threads. Events and calls wait in one queue,
// which the engine's thread takes as a whole and handles in bounded turns. Those of one thread keep
// their order. A thread that finds the queue full waits until the engine takes it: meanwhile the
// thread reads nothing from its connections, which holds their peers up.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "frontend/loop/event_sink.h"
#include "gpulet/net/asio.h"
#include "gpulet/serve/values/frontend_events.h"

namespace gpulet::frontend {

class EngineInbox {
 public:
  using Call = std::function<void()>;
  static constexpr std::size_t kMostWaiting = 4096;  // and as many that were taken
  static constexpr std::size_t kMostInATurn = 64;

  // `engine`: belongs to the thread of `io`, and must outlive this object. The io_context must have
  // stopped before this object is destroyed.
  EngineInbox(net::asio::io_context& io, EventSink& engine) : io_(io), engine_(engine) {}
  EngineInbox(const EngineInbox&) = delete;
  EngineInbox& operator=(const EngineInbox&) = delete;

  // ---- threads other than the engine's
  void deliver(serve::FrontendEvent event) { put(std::move(event)); }
  void call(Call call) { put(std::move(call)); }

  // ---- the engine's thread
  // Handles nothing any more, and drops what comes later, so that no thread waits. What waits is
  // destroyed with this object: it may belong to another thread, which must have ended then.
  void close();

 private:
  using Item = std::variant<serve::FrontendEvent, Call>;

  void put(Item item);
  void run_turn();
  // Takes the whole queue. Returns false, and ends the turns, if it is empty.
  [[nodiscard]] bool take();

  net::asio::io_context& io_;
  EventSink& engine_;

  // The engine's thread.
  std::vector<Item> taken_;
  std::size_t next_ = 0;  // of taken_

  std::mutex mutex_;  // guards the rest
  std::condition_variable room_;
  std::vector<Item> items_;
  bool scheduled_ = false;  // run_turn() is posted
  bool closed_ = false;
};

}  // namespace gpulet::frontend

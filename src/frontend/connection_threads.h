// ConnectionThreads: the I/O threads of the frontend, and all that crosses between them and the
// engine (docs/architecture.md, "Threads"). Without I/O threads, connections run on the thread of
// the engine, and nothing crosses. Belongs to the thread of the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "frontend/frames/client_port.h"
#include "frontend/frames/engine_link.h"
#include "frontend/frames/model_board.h"
#include "frontend/frames/remote_engine.h"
#include "frontend/frames/reply_router.h"
#include "frontend/loop/done.h"
#include "frontend/loop/engine_inbox.h"
#include "frontend/loop/event_sink.h"
#include "gpulet/base/time.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::frontend {

// FrontendConfig::io_threads, or its default for the cores of this machine.
[[nodiscard]] std::size_t io_threads(const config::FrontendConfig& config);

class ConnectionThreads {
 public:
  using DeviceTime = std::function<Duration(std::string_view model)>;

  // Starts that many threads. `io` must have stopped before this object is destroyed; `engine`
  // must outlive it.
  ConnectionThreads(net::asio::io_context& io, std::size_t threads, EventSink& engine);

  [[nodiscard]] std::size_t size() const { return threads_.size(); }
  // Of the engine's ReplyRouter.
  [[nodiscard]] ThreadOfConnections engine_thread() const { return {0, size() + 1}; }
  // Where connections of clients run: on the I/O threads, or as `engine` and `requests` say where
  // there are none. Called once, before the first connection. The references, those of `engine`
  // among them, must outlive this object.
  [[nodiscard]] std::vector<ConnectionPlace> places(const EngineLink& engine,
                                                    ClientRequests& requests);

  // Publishes the models for the I/O threads if they have changed. `device_time`: of a request on a
  // whole device, under the plan in force.
  void publish(const serve::FrontendCore& core, const DeviceTime& device_time);
  [[nodiscard]] const ModelBoard& models() const { return models_; }

  // Lets the threads end with their last connection, at the latest after `patience`. Then calls
  // `done` on the engine's thread. Called at most once.
  void finish(Duration patience, Done done);
  // Ends the threads at once.
  void halt();
  // The same, and waits for them. To be called before what their connections use is destroyed.
  void join();

 private:
  net::asio::io_context& io_;
  net::IoThreads threads_;  // destroyed last: sockets belong to their io_contexts
  EngineInbox inbox_;
  ModelBoard models_;
  std::vector<std::unique_ptr<RemoteEngine>> remotes_;  // one for each thread
  net::Alarm patience_;
  std::optional<std::uint64_t> published_;  // FrontendCore::models_revision()
  Epoch epoch_{};                           // of the published device times
};

}  // namespace gpulet::frontend

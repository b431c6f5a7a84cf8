// StatusService: serves the status in every form: snapshots, the metrics page, the status document
// of gpulet's own protocol, and log lines about the startup. All types here belong to the thread of
// the io_context, which must have stopped before they are destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "frontend/loop/event_loop.h"
#include "frontend/observe/status_snapshots.h"
#include "gpulet/base/bytes.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/net/gate.h"
#include "gpulet/observe/log_limiter.h"
#include "gpulet/protocol/frame.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::frontend {

// What the frontend waits for before it serves all available models; empty: nothing. Pure.
[[nodiscard]] std::string startup_wait_reason(const serve::FrontendStatus& status);
// How many models are served, and which are not and why. Pure; any thread.
[[nodiscard]] std::string serving_summary(const serve::FrontendStatus& status);

// Logs what a frontend that has just started waits for, until it waits for nothing.
class StartupReporter {
 public:
  // The snapshots must outlive this object.
  StartupReporter(net::asio::io_context& io, StatusSnapshots& snapshots)
      : snapshots_(snapshots), timer_(io) {}

  void start();
  void stop();

 private:
  void poll();
  void report(const TimedStatus& seen);

  StatusSnapshots& snapshots_;
  net::Alarm timer_;
  observe::LogBackoff reminder_{std::chrono::seconds(10), std::chrono::minutes(10)};
  std::string last_reason_;
  bool stopped_ = false;
};

// Sends the status document. A client that has the current one waits for the next, so that it
// cannot request the same megabytes at any rate.
class StatusResponder {
 public:
  using Send = std::function<void(ClientId, const protocol::OutgoingFrame&)>;

  StatusResponder(net::asio::io_context& io, StatusSnapshots& snapshots,
                  BackgroundThread& background, Send send);

  // Sends one document for each call.
  void request(ClientId client);
  void forget(ClientId client) { clients_.erase(client); }

 private:
  struct Client {
    std::uint64_t pending = 0;      // requests without a response
    std::uint64_t last_number = 0;  // snapshot of the last document sent
  };
  void fetch(ClientId client, std::uint64_t newer_than);

  StatusDocument<protocol::OutgoingFrame> document_;
  Send send_;
  std::map<ClientId, Client> clients_;
};

class StatusService {
 public:
  struct Callbacks {
    std::function<observe::WallClock()> wall_clock;
    std::function<std::size_t()> clients;
    std::function<const net::CountersByClient&()> by_token;
    std::function<const std::optional<ClusterView>&()> cluster;
    std::function<LogFigures()> logs;
    StatusResponder::Send send;
    bool summaries = false;  // MetricsExtras
  };

  // The core must outlive this object.
  StatusService(net::asio::io_context& io, const serve::FrontendCore& core, Time started,
                Callbacks callbacks);

  void start();
  void stop();
  [[nodiscard]] LoopWatch& watch() { return watch_; }
  [[nodiscard]] StatusSnapshots& snapshots() { return snapshots_; }
  [[nodiscard]] BackgroundThread& background() { return background_; }
  [[nodiscard]] StatusResponder& responder() { return responder_; }
  // Calls `done` with the metrics page; never from within metrics().
  void metrics(std::function<void(const Bytes&)> done);

 private:
  [[nodiscard]] StatusContext context(const observe::WallClock& wall) const;

  Time started_;
  Callbacks callbacks_;
  LoopWatch watch_;
  BackgroundThread background_;
  StatusSnapshots snapshots_;
  StatusDocument<Bytes> metrics_;
  StatusResponder responder_;
  StartupReporter startup_;
};

}  // namespace gpulet::frontend

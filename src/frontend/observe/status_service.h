// StatusService: serves the status in every form: snapshots, the metrics page, the status document
// of gpulet's own protocol, and log lines about the startup. All types here belong to the thread of
// the io_context, which must have stopped before they are destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "frontend/frames/reply_router.h"
#include "frontend/loop/event_loop.h"
#include "frontend/observe/metrics.h"
#include "frontend/observe/status_snapshots.h"
#include "gpulet/access/gate.h"
#include "gpulet/base/bytes.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"
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
  // The references must outlive this object.
  StatusResponder(net::asio::io_context& io, StatusSnapshots& snapshots,
                  BackgroundThread& background, const ReplyRouter& replies);

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
  const ReplyRouter& replies_;
  std::map<ClientId, Client> clients_;
};

class StatusService final : public MetricsSource, private StatusSnapshots::Source {
 public:
  class Facts {
   public:
    // Fills in what other parts of the frontend know: started, clients, logs, by_token and cluster.
    virtual void add_to(StatusContext& context) const = 0;

   protected:
    ~Facts() = default;
  };

  // The references must outlive this object. `summaries`: MetricsExtras.
  StatusService(net::asio::io_context& io, const serve::FrontendCore& core, LoopWatch& watch,
                const Facts& facts, const ReplyRouter& replies, bool summaries);

  void start();
  void stop();
  [[nodiscard]] StatusSnapshots& snapshots() { return snapshots_; }
  [[nodiscard]] BackgroundThread& background() { return background_; }
  [[nodiscard]] StatusResponder& responder() { return responder_; }
  // Calls back later.
  void metrics(OnPage done) override;

 private:
  bool take(serve::StatusInSteps& taken, std::size_t parts) override;
  [[nodiscard]] StatusContext context(const observe::WallClock& wall) const override;

  const serve::FrontendCore& core_;
  const Facts& facts_;
  LoopWatch& watch_;
  BackgroundThread background_;
  StatusSnapshots snapshots_;
  StatusDocument<Bytes> metrics_;
  StatusResponder responder_;
  StartupReporter startup_;
};

}  // namespace gpulet::frontend

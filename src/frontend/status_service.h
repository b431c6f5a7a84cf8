// StatusService: what is told of the status, and the event loop's pauses, for whoever asks:
// snapshots, the metrics page, the status document. Single-strand type, on the io_context's thread,
// which must not run any more when this goes.
#pragma once

#include <cstddef>
#include <functional>

#include "background.h"
#include "gpulet/core/bytes.h"
#include "gpulet/core/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/gate.h"
#include "gpulet/serve/frontend_core.h"
#include "loop_watch.h"
#include "start_report.h"
#include "status_answers.h"
#include "status_document.h"
#include "status_snapshots.h"

namespace gpulet::frontend {

class StatusService {
 public:
  struct Daemon {
    std::function<observe::WallClock()> wall_clock;
    std::function<std::size_t()> clients;
    std::function<const net::CountersByClient&()> by_token;
    StatusAnswers::Send send;
    bool summaries = false;  // MetricsExtras
  };

  // The core outlives it.
  StatusService(net::asio::io_context& io, const serve::FrontendCore& core, Time started,
                Daemon daemon);

  // Watches the loop, and tells the log what the frontend waits for.
  void start();
  void stop();
  [[nodiscard]] LoopWatch& watch() { return watch_; }
  [[nodiscard]] StatusSnapshots& snapshots() { return snapshots_; }
  [[nodiscard]] Background& background() { return background_; }
  [[nodiscard]] StatusAnswers& answers() { return answers_; }
  // Calls back later.
  void metrics(std::function<void(const Bytes&)> done);

 private:
  [[nodiscard]] StatusMoment moment(const observe::WallClock& wall) const;

  Time started_;
  Daemon daemon_;
  LoopWatch watch_;
  Background background_;
  StatusSnapshots snapshots_;
  StatusDocument<Bytes> metrics_;
  StatusAnswers answers_;
  StartReport start_report_;
};

}  // namespace gpulet::frontend

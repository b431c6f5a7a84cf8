// The load generator over real connections to a frontend.
//
// run_load drives a Generator by the machine's steady clock in the calling thread until every
// request has its fate: it opens the connections, sends what is due on them in turn, and after the
// last request waits for the answers that are still out, at most the largest SLO and
// kLastAnswerGrace longer. A connection that is lost costs its requests an error each and is opened
// again every kReconnectPause; what is due while none is open is an error too.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/load/generator.h"
#include "gpulet/load/target.h"
#include "gpulet/load/workload.h"

namespace gpulet::load {

inline constexpr Duration kReconnectPause = std::chrono::milliseconds(500);
inline constexpr Duration kProgressPeriod = std::chrono::seconds(1);

struct LoadOptions {
  Target target;
  GeneratorOptions generator;
  std::uint32_t connections = 4;  // at least 1
  Duration connect_timeout = std::chrono::seconds(5);
  Duration last_answer_grace = std::chrono::seconds(5);
  Generator::OnSettled on_settled;  // may be empty; called in run_load's thread
  // May be empty; every kProgressPeriod, with the time since the start. False ends the sending
  // early.
  std::function<bool(const Progress&, Duration elapsed)> on_progress;
};

struct LoadReport {
  std::vector<ModelRow> models;  // in the workload's order
  SenderLag sender_lag;
  Duration elapsed{};                  // until the last answer
  bool outstanding_limit_hit = false;  // requests were not sent because too many waited for answers
  std::uint64_t connections_lost = 0;
  std::uint64_t unexpected_replies =
      0;  // answers to nothing that was under way: a second answer, or a wrong tag
};

// Fails with unavailable or timeout where the connections cannot be opened at the start.
[[nodiscard]] Result<LoadReport> run_load(const std::vector<PreparedModel>& models,
                                          const LoadOptions& options);

}  // namespace gpulet::load

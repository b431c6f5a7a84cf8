// The load generator over connections to a frontend.
//
// run_load drives a Generator by the steady clock in the calling thread and spreads the requests
// over the connections. It waits for each reply for at most the request's timeout or SLO plus
// last_answer_grace; the request is an error (timeout) after that, and an owner that left it
// unanswered is avoided for a while. Requests on a lost connection, or due while none is open, are
// errors; a
// lost connection is opened again at once, then every kReconnectPause.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/core/tensor.h"
#include "gpulet/load/call.h"
#include "gpulet/load/generator.h"
#include "gpulet/load/inputs.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::load {

struct PreparedModel {
  ModelLoad load;
  Duration timeout{};  // sent with each request; zero: the server's SLO
  InputPool pool;
};

// Factors that adapt a workload to another machine.
struct Scale {
  double rate = 1;  // of open loops
  double slo = 1;   // of the workload's objectives
};

// Joins the workload with the server's models; their SLO is used where slo_ms is missing. Reads the
// input files. Fails with invalid or not_found, naming the model's JSON pointer or the file.
[[nodiscard]] Result<std::vector<PreparedModel>> prepare(
    const std::vector<config::WorkloadModel>& workload, const std::vector<ModelInfo>& served,
    const Scale& scale, std::uint64_t seed);

inline constexpr Duration kReconnectPause = std::chrono::milliseconds(500);
inline constexpr Duration kProgressPeriod = std::chrono::seconds(1);

struct LoadOptions {
  Target target;
  // Further frontends of the same cluster. Connections are spread over all, and each that is lost
  // is opened again at the next.
  std::vector<config::Endpoint> others{};
  // Sends a model's requests to the frontend that serves it, once a reply names that one.
  bool follow_owners = true;
  GeneratorOptions generator;
  std::uint32_t connections = 4;  // at least 1
  Duration connect_timeout = std::chrono::seconds(5);
  Duration last_answer_grace = std::chrono::seconds(5);
  Generator::OnSettled on_settled;  // may be empty; called in run_load's thread
  // May be empty; called every kProgressPeriod. False stops sending.
  std::function<bool(const Progress&, Duration elapsed)> on_progress;
};

struct LoadReport {
  std::vector<ModelRow> models;  // in the workload's order
  SenderLag sender_lag;
  Duration elapsed{};                  // until the last reply
  bool outstanding_limit_hit = false;  // requests above max_outstanding were not sent
  std::uint64_t connections_lost = 0;
  std::uint64_t unexpected_replies = 0;  // replies with a tag that is not in flight
};

// Blocks until all requests have outcomes. Fails (unavailable, timeout) if it cannot connect first.
[[nodiscard]] Result<LoadReport> run_load(const std::vector<PreparedModel>& models,
                                          const LoadOptions& options);

}  // namespace gpulet::load

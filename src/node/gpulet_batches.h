// GpuletBatches: the batches of all gpulets, from their arrival to their results. Each gets one
// result, on the connection on which it arrived. Pure; one thread at a time.
#pragma once

#include <cstddef>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/node/backend_core.h"
#include "node/awaited_batches.h"
#include "node/check_schedule.h"
#include "node/frontend_links.h"
#include "node/gpulet_processes.h"
#include "node/hosted_gpulets.h"
#include "node/node_devices.h"
#include "node/turn.h"

namespace gpulet::node {

class GpuletBatches {
 public:
  // All outlive it.
  GpuletBatches(const BackendCoreOptions& options, FrontendLinks& links, NodeDevices& devices,
                HostedGpulets& gpulets, CheckSchedule& checks, GpuletProcesses& processes)
      : options_(options),
        links_(links),
        devices_(devices),
        gpulets_(gpulets),
        checks_(checks),
        processes_(processes) {}

  // No batch waits for inputs of other frontends.
  [[nodiscard]] bool none_awaited() const { return awaited_.empty(); }
  // As of BackendCore.
  [[nodiscard]] std::size_t input_bytes(const Batch& batch) const;
  [[nodiscard]] bool takes_rows(FrontendId frontend, const Rows& rows, std::size_t bytes) const;
  [[nodiscard]] MutableBytes rows_memory(FrontendId frontend, const Rows& rows) const;

  // Runs the batch, lets it wait for inputs, or refuses it.
  void on_arrived(FrontendId from, BatchArrived& event, Turn turn);
  void on_rows(FrontendId from, const Rows& command, Turn turn);
  void on_completed(BatchCompleted& event, Turn turn);
  // After FrontendLinks::disconnect().
  void disconnected(FrontendId frontend, Turn turn);
  // Runs the batches that wait no longer.
  void run_ready(Turn turn);
  // When run_ready() is due without a further event.
  [[nodiscard]] Time next() const { return awaited_.next(); }

 private:
  [[nodiscard]] bool admits(FrontendId from, const Batch& batch, Turn turn);
  // Why the batch cannot run here now; ok: it can.
  [[nodiscard]] Status refusal(const BatchArrived& event, Time now) const;
  // The gpulet takes batches, now or soon.
  [[nodiscard]] bool may_run(GpuletId gpulet) const;
  // The batch waits for the inputs of other frontends.
  void await(FrontendId owner, BatchArrived& event, Turn turn);
  // Runs the batch, whose inputs are all here, or refuses it.
  void run(HeldBatch held, BatchArrived& event, Turn turn);
  void reject(const HeldBatch& held, Status why, bool elsewhere, Turn turn);
  // Reports a changed condition of the gpulet's process, at most once a second.
  void update_condition(HostedGpulet& gpulet, const BatchRan& ran, Turn turn);

  const BackendCoreOptions& options_;
  FrontendLinks& links_;
  NodeDevices& devices_;
  HostedGpulets& gpulets_;
  CheckSchedule& checks_;
  GpuletProcesses& processes_;
  AwaitedBatches awaited_;
};

}  // namespace gpulet::node

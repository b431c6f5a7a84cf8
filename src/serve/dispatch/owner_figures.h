// OwnerFigures: what a frontend that owns gpulets without leading tells the leader about the
// requests and batches that it served (OwnerReport). Empty while this frontend leads. Pure; one
// thread at a time.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "gpulet/protocol/messages.h"
#include "serve/dispatch/dispatch_output.h"
#include "serve/dispatch/model_queues.h"
#include "serve/values/route_table.h"

namespace gpulet::serve {

class OwnerFigures {
 public:
  // Both outlive it.
  OwnerFigures(const ModelQueues& queues, const RouteTable& routes)
      : queues_(queues), routes_(routes) {}

  // Counts a request for the model's queue.
  void arrived(const std::string& model);
  void answered(const Answer& answer);
  void ran(const BatchRun& batch);
  void lost(const ProcessLost& process);

  // Adds what was counted since the last call, with the present length of the models' queues.
  void take(OwnerReport& report, const std::vector<ModelIndex>& models);

 private:
  [[nodiscard]] ModelFigures& figures_of(const std::string& model);

  const ModelQueues& queues_;
  const RouteTable& routes_;
  std::unordered_map<std::string, ModelFigures> models_;
  std::vector<BatchFigures> batches_;
  std::vector<ProcessLost> lost_;
};

}  // namespace gpulet::serve

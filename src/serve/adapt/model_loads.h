// ModelLoads: the requests for each model at all frontends that serve it. Pure; one thread at a
// time.
#pragma once

#include <string>

#include "gpulet/base/time.h"
#include "gpulet/serve/values/frontend_status.h"
#include "serve/deploy/demands.h"
#include "serve/dispatch/dispatch_records.h"
#include "serve/models/model_table.h"
#include "serve/values/reported_figures.h"

namespace gpulet::serve {

class ModelLoads {
 public:
  // All outlive it.
  ModelLoads(const ModelQueues& queues, const DispatchRecords& records, const Demands& demands,
             const ReportedFigures& reported)
      : queues_(queues), records_(records), demands_(demands), reported_(reported) {}

  // Since this frontend leads, where others serve it.
  [[nodiscard]] ModelCounters counters(const std::string& name, const NamedModel& known) const;
  // The requests that wait. `known`: as ModelTable::find().
  [[nodiscard]] double queued(const std::string& name, const NamedModel* known) const;
  // More requests arrive than were planned for.
  [[nodiscard]] bool above_plan(const NamedModel& known) const {
    return demands_.rate_seen(known.demand) > demands_.rate_planned(known.demand);
  }
  [[nodiscard]] double rate_planned(const NamedModel& known) const {
    return demands_.rate_planned(known.demand);
  }
  // The rates, counters, latencies and outcomes.
  void add_to(ModelStatus& status, const NamedModel& known, Time now) const;

 private:
  const ModelQueues& queues_;
  const DispatchRecords& records_;
  const Demands& demands_;
  const ReportedFigures& reported_;
};

}  // namespace gpulet::serve

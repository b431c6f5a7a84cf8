// GpuletReports: what backends report of this frontend's gpulets: that they are ready, fail or end,
// and the files that they lack. Pure; one thread at a time.
#pragma once

#include <map>
#include <optional>

#include "serve/deploy/dispatch.h"
#include "serve/models/failures.h"

namespace gpulet::serve {

class GpuletReports {
 public:
  // All outlive it.
  GpuletReports(const FrontendOptions& options, Dispatch& dispatch, BackendRegistry& backends,
                ModelRegistry& models, FailureHandler& failures, Deployment& deployment,
                Journal& journal)
      : options_(options),
        dispatch_(dispatch),
        backends_(backends),
        models_(models),
        failures_(failures),
        deployment_(deployment),
        journal_(journal) {}

  // The report counts, with the state that it has. Ignores gpulets that are gone.
  void take_in(BackendId backend, const GpuletReport& message, Time now, FrontendEffects& effects);
  // The gpulet lost its process, and has not said since that it serves again.
  void process_lost(GpuletId gpulet, Time now) { lost_process_.emplace(gpulet, now); }
  // The violation that the request for a file is; empty: none.
  [[nodiscard]] std::optional<PeerBreach> on_file_request(BackendId backend,
                                                          ModelPieceRequest message,
                                                          FrontendEffects& effects);

  // Retires the gpulets that backends brought and that no plan took up in time.
  // REQUIRES (both): this frontend leads.
  void retire_unclaimed(Time now, FrontendEffects& effects);
  // Gives up gpulets that do not load in their time, and those that do not answer their batches.
  // `late`: how long this frontend stood still when it was to tick.
  void give_up_overdue(Duration late, Time now, FrontendEffects& effects);

 private:
  // The gpulet failed or ended.
  void lose(const GpuletRecord& gpulet, const GpuletReport& report, Time now,
            FrontendEffects& effects);
  void ready(const GpuletRecord& gpulet, const GpuletReport& report, Time now,
             FrontendEffects& effects);

  const FrontendOptions& options_;
  Dispatch& dispatch_;
  BackendRegistry& backends_;
  ModelRegistry& models_;
  FailureHandler& failures_;
  Deployment& deployment_;
  Journal& journal_;
  std::map<GpuletId, Time> lost_process_;
};

}  // namespace gpulet::serve

// Probes: the first batches of a gpulet whose model has no measured latency at the gpulet's size
// (serve/adapt/estimates.h). They carry no requests. Until they have ended, the gpulet counts as
// being prepared: the backend's report that it is ready is held back. A batch of one runs first,
// then the largest that the gpulet is prepared for and that ends soon enough; each repeatedly,
// without a pause, where it is short: a share of a CPU is enforced over some milliseconds only. A
// probe that fails, or a result that cannot be true, makes the gpulet fail. Pure; one thread at a
// time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/protocol/messages.h"
#include "serve/adapt/estimates.h"
#include "serve/deploy/plan_requests.h"
#include "serve/dispatch/batches_in_flight.h"

namespace gpulet::serve {

class Probes {
 public:
  // All outlive it.
  Probes(BatchNumbers& numbers, const BackendRegistry& backends, const ModelTable& models,
         Estimates& estimates, Journal& journal)
      : numbers_(numbers),
        backends_(backends),
        models_(models),
        estimates_(estimates),
        journal_(journal) {}

  // A report that must wait for probes, which begin now: returns true, and end() returns it later.
  // Of a gpulet that is being probed, the end of its process becomes the failure of the gpulet.
  // REQUIRES: the gpulet is known, and the backend's.
  [[nodiscard]] bool hold(GpuletReport& report, Time now, FrontendEffects& effects);
  // Whether the batch is a probe that has not ended.
  [[nodiscard]] bool sent(BatchId batch) const { return gpulet_of_.contains(batch); }
  // The result of a probe. Returns the report to handle now, if these were the last probes.
  // REQUIRES: sent(result.id).
  [[nodiscard]] std::optional<GpuletReport> end(BackendId backend, const BatchResult& result,
                                                Time now, FrontendEffects& effects);
  // The backend is gone.
  void forget(BackendId backend);
  // The backend tells anew what it runs. Estimates follow that, from the plans of an earlier
  // leader. REQUIRES: it has joined.
  void begin_anew(BackendId backend, const std::vector<GpuletReport>& gpulets);
  // Plans can use devices of that type: it has a profile, or models are probed.
  [[nodiscard]] bool may_know(const std::string& device_type) const {
    return estimates_.may_know(device_type);
  }

 private:
  struct Cell {
    std::string model;
    std::uint32_t batch = 0;
    std::uint32_t wanted = 1;  // batches to run
    std::uint32_t sent = 0;
    std::uint32_t ended = 0;
    std::uint32_t counted = 0;  // of those ended
    Duration executed{};        // by the counted ones
  };
  struct Probed {
    GpuletReport report;
    BackendId backend;
    EstimatedPlace place;  // of the first model that is left
    Duration probe_for{};
    std::deque<partition::RunningModel> models{};  // that are left
    Cell cell{};
    std::vector<profile::LatencySample> cells{};  // of that model, as measured
    std::map<BatchId, Time> running{};
  };

  // Chooses the next cell and sends its batches. Returns false where nothing is left.
  bool advance(Probed& probed, Time now, FrontendEffects& effects);
  // The next batch of the first model. Empty: its probes are complete.
  [[nodiscard]] std::optional<std::uint32_t> next_batch(const Probed& probed) const;
  void send(Probed& probed, Time now, FrontendEffects& effects);
  // Why the result is none of a probe that ran well; ok: it is.
  [[nodiscard]] Status fault_of(const Probed& probed, const BatchResult& result, Time sent_at,
                                Time now) const;
  [[nodiscard]] const ServedModel* served(const Probed& probed) const;
  [[nodiscard]] GpuletReport take(GpuletId gpulet);
  static void make_failed(GpuletReport& report, const std::string& model, const Status& why,
                          FailureCause cause);

  BatchNumbers& numbers_;
  const BackendRegistry& backends_;
  const ModelTable& models_;
  Estimates& estimates_;
  Journal& journal_;
  std::map<GpuletId, Probed> probed_;
  std::map<BatchId, GpuletId> gpulet_of_;
};

}  // namespace gpulet::serve

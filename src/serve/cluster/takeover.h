// Takeover: takes the backends over that join while this frontend leads (TakeLeadership), and goes
// on with the gpulets that they list (BackendState). A backend that has accepted a higher term
// executes none of its commands (node/fence.h); it then counts as taken by another frontend. Pure;
// one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "serve/plans/gpulet_adoption.h"
#include "serve/values/route_table.h"

namespace gpulet::serve {

class Takeover {
 public:
  // All outlive it.
  Takeover(const FrontendOptions& options, Dispatch& dispatch, BackendRegistry& backends,
           Deployment& deployment, GpuletAdoption& adoption, const RouteTable& routes,
           Journal& journal)
      : options_(options),
        dispatch_(dispatch),
        backends_(backends),
        deployment_(deployment),
        adoption_(adoption),
        routes_(routes),
        journal_(journal) {}

  // This frontend leads from now on, in a new term: takes all backends.
  void take_all(FrontendEffects& effects);
  // A backend joined that has accepted `highest`.
  void on_joined(BackendId backend, Term highest, FrontendEffects& effects);
  // Adopts the gpulets that the backend runs.
  void take_over(BackendId backend, const std::vector<GpuletReport>& gpulets, Time now,
                 FrontendEffects& effects) {
    adoption_.take_over(backend, gpulets, now, effects);
  }
  // The backend accepted this frontend's term and lists what runs there.
  void on_state(BackendId backend, const BackendState& state, Time now, FrontendEffects& effects);
  // The backend obeys another frontend.
  void on_superseded(BackendId backend, Term term, Time now, FrontendEffects& effects);

  // A backend did not accept this frontend's term yet.
  [[nodiscard]] bool incomplete() const;
  // As GpuletLifecycle::run_ids().
  [[nodiscard]] RunIds run_ids() const { return deployment_.gpulets().run_ids(); }
  // Commands that backends refused.
  [[nodiscard]] std::uint64_t superseded() const { return superseded_; }

 private:
  void take(BackendId backend, FrontendEffects& effects);

  const FrontendOptions& options_;
  Dispatch& dispatch_;
  BackendRegistry& backends_;
  Deployment& deployment_;
  GpuletAdoption& adoption_;
  const RouteTable& routes_;
  Journal& journal_;
  std::uint64_t superseded_ = 0;
};

}  // namespace gpulet::serve

// OwnedGpulets: the gpulets that the leader gave to this frontend, which does not lead
// (serve/cluster/ownership.h). This frontend queues the requests of their models and sends their
// batches.
//
// The leader tells the routes (SetRoutes). A route is used from the time when the gpulet's backend
// has reported this frontend as the owner: only that is safe. Routes stay while no leader changes
// them, so the loss of the leader or of the store ends nothing. Pure; one thread at a time.
#pragma once

#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/protocol/messages.h"
#include "serve/deploy/backend_registry.h"
#include "serve/dispatch/dispatcher.h"
#include "serve/dispatch/owner_figures.h"
#include "serve/models/model_table.h"
#include "serve/values/route_table.h"

namespace gpulet::serve {

class OwnedGpulets {
 public:
  // All outlive it. `member`: this frontend's name in its cluster.
  OwnedGpulets(std::string member, Dispatcher& dispatcher, const BackendRegistry& backends,
               const ModelTable& models, RouteTable& routes, OwnerFigures& figures)
      : member_(std::move(member)),
        dispatcher_(dispatcher),
        backends_(backends),
        all_models_(models),
        table_(routes),
        figures_(figures) {}

  // Requests of some model are served here.
  [[nodiscard]] bool any() const { return !in_force_.empty(); }
  [[nodiscard]] std::size_t gpulets() const { return in_force_.size(); }

  // ---- routes

  // Ignored unless `from` is the member that is known to lead. A leader tells routes only to those
  // that report to it, and these know it.
  void on_routes(const std::string& from, SetRoutes message, Time now);
  // A backend joined and listed its gpulets.
  void on_joined(BackendId backend, const std::vector<GpuletReport>& gpulets, Time now);
  void on_report(BackendId backend, const GpuletReport& report, Time now);
  // Returns the requests of its gpulets to the queues. The registry has forgotten the backend.
  void on_disconnected(BackendId backend, Time now, DispatchOutput& output);
  // Versions of models or nodes may have changed.
  void refresh(Time now);
  // This frontend leads from now on. The gpulets become the leader's.
  void hand_in();
  // The RouteTable changed since the last call.
  [[nodiscard]] bool take_changed() { return std::exchange(changed_, false); }

  // What to tell the leader now.
  [[nodiscard]] OwnerReport take_report(bool draining);

 private:
  struct Confirmed {
    BackendId backend;
    bool ready = false;  // it takes batches
  };

  void note(BackendId backend, const GpuletReport& report);
  // Empty slots where the versions are not known here (yet).
  [[nodiscard]] GpuletRoute resolve(const Route& route, BackendId backend) const;

  const std::string member_;
  Dispatcher& dispatcher_;
  const BackendRegistry& backends_;
  const ModelTable& all_models_;
  RouteTable& table_;
  OwnerFigures& figures_;
  std::string told_by_;                               // the routes
  Term term_{};                                       // of told_by_
  std::map<std::string, std::vector<Route>> routes_;  // by node
  std::map<GpuletId, Confirmed> confirmed_;  // their backends reported this frontend as the owner
  std::vector<GpuletRoute> in_force_;
  std::map<GpuletId, BackendId> served_;    // in force, or with batches in flight
  std::unordered_set<std::string> models_;  // of in_force_
  bool changed_ = false;
};

}  // namespace gpulet::serve

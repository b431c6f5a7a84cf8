// Fleet: the backends that are connected, their devices, and the gpulets that exist on them, as
// last heard. Pure; one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/schedule/cluster.h"
#include "gpulet/schedule/reconcile.h"
#include "gpulet/serve/messages.h"

namespace gpulet::serve {

struct FleetGpulet {
  BackendId backend;
  schedule::DeviceKey device;
  Share size;
  std::vector<schedule::LoadedModel> models;
  GpuletState state = GpuletState::preparing;
  Status status;
  bool retiring = false;  // told to finish and end
  PlanPart part{};        // as its backend was last told
  partition::FoundShare found{};
  std::optional<partition::MigInstance> instance{};  // on a device that is divided by MIG
};

// As reconcile() looks at it.
[[nodiscard]] schedule::RunningGpulet as_running(GpuletId id, const FleetGpulet& gpulet);

struct FleetBackend {
  std::string node;  // empty until its Hello came
  std::vector<DeviceOffer> devices;
  Time last_heard{};
  bool leaving = false;  // it takes no new gpulets
};

class Fleet {
 public:
  void heard(BackendId backend, Time now);

  // Takes in the backend with what it offers and the gpulets that run there. Fails (invalid) where
  // another backend is connected under the same node name.
  [[nodiscard]] Status join(BackendId backend, const Hello& hello, Time now);
  // A device of the backend has that fault, or (ok) none any more. Returns its key; nothing where
  // there is no such device.
  std::optional<schedule::DeviceKey> device_seen(BackendId backend, const DeviceReport& report);
  // The backend is about to stop: its devices are no longer on offer.
  void leaving(BackendId backend);
  // Forgets the backend; returns the gpulets that went with it, ascending.
  std::vector<GpuletId> leave(BackendId backend);
  // Backends from which nothing was heard since `time`.
  [[nodiscard]] std::vector<BackendId> silent_since(Time time) const;

  // A gpulet was asked for on that device. REQUIRES: the device's backend is here.
  void created(const CreateGpulet& asked, const schedule::DeviceKey& device,
               std::vector<schedule::LoadedModel> models);
  void assigned(GpuletId id, PlanPart part);
  void retiring(GpuletId id);
  // Takes in what a backend says of one. Returns false where the gpulet is unknown or another
  // backend's.
  bool report(BackendId backend, const GpuletReport& report);

  [[nodiscard]] const FleetGpulet* find(GpuletId id) const;
  // Empty and null where no connected backend offers the device.
  [[nodiscard]] std::optional<BackendId> backend_of(const schedule::DeviceKey& device) const;
  [[nodiscard]] const DeviceOffer* offer_of(const schedule::DeviceKey& device) const;
  [[nodiscard]] const std::map<BackendId, FleetBackend>& backends() const { return backends_; }
  [[nodiscard]] const std::map<GpuletId, FleetGpulet>& gpulets() const { return gpulets_; }

  // Some backend is connected and has said Hello.
  [[nodiscard]] bool has_backend() const;
  // And offers a device without a fault.
  [[nodiscard]] bool has_usable_device() const;
  // Whether new gpulets can be made on the device.
  [[nodiscard]] bool takes_gpulets(const schedule::DeviceKey& device) const;
  // All devices on offer that have no fault, by key.
  [[nodiscard]] schedule::Cluster cluster() const;
  // The gpulets that a plan may go on using: those that serve, or will again without our doing.
  [[nodiscard]] std::vector<schedule::RunningGpulet> running() const;

 private:
  struct Place {
    BackendId backend;
    std::size_t offer = 0;  // index into its devices
  };
  std::map<BackendId, FleetBackend> backends_;
  std::map<schedule::DeviceKey, Place> places_;
  std::map<GpuletId, FleetGpulet> gpulets_;
};

}  // namespace gpulet::serve

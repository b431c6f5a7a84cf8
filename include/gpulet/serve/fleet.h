// Fleet: the backends that have joined, their devices, and the gpulets that exist on them, as last
// heard. A gpulet is issued (this frontend asked for it and knows whose it is) or claimed (a
// backend brought it with its Hello: an earlier run of the frontend asked for it). Pure; one thread
// at a time.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
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
  bool issued = false;
  Time since{};  // its backend brought it, or this frontend asked for it
};

// As reconcile() looks at it.
[[nodiscard]] schedule::RunningGpulet as_running(GpuletId id, const FleetGpulet& gpulet);

struct FleetBackend {
  std::string node;
  std::vector<DeviceOffer> devices;
  Time last_heard{};
  bool leaving = false;  // it takes no new gpulets
  // By SHA-256: those of the gpulets that it was told to make over this connection, or before it by
  // this frontend.
  std::set<std::string, std::less<>> files{};
  // By number, of its devices that tell what they draw.
  std::map<std::uint32_t, DevicePower> power{};
  // Claimed with its Hello, and by another backend before it: it is told to end them.
  std::set<GpuletId> disowned{};
};

// Whether a backend may fetch a model's file.
enum class FileRight : std::uint8_t {
  none,
  claimed,  // a gpulet that it claimed is of that model
  told,     // this frontend told it to serve the model
};

class Fleet {
 public:
  // Nothing, where the backend has not joined.
  void heard(BackendId backend, Time now);

  // Takes in the backend with what it offers and the gpulets that run there, but for those that
  // another backend claimed before: returns them. REQUIRES: check_hello() has no objection.
  std::vector<GpuletId> join(BackendId backend, const Hello& hello, Time now);
  // A device of the backend has that fault, or (ok) none any more. Returns its key; nothing where
  // there is no such device.
  std::optional<schedule::DeviceKey> device_seen(BackendId backend, const DeviceReport& report);
  // What devices of the backend draw now. REQUIRES: it offers them.
  void power_told(BackendId backend, const std::vector<DevicePower>& power);
  // The backend is about to stop: its devices are no longer on offer.
  void leaving(BackendId backend);
  // Forgets the backend; returns the gpulets that went with it, ascending.
  std::vector<GpuletId> leave(BackendId backend);
  // Backends from which nothing was heard since `time`.
  [[nodiscard]] std::vector<BackendId> silent_since(Time time) const;

  // A gpulet was asked for on that device. REQUIRES: the device's backend is here.
  void created(const CreateGpulet& asked, const schedule::DeviceKey& device,
               std::vector<schedule::LoadedModel> models, Time now);
  void assigned(GpuletId id, PlanPart part);
  void retiring(GpuletId id);
  // Takes in what a backend says of one. Returns false where the gpulet is unknown or another
  // backend's.
  bool report(BackendId backend, const GpuletReport& report);

  [[nodiscard]] const FleetGpulet* find(GpuletId id) const;
  // The node that this frontend gave the gpulet to, where it still may be: also while that node is
  // away. Nothing for one that was only claimed, has ended or never was.
  [[nodiscard]] std::optional<std::string> issued_to(GpuletId id) const;
  [[nodiscard]] bool disowned(BackendId backend, GpuletId id) const;
  // Whether the backend has joined with a device of that number.
  [[nodiscard]] bool offers(BackendId backend, std::uint32_t device) const;
  [[nodiscard]] FileRight right_to_file(BackendId backend, std::string_view sha256) const;
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
  // A gpulet that was issued to a node which is away now.
  struct Absent {
    std::string node;
    std::vector<schedule::LoadedModel> models;
  };
  void tell_files(FleetBackend& backend, const std::vector<schedule::LoadedModel>& models) const;

  std::map<BackendId, FleetBackend> backends_;
  std::map<GpuletId, Absent> absent_;
  std::map<schedule::DeviceKey, Place> places_;
  std::map<GpuletId, FleetGpulet> gpulets_;
};

}  // namespace gpulet::serve

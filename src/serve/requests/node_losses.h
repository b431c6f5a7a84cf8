// NodeLosses: nodes stop, fall silent or are lost, and their devices fail and come back. Plans
// follow. Pure; one thread at a time.
#pragma once

#include "serve/requests/backend_sessions.h"

namespace gpulet::serve {

class NodeLosses {
 public:
  // All outlive it.
  NodeLosses(const FrontendOptions& options, Dispatch& dispatch, BackendRegistry& backends,
             Deployment& deployment, OwnedGpulets& owned, BackendSessions& sessions,
             Journal& journal)
      : options_(options),
        dispatch_(dispatch),
        backends_(backends),
        deployment_(deployment),
        owned_(owned),
        sessions_(sessions),
        journal_(journal) {}

  void on_draining(BackendId backend, Time now, FrontendEffects& effects);
  void on_disconnected(BackendId backend, const Status& reason, Time now, FrontendEffects& effects);
  // Gpulets on a lost device restart when it is back, unless a plan without it is made before.
  void on_device_report(BackendId backend, const DeviceReport& message, Time now,
                        FrontendEffects& effects);
  void on_heartbeat(BackendId backend, const Heartbeat& message) {
    backends_.report_power(backend, message.power);
  }
  // Disconnects silent backends and sends heartbeats to the others. `late`: how long this frontend
  // stood still when it was to tick. What backends sent meanwhile may not have been read yet.
  void tick(Time now, Duration late, FrontendEffects& effects);
  // Tells the Dispatcher whether waiting requests can hope for a device.
  void update_absence();

 private:
  const FrontendOptions& options_;
  Dispatch& dispatch_;
  BackendRegistry& backends_;
  Deployment& deployment_;
  OwnedGpulets& owned_;
  BackendSessions& sessions_;
  Journal& journal_;
};

}  // namespace gpulet::serve

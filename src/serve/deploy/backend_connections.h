// BackendConnections: the connected backends, their devices, and whose commands they execute. Pure;
// one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/serve/values/frontend_status.h"

namespace gpulet::serve {

class BackendConnections {
 public:
  // ---- backends

  [[nodiscard]] const std::map<BackendId, BackendRecord>& backends() const { return backends_; }
  // Adds the backend with its devices. REQUIRES: check_hello() returned nothing.
  void join(BackendId backend, const Hello& hello, Time now);
  // A message arrived. Ignored if the backend has not joined.
  void on_message(BackendId backend, Time now);
  // The backend is about to stop: its devices are no longer available to plans.
  void start_draining(BackendId backend);
  // This frontend heard nobody for that time: it does not count as the backends' silence.
  void excuse_silence(Duration time, Time now);
  // Every backend knows Rows.
  [[nodiscard]] bool all_take_rows() const { return without_rows_ == 0; }
  // Backends without a message since `time`.
  [[nodiscard]] std::vector<BackendId> silent_since(Time time) const;

  // ---- commands (serve/cluster/leadership.h)

  // The term of this frontend's commands; 0: it has not led yet.
  [[nodiscard]] Term term() const { return term_; }
  // That of its commands to the backend: the same, unless the backend alone needs a higher one.
  [[nodiscard]] Term term_for(BackendId backend) const;
  void set_term_for(BackendId backend, Term term);
  void set_term(Term term) { term_ = term; }
  // The backend executes this frontend's commands. Plans use the devices of such backends alone.
  [[nodiscard]] bool commanded(BackendId backend) const;
  void set_commanded(BackendId backend, bool commanded = true);
  void set_commanded_by_none();
  // The backend is being sent TakeLeadership; gpulets from `next` on are created after it.
  void set_taken_before(BackendId backend, GpuletId next);

  // ---- devices

  // Records a device's fault, or (ok) its end. Empty: the backend offers no such device.
  std::optional<schedule::DeviceKey> report_device(BackendId backend, const DeviceReport& report);
  // Records the power that its devices draw. REQUIRES: the backend offers them.
  void report_power(BackendId backend, const std::vector<DevicePower>& power);
  // Whether the backend has joined with a device of that number.
  [[nodiscard]] bool offers(BackendId backend, std::uint32_t device) const;
  // Empty and null: no connected backend offers the device.
  [[nodiscard]] std::optional<BackendId> backend_of(const schedule::DeviceKey& device) const;
  [[nodiscard]] const DeviceOffer* offer_of(const schedule::DeviceKey& device) const;
  // Some backend offers a device without a fault.
  [[nodiscard]] bool has_usable_device() const;
  // Why no model can be served. Empty: some device is usable.
  [[nodiscard]] std::string why_nothing_serves() const;
  // Whether new gpulets can be created on the device.
  [[nodiscard]] bool takes_gpulets(const schedule::DeviceKey& device) const;
  // All devices without a fault whose backends do not drain, sorted by key.
  [[nodiscard]] schedule::Cluster cluster() const;

 protected:
  // Null: it has not joined.
  [[nodiscard]] BackendRecord* record_of(BackendId backend);
  // Removes the backend with its devices. Returns its node; empty: it had not joined.
  std::optional<std::string> leave(BackendId backend);

 private:
  struct DeviceSlot {
    BackendId backend;
    std::size_t offer = 0;  // index into its devices
  };

  Term term_{};
  std::map<BackendId, BackendRecord> backends_;
  std::size_t without_rows_ = 0;  // backends of a lower level
  std::map<schedule::DeviceKey, DeviceSlot> devices_;
};

}  // namespace gpulet::serve

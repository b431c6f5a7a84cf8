// BackendRegistry: the connected backends, their devices, and the gpulets on them, as last
// reported; and the rules for their messages. A gpulet is issued (this frontend created it) or
// claimed (a backend brought it with its Hello, from an earlier run). Pure; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/schedule/reconcile.h"
#include "gpulet/serve/values/frontend_events.h"
#include "gpulet/serve/values/frontend_status.h"

namespace gpulet::serve {

class Dispatcher;

// As reconcile() takes it.
[[nodiscard]] schedule::RunningGpulet as_running(GpuletId id, const GpuletRecord& gpulet);

// Whether a backend may fetch a model's file.
enum class FileRight : std::uint8_t {
  none,
  claimed,  // only a gpulet that it claimed has the model
  granted,  // this frontend created a gpulet with the model there
};

class BackendRegistry {
 public:
  // ---- backends

  // A message arrived. Ignored if the backend has not joined.
  void on_message(BackendId backend, Time now);
  // Adds the backend with its devices. REQUIRES: check_hello() returned nothing.
  void join(BackendId backend, const Hello& hello, Time now);
  // Records a device's fault, or (ok) its end. Empty: the backend offers no such device.
  std::optional<schedule::DeviceKey> report_device(BackendId backend, const DeviceReport& report);
  // Records the power that its devices draw. REQUIRES: the backend offers them.
  void report_power(BackendId backend, const std::vector<DevicePower>& power);
  // The backend is about to stop: its devices are no longer available to plans.
  void start_draining(BackendId backend);
  // Removes the backend. Returns its gpulets, ascending.
  std::vector<GpuletId> remove(BackendId backend);
  // This frontend heard nobody for that time: it does not count as the backends' silence.
  void excuse_silence(Duration time, Time now);
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

  // ---- gpulets

  // Adds the gpulets that the backend brought and updates those that are known, except those that
  // another backend claimed before; returns these.
  std::vector<GpuletId> claim(BackendId backend, const std::vector<GpuletReport>& gpulets,
                              Time now);
  // Those of the backend, ascending.
  [[nodiscard]] std::vector<GpuletId> gpulets_of(BackendId backend) const;
  // Those of the backend that would be listed if they still ran: the ones that were created before
  // it was last taken.
  [[nodiscard]] std::vector<GpuletId> missing_in(BackendId backend,
                                                 const std::vector<GpuletReport>& listed) const;
  void forget_gpulet(GpuletId id);
  // A gpulet is created on that device. REQUIRES: the device's backend is connected.
  void add_gpulet(const CreateGpulet& command, const schedule::DeviceKey& device,
                  std::vector<schedule::RunningModel> models, Time now);
  void set_part(GpuletId id, PlanPart part);
  void set_retiring(GpuletId id);
  void set_owner(GpuletId id, std::string owner);
  // Records a backend's report. Returns false if the gpulet is unknown or another backend's.
  bool report_gpulet(BackendId backend, const GpuletReport& report);
  // Some gpulet has ended since the last forget_files().
  [[nodiscard]] bool gpulets_ended() const { return gpulets_ended_; }
  // Takes from each backend the right to files that are not among these and that no gpulet on it
  // has: those of removed models.
  void forget_files(const std::unordered_set<std::string_view>& known);

  // ---- lookups

  // Null: unknown.
  [[nodiscard]] const GpuletRecord* find(GpuletId id) const;
  // The node for which this frontend created the gpulet, even while that node is disconnected.
  // Empty for gpulets that were only claimed, have ended or never existed.
  [[nodiscard]] std::optional<std::string> issued_to(GpuletId id) const;
  [[nodiscard]] bool is_disowned(BackendId backend, GpuletId id) const;
  // Whether the backend has joined with a device of that number.
  [[nodiscard]] bool offers(BackendId backend, std::uint32_t device) const;
  [[nodiscard]] FileRight right_to_file(BackendId backend, std::string_view sha256) const;
  // Empty and null: no connected backend offers the device.
  [[nodiscard]] std::optional<BackendId> backend_of(const schedule::DeviceKey& device) const;
  [[nodiscard]] const DeviceOffer* offer_of(const schedule::DeviceKey& device) const;
  [[nodiscard]] const std::map<BackendId, BackendRecord>& backends() const { return backends_; }
  [[nodiscard]] const std::map<GpuletId, GpuletRecord>& gpulets() const { return gpulets_; }

  // Some backend offers a device without a fault.
  [[nodiscard]] bool has_usable_device() const;
  // Why no model can be served. Empty: some device is usable.
  [[nodiscard]] std::string why_nothing_serves() const;
  // Whether new gpulets can be created on the device.
  [[nodiscard]] bool takes_gpulets(const schedule::DeviceKey& device) const;
  // All devices without a fault whose backends do not drain, sorted by key.
  [[nodiscard]] schedule::Cluster cluster() const;
  // The gpulets that a plan may keep: those that serve, or will serve again by themselves.
  [[nodiscard]] std::vector<schedule::RunningGpulet> running() const;

 private:
  struct DeviceSlot {
    BackendId backend;
    std::size_t offer = 0;  // index into its devices
  };
  // An issued gpulet of a node that is disconnected.
  struct AbsentGpulet {
    std::string node;
    std::vector<schedule::RunningModel> models;
  };
  static void grant_files(BackendRecord& backend,
                          const std::vector<schedule::RunningModel>& models);

  Term term_{};
  std::map<BackendId, BackendRecord> backends_;
  std::map<GpuletId, AbsentGpulet> absent_;
  std::map<schedule::DeviceKey, DeviceSlot> devices_;
  std::map<GpuletId, GpuletRecord> gpulets_;
  bool gpulets_ended_ = false;  // since the last forget_files()
};

// ---- rules for messages
//
// A backend's session has three states:
//
//   greeting  connected; only a Hello is allowed
//   joined    its Hello was accepted; everything except a Hello is allowed
//   leaving   it is draining; as joined, and it gets no new gpulets
//
// A message must refer to what its sender owns: a result to a batch that it holds, a report to one
// of its gpulets or devices. Ids are never reused: one that nobody holds belongs to a late message,
// which is ignored; one that another backend holds, or that was never issued, is a violation.

enum class PeerState : std::uint8_t { greeting, joined, leaving };
[[nodiscard]] PeerState state_of(BackendId backend, const BackendRegistry& backends);

// The violation that the message is; empty: it is allowed. check_hello() checks the contents of a
// Hello, and BackendRegistry::right_to_file() requests for files.
[[nodiscard]] std::optional<PeerBreach> breach_of(BackendId from, const BackendMessage& message,
                                                  const BackendRegistry& backends,
                                                  const Dispatcher& dispatcher);
// The same for a batch result of which only the id is known, before its payload is received.
[[nodiscard]] std::optional<PeerBreach> breach_of_result(BackendId from, BatchId batch,
                                                         const BackendRegistry& backends,
                                                         const Dispatcher& dispatcher);

// Bounds on the contents of a Hello. The codec has the same ones.
inline constexpr std::size_t kMostHelloDevices = 1024;
inline constexpr std::size_t kMostHelloGpulets = 4096;
inline constexpr std::size_t kMostHelloModels = 1024;  // of one gpulet

// The gpulet ids of one run: those in [first, next) were issued, those in [next, end) will be.
struct RunIds {
  GpuletId first;
  GpuletId next;
  GpuletId end;
};

// Checks a Hello in itself and against what the frontend knows, in this order: the node's name; its
// devices (its own, each once, with plausible sizes, memory, cores and names); its gpulets (each
// once, on a device of the Hello, with bounded numbers, and no id that this run issued to another
// node or has not issued yet); and that no other backend has the name. A Hello is accepted or
// rejected as a whole. Returns the first violation; its message names the entry.
[[nodiscard]] std::optional<PeerBreach> check_hello(const Hello& hello,
                                                    const BackendRegistry& backends,
                                                    const RunIds& ids);

// The same for the gpulets of a BackendState. REQUIRES: the backend has joined.
[[nodiscard]] std::optional<PeerBreach> check_state(BackendId from, const BackendState& state,
                                                    const BackendRegistry& backends,
                                                    const RunIds& ids);

}  // namespace gpulet::serve

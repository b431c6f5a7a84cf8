// BackendRegistry: the connected backends with the gpulets on them, as last reported; and the rules
// for their messages. A gpulet is issued (this frontend created it) or
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
#include "serve/deploy/backend_connections.h"

namespace gpulet::serve {

class BatchesInFlight;

// As reconcile() takes it.
[[nodiscard]] schedule::RunningGpulet as_running(GpuletId id, const GpuletRecord& gpulet);

// Whether a backend may fetch a model's file.
enum class FileRight : std::uint8_t {
  none,
  claimed,  // only a gpulet that it claimed has the model
  granted,  // this frontend created a gpulet with the model there
};

class BackendRegistry : public BackendConnections {
 public:
  // Removes the backend. Returns its gpulets, ascending.
  std::vector<GpuletId> remove(BackendId backend);

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
  [[nodiscard]] FileRight right_to_file(BackendId backend, std::string_view sha256) const;
  [[nodiscard]] const std::map<GpuletId, GpuletRecord>& gpulets() const { return gpulets_; }
  // The gpulets that a plan may keep: those that serve, or will serve again by themselves.
  [[nodiscard]] std::vector<schedule::RunningGpulet> running() const;

 private:
  // An issued gpulet of a node that is disconnected.
  struct AbsentGpulet {
    std::string node;
    std::vector<schedule::RunningModel> models;
  };
  static void grant_files(BackendRecord& backend,
                          const std::vector<schedule::RunningModel>& models);

  std::map<GpuletId, AbsentGpulet> absent_;
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
                                                  const BatchesInFlight& batches);
// The same for a batch result of which only the id is known, before its payload is received.
[[nodiscard]] std::optional<PeerBreach> breach_of_result(BackendId from, BatchId batch,
                                                         const BackendRegistry& backends,
                                                         const BatchesInFlight& batches);

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

// Backoff after failures. Exclusions: nodes and devices where gpulets failed. NodeFaults: models
// whose batches fail on one node only. Quarantine: models whose processes crash. Each pause doubles
// with every failure in a row. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/failure.h"
#include "gpulet/core/ids.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/serve/values/frontend_options.h"
#include "gpulet/serve/values/frontend_status.h"

namespace gpulet::serve {

// Nodes and devices that take no new gpulets for a while. Once a gpulet becomes ready there, the
// next pause has its first length again. Gpulets that serve on an excluded device stay.
class Exclusions {
 public:
  explicit Exclusions(const ExclusionOptions& options) : options_(options) {}

  // A gpulet failed on the device. Excludes the node if is_node_cause(cause), otherwise the device.
  // `next_gpulet`: later gpulets have this id or greater. Does nothing for a gpulet that is older
  // than the current exclusion: its failure is part of the one that was counted.
  void failed(const schedule::DeviceKey& device, GpuletId gpulet, FailureCause cause, Status error,
              GpuletId next_gpulet, Time now);
  // A gpulet became ready on the device. If the pause is over, its failures are forgotten.
  void ready(const schedule::DeviceKey& device, GpuletId gpulet);
  // A model was at fault: forgets the failures of the node's devices that have no machine cause.
  void absolve(const std::string& node);

  // A backend connected. `fresh`: its process has just started, so the cause of the node's failures
  // may be gone: they are forgotten, unless the backend's last connection was short.
  void joined(const std::string& node, bool fresh, Time now);
  // It disconnected. Excludes the node after several short connections in a row.
  void left(const std::string& node, const Status& reason, Time now);

  // Whether new gpulets may be created on the device.
  [[nodiscard]] bool allows(const schedule::DeviceKey& device) const {
    return of(device) == nullptr;
  }
  // The exclusion of the device or its node. Null: there is none.
  [[nodiscard]] const Exclusion* of(const schedule::DeviceKey& device) const;
  // Sorted by node, then device; the whole node first.
  [[nodiscard]] std::vector<Exclusion> in_force() const;
  // Ends the pauses that are over. Returns the names of the nodes and devices.
  std::vector<std::string> expire(Time now);

 private:
  using Key = std::pair<std::string, std::optional<std::uint32_t>>;
  struct Entry {
    Exclusion exclusion;
    GpuletId next_gpulet;   // lower ids were created before the last failure
    bool in_force = false;  // otherwise the pause is over, and the next failure doubles it
  };
  struct Stay {
    Time joined{};
    std::uint32_t short_ones = 0;  // short connections in a row
  };
  void count(const Key& key, FailureCause cause, Status error, GpuletId next_gpulet, Time now);

  ExclusionOptions options_;
  std::map<Key, Entry> entries_;
  std::map<std::string, Stay> stays_;  // by node
};

// Models whose batches keep failing on one node, while another node could run them. Such a model
// gets no gpulets on the node for a pause, which doubles with every further failure in a row. If
// they fail on every node, the model is at fault and no node is.
class NodeFaults {
 public:
  explicit NodeFaults(const ExclusionOptions& options) : options_(options) {}

  // A batch of the model was computed there.
  void succeeded(const std::string& model, const std::string& node);
  // A batch failed there. `process`: because the process crashed or hung, of which fewer failures
  // are enough. `others`: the other nodes that could run the model. Returns whether a pause begins.
  bool failed(const std::string& model, const std::string& node, bool process,
              const std::set<std::string>& others, Time now);
  using Pair = std::pair<std::string, std::string>;  // model, node
  // Returns the pauses that end now.
  std::vector<Pair> expire(Time now);
  // The model was removed or turned out to be at fault.
  void forget(const std::string& model);
  // The pauses that have not ended.
  [[nodiscard]] const std::set<Pair>& in_force() const { return in_force_; }
  // The length of the last pause; zero: there was none.
  [[nodiscard]] Duration pause_of(const std::string& model, const std::string& node) const;

 private:
  struct Entry {
    std::uint32_t failures = 0;   // of batches in a row
    std::uint32_t processes = 0;  // of these, with a process that crashed or hung
    Time first{};                 // the time of the first of these
    std::uint32_t pauses = 0;     // in a row
    Duration pause{};             // the last one
    Time until{};                 // its end
  };
  // Whether the model's batches keep failing on the node.
  [[nodiscard]] bool fails(const std::string& model, const std::string& node) const;

  ExclusionOptions options_;
  std::map<Pair, Entry> entries_;
  std::set<Pair> in_force_;
};

// Where a process crashed.
struct CrashPlace {
  std::string node{};      // empty: unknown
  bool elsewhere = false;  // another node could run the model
};

// Models whose processes crash or hang. Such a model is a suspect: plans place it in gpulets of its
// own until it has run without a crash for `suspect_for`. A model that only hung may share a gpulet
// if there is no room for one of its own, because a slow device looks the same. `crashes` crashes
// within `window` begin a quarantine: the model is not planned, and its requests are refused. They
// do not if all were on one node and another node could run the model. A quarantine ends after its
// time or by release(). A crash within `relapse_within` of its end begins the next, twice as long.
class Quarantine {
 public:
  explicit Quarantine(const QuarantineOptions& options) : options_(options) {}

  // A process crashed while it ran batches of this model and of others.
  void suspect(const std::string& model, Time now);
  // A process hung while it ran batches of this model.
  void hung(const std::string& model, Time now);
  // A process crashed under this model alone. `how`: how_it_ended(). True: a quarantine begins.
  bool crashed(const std::string& model, std::string how, Time now, const CrashPlace& where = {});
  // Ends the model's quarantine and forgets its crashes. Returns whether it was in quarantine.
  bool release(const std::string& model);
  // The model was removed.
  void forget(const std::string& model) { models_.erase(model); }
  // Returns the models whose quarantine ends now.
  std::vector<std::string> tick(Time now);

  // Whether the model is in quarantine.
  [[nodiscard]] bool holds(std::string_view model) const;
  // Plans place the model in gpulets of its own.
  [[nodiscard]] bool suspects(std::string_view model) const;
  // The suspect may share a gpulet if it cannot be served otherwise. REQUIRES: suspects().
  [[nodiscard]] bool may_share(std::string_view model) const;
  // The time until its quarantine ends; zero: it is not in quarantine.
  [[nodiscard]] Duration left(std::string_view model, Time now) const;
  // Since the frontend's start, or since the model was forgotten.
  [[nodiscard]] std::uint64_t crashes(std::string_view model) const;
  // The reason for clients. Empty: it is not in quarantine.
  [[nodiscard]] std::string why(std::string_view model, Time now) const;

 private:
  struct Model {
    std::deque<std::pair<Time, std::string>> recent;  // crashes within the window, and their nodes
    std::uint64_t crashes = 0;
    std::uint32_t quarantines = 0;  // in a row
    Time until{};                   // of the last quarantine
    bool held = false;
    bool suspected = false;
    bool crashes_others = false;  // why it is a suspect; otherwise it only hung
    Time last_crash{};
    std::string how;  // the last crash
  };

  QuarantineOptions options_;
  std::map<std::string, Model, std::less<>> models_;
};

}  // namespace gpulet::serve

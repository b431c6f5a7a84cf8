// ModelVersions: the models by name, and the versions of each: the one in force, the one that is
// being warmed to take over, and those on their way out. Each version is a model of its own in the
// Dispatcher; this is who is who. Plain bookkeeping; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/failure.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/schedule/cluster.h"
#include "gpulet/serve/dispatcher.h"
#include "gpulet/serve/served_model.h"

namespace gpulet::serve {

struct ModelVersion {
  ModelIndex index = 0;
  std::string id;                     // version_of
  bool proven = false;                // some gpulet had it ready: a failure is not the file's
  std::set<std::string> failed_on{};  // nodes, for no known cause, since it was last ready
};

// A version that could not be loaded.
struct RefusedVersion {
  ServedModel model;
  std::string id;
  Status why;
  Time until = kNever;  // then it is tried again; kNever: when its file changes or somebody asks
};

// The last gpulet that failed with the model in it.
struct ModelFailure {
  schedule::DeviceKey device;
  FailureCause cause = FailureCause::unknown;
  Status why;
  std::string version{};
};

struct NamedModel {
  ModelVersion current;
  std::optional<ModelVersion> next;
  std::optional<RefusedVersion> refused;  // the current one, or one that was to take over
  std::size_t demand = 0;                 // index into Demands
  std::uint32_t number = 1;               // of the current one, counted since the frontend's start
  bool waking = false;                    // a request came while it slept; no gpulet is ready yet
  std::optional<ModelFailure> failure{};  // until a gpulet has that version ready
  // No device takes new gpulets, so the next version waits, or, where there is none and nothing
  // serves it, the model does.
  bool parked = false;
  bool stuck = false;

  // What gpulets should have.
  [[nodiscard]] const ModelVersion& wanted() const { return next && !parked ? *next : current; }
  [[nodiscard]] ModelVersion& wanted() { return next && !parked ? *next : current; }
  [[nodiscard]] bool current_refused() const { return refused && refused->id == current.id; }
};

struct LeavingVersion {
  std::string name;
  ModelVersion version;
  bool removed = false;  // the name went, not only the version
  bool closed = false;   // nothing of it waits any more
};

class ModelVersions {
 public:
  using ByName = std::map<std::string, NamedModel, std::less<>>;

  [[nodiscard]] NamedModel* find(std::string_view name);
  [[nodiscard]] const NamedModel* find(std::string_view name) const;
  [[nodiscard]] ByName& named() { return named_; }
  [[nodiscard]] const ByName& named() const { return named_; }
  [[nodiscard]] std::vector<LeavingVersion>& leaving() { return leaving_; }
  [[nodiscard]] const std::vector<LeavingVersion>& leaving() const { return leaving_; }

  // The index of that version of that name, wherever it stands. Nothing where it is unknown.
  [[nodiscard]] std::optional<ModelIndex> index_of(std::string_view name,
                                                   std::string_view version) const;
  // Takes it back from those that are leaving. Nothing where it is not among them.
  [[nodiscard]] std::optional<ModelVersion> take_back(std::string_view name,
                                                      std::string_view version);

 private:
  ByName named_;
  std::vector<LeavingVersion> leaving_;
};

}  // namespace gpulet::serve

// CoreControl: the cores of all executables that are controlled, once a period: what was seen of
// each model goes to the controllers of its executables, what they are given is told to backends
// where it is news. Source: ROMA, sections 3 and 4. Pure: time comes in; one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/control/node_control.h"
#include "gpulet/control/options.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/time.h"
#include "gpulet/schedule/cluster.h"
#include "gpulet/serve/frontend_status.h"
#include "gpulet/serve/responses.h"

namespace gpulet::serve {

struct ControlledExecutable {
  GpuletId id;
  std::string model;
  schedule::DeviceKey device;
  double device_cores = 0;
  std::optional<control::Plant> plant{};
};

// What was seen of a model in a period.
struct ModelReading {
  Responses::Period answered;
  double age_s = 0;  // mean, of what waits and is in flight; looked at where nothing was answered
  double objective_s = 0;
  bool spills = false;  // it has gpulets with rounds, too: only what they do not serve counts
};

class CoreControl {
 public:
  explicit CoreControl(const control::Options& options) : options_(options) {}

  // Those that have routes from now on; the first step is a period after the first of them came.
  void set(const std::vector<ControlledExecutable>& executables, Time now);
  // kNever without executables.
  [[nodiscard]] Time next_step() const { return next_step_; }
  [[nodiscard]] const std::map<GpuletId, ControlledExecutable>& executables() const {
    return executables_;
  }

  // REQUIRES: next_step() has come. `readings`: by model, of all that have executables. `alive`:
  // those that take requests.
  void step(const std::map<std::string, ModelReading>& readings,
            const std::map<GpuletId, bool>& alive, Time now);

  struct Change {
    GpuletId id;
    double cores = 0;
  };
  // What its backend was not told yet.
  [[nodiscard]] std::vector<Change> take_changes();

  [[nodiscard]] std::optional<control::Cores> cores_of(GpuletId id) const;
  // Of a model that has executables. Its counts go on where it had none for a while.
  [[nodiscard]] std::optional<ModelControlStatus> status_of(const std::string& model) const;
  [[nodiscard]] std::vector<NodeControlStatus> nodes() const;

 private:
  [[nodiscard]] double response_s(const ModelReading& reading) const;
  void count(const std::string& model, const ModelReading& reading, double period_s);

  control::Options options_;
  Time next_step_ = kNever;
  Time last_step_{};
  std::map<GpuletId, ControlledExecutable> executables_;
  std::map<schedule::DeviceKey, control::NodeControl> devices_;
  std::map<std::string, ModelControlStatus> models_;
  std::map<GpuletId, double> told_;
};

}  // namespace gpulet::serve

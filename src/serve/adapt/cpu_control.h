// CpuControl: assigns CPU cores to the model instances under control, once per period, from their
// response times (ROMA, sections 3 and 4). InstanceController: its connection with the frontend.
// Pure; one thread at a time.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/control/node_control.h"
#include "gpulet/core/ids.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/serve/values/frontend_status.h"
#include "serve/deploy/deployment.h"
#include "serve/deploy/fleet.h"
#include "serve/models/model_registry.h"
#include "serve/models/model_table.h"

namespace gpulet::serve {

struct ControlledInstance {
  GpuletId id;
  std::string model;
  schedule::DeviceKey device;
  double device_cores = 0;
  std::optional<control::Plant> plant{};
};

// The measurements of a model in a period.
struct ModelReading {
  Responses::Period answered;
  // Mean age of the requests that are queued or in flight; used in a period without responses.
  double age_s = 0;
  double objective_s = 0;
  bool spills = false;  // gpulets serve it too: only the requests beyond them count
};

class CpuControl {
 public:
  explicit CpuControl(const control::Options& options) : options_(options) {}

  // Replaces the instances. The first step is one period after the first instance came.
  void set(const std::vector<ControlledInstance>& instances, Time now);
  // kNever without instances.
  [[nodiscard]] Time next_step() const { return next_step_; }
  [[nodiscard]] const std::map<GpuletId, ControlledInstance>& instances() const {
    return instances_;
  }

  // REQUIRES: next_step() has come. `readings`: by model. `alive`: whether it accepts requests.
  void step(const std::map<std::string, ModelReading>& readings,
            const std::map<GpuletId, bool>& alive, Time now);

  struct Change {
    GpuletId id;
    double cores = 0;
  };
  // The changes to send to the backends.
  [[nodiscard]] std::vector<Change> take_changes();

  [[nodiscard]] std::optional<control::Cores> cores_of(GpuletId id) const;
  // Empty for a model without instances. Its counts survive a time without instances.
  [[nodiscard]] std::optional<ModelControlStatus> status_of(const std::string& model) const;
  [[nodiscard]] std::vector<NodeControlStatus> nodes() const;

 private:
  // Adds the period's responses to those of the window before it.
  [[nodiscard]] Responses::Period add_to_window(const std::string& model,
                                                const Responses::Period& answered);
  // `window`: the responses that count.
  [[nodiscard]] double response_s(const ModelReading& reading,
                                  const Responses::Period& window) const;
  void count(const std::string& model, const ModelReading& reading, double response_s,
             double period_s);

  control::Options options_;
  Time next_step_ = kNever;
  Time last_step_{};
  std::map<GpuletId, ControlledInstance> instances_;
  std::map<schedule::DeviceKey, control::NodeControl> devices_;
  std::map<std::string, ModelControlStatus> models_;
  std::map<std::string, std::deque<Responses::Period>> windows_;  // by model, the last one in front
  std::map<GpuletId, double> sent_;
};

// Connects CpuControl with the frontend: passes it the instances with controlled cores and, once a
// period, the readings of their models, and sends the resulting numbers of cores to the backends.
class InstanceController {
 public:
  // All outlive it.
  InstanceController(CpuControl& control, InstanceDispatch& dispatch, const Fleet& fleet,
                     const ModelTable& models, const Deployment& deployment)
      : control_(control),
        dispatch_(dispatch),
        fleet_(fleet),
        models_(models),
        deployment_(deployment) {}

  // The routes changed: controls the instances that serve now.
  void follow_routes(Time now, FrontendEffects& effects);
  // One control step, if it is due.
  void step_if_due(Time now, FrontendEffects& effects);
  [[nodiscard]] Time next_step() const { return control_.next_step(); }

 private:
  void send_changes(FrontendEffects& effects);
  // Tells the dispatcher how long a request takes on the instance's cores.
  void expect(const ControlledInstance& instance, double cores);

  CpuControl& control_;
  InstanceDispatch& dispatch_;
  const Fleet& fleet_;
  const ModelTable& models_;
  const Deployment& deployment_;
};

}  // namespace gpulet::serve

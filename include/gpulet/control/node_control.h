// NodeControl: divides the CPU cores of one node among its instances of models, once a control
// period. Implements all rules of CoreRule. Source: ROMA, sections 3 to 5. Pure: time is an
// argument; one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/control/options.h"
#include "gpulet/control/plant.h"
#include "gpulet/core/ids.h"

namespace gpulet::control {

struct CoreBounds {
  double least = 0.1;
  double most = 1;
};

// The cores that one instance requests: a PI controller in velocity form,
// u(t) = u'(t-1) + K (e(t) - a e(t-1)), where u' is the granted number of cores. So bounds and
// contention cause no integrator windup. Source: ROMA, section 4.
class PiController {
 public:
  // REQUIRES: 0 < least <= most.
  PiController(PiGains gains, CoreBounds bounds, double cores);

  // Call it once a period. `error_s`: response time minus set point. Returns the requested cores,
  // within the bounds.
  [[nodiscard]] double request(double error_s);
  // Reports the cores that were granted, which may differ from the request.
  void set_granted(double cores) { cores_ = cores; }

  [[nodiscard]] double cores() const { return cores_; }

 private:
  [[nodiscard]] double gain_cores_per_s() const;

  PiGains gains_;
  CoreBounds bounds_;
  double cores_;
  double last_error_s_ = 0;
};

struct Granted {
  std::vector<double> cores;  // indexed like the requests
  double contention = 0;  // eta: available / requested; above 1 without contention; 0: no request
};

// Divides the available cores (ROMA, algorithm 2). `requested`: cores, each above 0. `available`:
// the node's cores without those reserved for GPUs, above 0. `surplus`: gamma, 0..1.
[[nodiscard]] Granted grant(const std::vector<double>& requested, double available, double surplus);

// A model's process on CPU cores (ROMA: executable).
struct Instance {
  GpuletId id;
  // The plant of its model on this type of device, for choose_gains(). Without it, or without gains
  // for it: plant_of_queue().
  std::optional<Plant> plant;
};

// The measurements of an instance's model.
struct Reading {
  // Over the last window (Options::window). 0: no request was queued or completed.
  double response_s = 0;
  double objective_s = 0;  // the SLA; above 0
  // Accepts requests. An instance that does not, for example during a restart, requests and gets no
  // cores, and keeps its state until it is back.
  bool alive = true;
};

struct Cores {
  double requested = 0;
  double granted = 0;

  friend bool operator==(const Cores&, const Cores&) = default;
};

class NodeControl {
 public:
  // `cores`: all cores of the node's CPU device; above 0.
  NodeControl(const Options& options, double cores);

  // Sets the controlled instances; known ones keep their state. New ones begin with an equal part
  // of the available cores, or of one core under CoreRule::least. Until the next step the sum may
  // exceed the available cores.
  void control(const std::vector<Instance>& instances);

  // Call it once a period (Options::period) with the readings of all instances; an instance without
  // a reading is not alive. Each instance requests at least Options::least_cores, but may be
  // granted less under contention. REQUIRES: time does not go back.
  void step(const std::map<GpuletId, Reading>& readings, Time now);

  // The result of the last step, or the initial cores.
  [[nodiscard]] const std::map<GpuletId, Cores>& cores() const { return cores_; }
  [[nodiscard]] double node_cores() const { return node_cores_; }
  [[nodiscard]] double contention() const { return contention_; }  // Granted::contention

 private:
  struct Controlled {
    PiController controller;
    // For CoreRule::steps, since its last decision: the sum of the response times, and the number
    // of periods that had one.
    double response_s = 0;
    unsigned responses = 0;
  };

  [[nodiscard]] double available() const;
  [[nodiscard]] CoreBounds bounds() const;
  [[nodiscard]] double equal_part(std::size_t instances) const;
  [[nodiscard]] double request(Controlled& instance, const Reading& reading, bool steps_due) const;
  [[nodiscard]] double request_in_steps(Controlled& instance, const Reading& reading,
                                        bool due) const;
  [[nodiscard]] bool steps_due(Time now);

  Options options_;
  double node_cores_;
  double contention_ = 0;
  std::map<GpuletId, Controlled> controlled_;
  std::map<GpuletId, Cores> cores_;
  std::optional<Time> steps_at_;  // next decision of CoreRule::steps
};

}  // namespace gpulet::control

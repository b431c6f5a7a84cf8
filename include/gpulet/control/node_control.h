// NodeControl: the controllers of all CPU executables of one node and their supervisor, as one
// value that is asked once a period. Holds all the rules that there are for cores (CoreRule). Pure:
// the time comes in; one thread at a time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/control/options.h"
#include "gpulet/control/pi_controller.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/time.h"

namespace gpulet::control {

struct Executable {
  GpuletId id;
  std::optional<Plant> plant;  // of its model on this type of device; empty: PiGains' defaults
};

// What was seen of an executable's model in the period that is over.
struct Reading {
  double response_s = 0;   // 0: nothing waited and nothing was answered
  double objective_s = 0;  // the SLA; above 0
  // It takes requests. One that does not (its process is being restarted) asks for nothing, keeps
  // its state, and is given its cores once it is back.
  bool alive = true;
};

struct Cores {
  double asked = 0;
  double given = 0;

  friend bool operator==(const Cores&, const Cores&) = default;
};

class NodeControl {
 public:
  // `cores`: the node's, all that its CPU device has; above 0.
  NodeControl(const Options& options, double cores);

  // Who is controlled from now on; whoever was before keeps its state. New ones begin with equal
  // parts of what is available, or the least where the rule is the least.
  void control(const std::vector<Executable>& executables);

  // Once a period (Options::period), for every executable that is controlled; one without a reading
  // counts as not alive. REQUIRES: time does not go back.
  void step(const std::map<GpuletId, Reading>& readings, Time now);

  // By the last step, or as they began.
  [[nodiscard]] const std::map<GpuletId, Cores>& cores() const { return cores_; }
  [[nodiscard]] double node_cores() const { return node_cores_; }
  [[nodiscard]] double contention() const { return contention_; }  // Granted::contention

 private:
  [[nodiscard]] double available() const;
  [[nodiscard]] double ask(GpuletId id, const Reading& reading, bool steps_due);

  Options options_;
  double node_cores_;
  double contention_ = 0;
  std::map<GpuletId, PiController> controllers_;
  std::map<GpuletId, Cores> cores_;
  std::optional<Time> steps_at_;  // when CoreRule::steps looks next
};

}  // namespace gpulet::control

// NodeControl: the controllers of all CPU executables of one node and their supervisor, as one
// value that is asked once a period. Holds all the rules that there are for cores (CoreRule). Pure:
// the time comes in; one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "gpulet/control/options.h"
#include "gpulet/control/pi_controller.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/time.h"

namespace gpulet::control {

struct Executable {
  GpuletId id;
  // Of its model on this type of device, for choose_gains(). Empty, or none can be chosen for it:
  // plant_of_queue().
  std::optional<Plant> plant;
};

// What was seen of an executable's model in the period that is over.
struct Reading {
  double response_s = 0;   // 0: nothing waited and nothing was answered
  double objective_s = 0;  // the SLA; above 0
  // It takes requests. One that does not (its process is being restarted) asks for nothing and is
  // given nothing, keeps its state, and goes on from there once it is back.
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
  // parts of what is available, or of one core where the rule is the least. With what the others
  // have that may be more than there is, until the next step.
  void control(const std::vector<Executable>& executables);

  // Once a period (Options::period), for every executable that is controlled; one without a reading
  // counts as not alive. Everyone asks for Options::least_cores at least; where all together ask
  // for more than there is, they are given less than that too. REQUIRES: time does not go back.
  void step(const std::map<GpuletId, Reading>& readings, Time now);

  // By the last step, or as they began.
  [[nodiscard]] const std::map<GpuletId, Cores>& cores() const { return cores_; }
  [[nodiscard]] double node_cores() const { return node_cores_; }
  [[nodiscard]] double contention() const { return contention_; }  // Granted::contention

 private:
  struct Controlled {
    PiController controller;
    // Since CoreRule::steps looked: the periods in which there was a response time, and their sum.
    double response_s = 0;
    unsigned responses = 0;
  };

  [[nodiscard]] double available() const;  // for all executables
  [[nodiscard]] CoreBounds bounds() const;
  [[nodiscard]] double equal_part(std::size_t executables) const;
  [[nodiscard]] double ask(Controlled& executable, const Reading& reading, bool steps_due) const;
  [[nodiscard]] double ask_in_steps(Controlled& executable, const Reading& reading, bool due) const;
  [[nodiscard]] static double step_of(Controlled& executable, double objective_s);
  [[nodiscard]] bool steps_due(Time now);

  Options options_;
  double node_cores_;
  double contention_ = 0;
  std::map<GpuletId, Controlled> controlled_;
  std::map<GpuletId, Cores> cores_;
  std::optional<Time> steps_at_;  // when CoreRule::steps looks next
};

}  // namespace gpulet::control

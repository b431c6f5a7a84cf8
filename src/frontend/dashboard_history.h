// DashboardHistory: the last ten minutes of every model, a sample a second, and the reorganisations
// in that time, for pages that are opened later. Bounded: 12 KB a model, 22 KB one whose cores are
// controlled. Pure: status and time come in as arguments. One thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "gpulet/core/bytes.h"
#include "gpulet/core/time.h"
#include "gpulet/observe/trace.h"
#include "gpulet/serve/frontend_core.h"

namespace gpulet::frontend {

// One second of one model. NaN: not known, because it is the model's first.
struct ModelSample {
  float offered = 0;     // requests a second
  float served = 0;      // answers a second, late ones among them
  float violations = 0;  // a second: late, dropped, failed
  float p50_ms = 0;      // of the last ten to twenty seconds
  float p99_ms = 0;
};

// Its last control period, where its executables are controlled. NaN: nothing was answered.
struct ControlSample {
  float response_ms = 0;
  float gpu_part = 0;  // 0..1
  float cores_asked = 0;
  float cores_given = 0;
};
[[nodiscard]] ControlSample control_sample(const serve::ModelControlStatus& control);

class DashboardHistory {
 public:
  static constexpr std::size_t kSamples = 600;

  // Takes in what is going on now. REQUIRES: now is later than in the call before.
  void add(const serve::FrontendStatus& status, Time now);

  // The last sample of the model; all NaN where there is none.
  [[nodiscard]] ModelSample last(const std::string& model) const;
  [[nodiscard]] std::size_t samples() const;
  // The decisions of the last ten minutes that moved gpulets, the oldest first.
  [[nodiscard]] const std::deque<serve::PlanInForce>& reorganisations() const {
    return reorganisations_;
  }

  // All of it, for machines (docs/dashboard.md): a length of four bytes, that many bytes of JSON
  // with the models' names, the times of the samples (seconds since 1970, doubles), then for each
  // model one array of floats for each field of ModelSample. Where models are controlled the JSON
  // names them as well, and an array for each field of ControlSample of each follows. Little
  // endian; oldest sample first; NaN where the model was not there, or not controlled, yet.
  [[nodiscard]] Bytes document(const observe::WallClock& wall) const;

 private:
  using Ring = std::array<float, kSamples>;  // slot: sample % kSamples
  static constexpr std::size_t kSeries = 5;
  static constexpr std::size_t kControlSeries = 4;
  struct Model {
    serve::ModelCounters counters;  // at the last sample
    std::uint64_t seen = 0;         // the sample of the last status with it
    std::array<Ring, kSeries> series{};
    std::vector<Ring> control;  // empty: it never was
  };

  [[nodiscard]] static ModelSample sample_of(const serve::ModelStatus& now,
                                             const serve::ModelCounters& before, double seconds);
  Model& known(const std::string& name);
  static void note_control(Model& model, const serve::ModelStatus& status, std::size_t slot);
  void note_reorganisations(const serve::FrontendStatus& status, Time now);

  std::map<std::string, Model> models_;
  std::array<Time, kSamples> times_{};
  std::uint64_t count_ = 0;  // samples ever taken
  std::deque<serve::PlanInForce> reorganisations_;
};

}  // namespace gpulet::frontend

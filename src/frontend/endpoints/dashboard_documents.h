// The data of the dashboard: the samples of the last ten minutes, and the JSON documents that its
// pages receive, on one line each (docs/dashboard.md). Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "frontend/observe/status_json.h"
#include "gpulet/base/bytes.h"
#include "gpulet/base/time.h"
#include "gpulet/observe/trace.h"
#include "gpulet/serve/values/frontend_status.h"

namespace gpulet::frontend {

// One second of a model. NaN: unknown, because it is the first sample of the model.
struct ModelSample {
  float offered = 0;     // requests per second
  float served = 0;      // results per second, late ones included
  float violations = 0;  // late, dropped and failed requests per second
  float p50_ms = 0;      // over the last ten to twenty seconds
  float p99_ms = 0;
};

// The last control period of a controlled model. NaN: no request was answered.
struct ControlSample {
  float response_ms = 0;
  float gpu_part = 0;  // 0..1
  float cores_requested = 0;
  float cores_granted = 0;
};
[[nodiscard]] ControlSample control_sample(const serve::ModelControlStatus& control);

// One sample per second of every model, and the reorganisations, over the last ten minutes. Takes
// 12 KB for each model, and 22 KB for each controlled model. One thread at a time.
class DashboardHistory {
 public:
  static constexpr std::size_t kSamples = 600;

  // REQUIRES: `now` increases from call to call.
  void add(const serve::FrontendStatus& status, Time now);

  // The last sample of the model; all NaN if there is none.
  [[nodiscard]] ModelSample last(const std::string& model) const;
  [[nodiscard]] std::size_t samples() const;
  // The decisions that moved gpulets, oldest first.
  [[nodiscard]] const std::deque<serve::PlanInForce>& reorganisations() const {
    return reorganisations_;
  }

  // All samples in binary form (docs/dashboard.md), little endian, oldest sample first:
  //   - the length of the JSON text, 4 bytes
  //   - JSON text: names of models and series, padded so that the times are aligned
  //   - the time of each sample in seconds since 1970, doubles
  //   - for each model, one array of floats for each field of ModelSample
  //   - for each controlled model, one array of floats for each field of ControlSample
  // NaN: the model did not exist, or was not controlled, at that time.
  [[nodiscard]] Bytes document(const observe::WallClock& wall) const;

 private:
  using Ring = std::array<float, kSamples>;  // index: sample % kSamples
  static constexpr std::size_t kSeries = 5;
  static constexpr std::size_t kControlSeries = 4;
  struct ModelHistory {
    serve::ModelCounters counters;  // at the last sample
    std::uint64_t seen = 0;         // number of the last sample that contains the model
    std::array<Ring, kSeries> series{};
    std::vector<Ring> control;  // empty: never controlled
  };

  [[nodiscard]] static ModelSample sample_of(const serve::ModelStatus& now,
                                             const serve::ModelCounters& before, double seconds);
  ModelHistory& history_of(const std::string& name);
  static void add_control(ModelHistory& model, const serve::ModelStatus& status, std::size_t slot);
  void add_reorganisations(const serve::FrontendStatus& status, Time now);

  std::map<std::string, ModelHistory> models_;
  std::array<Time, kSamples> times_{};
  std::uint64_t count_ = 0;  // samples ever taken
  std::deque<serve::PlanInForce> reorganisations_;
};

// The documents are pure functions; any thread.

// What changes with a plan. The other documents name models and gpulets by their position in it.
[[nodiscard]] std::string layout_document(const serve::FrontendStatus& status);

// The current problems, gravest first (problems_of).
[[nodiscard]] std::string problems_document(const serve::FrontendStatus& status,
                                            const StatusContext& context = {});

// The last events, oldest first, and the reorganisations of the history.
[[nodiscard]] std::string events_document(const serve::FrontendStatus& status,
                                          const DashboardHistory& history,
                                          const observe::WallClock& wall);

// The gpulets of a decision with their reasons. Empty if status and history lack the decision.
[[nodiscard]] std::string plan_document(const serve::FrontendStatus& status,
                                        const DashboardHistory& history, std::uint64_t number);

struct TickContext {
  observe::WallClock wall;  // time of the last sample
  Duration uptime{};
  std::size_t clients = 0;
};
// The figures of the last second.
[[nodiscard]] std::string tick_document(const serve::FrontendStatus& status,
                                        const DashboardHistory& history,
                                        const TickContext& context);

}  // namespace gpulet::frontend

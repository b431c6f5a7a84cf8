// A PlanInput laid out for policies: models, device classes and sizes as indices, and per (model,
// class, size) the latency of every batch that could ever be part of a round, in one flat array.
// Built once per plan() call, so that no inner loop looks up a string or searches a table.
// Immutable once built; it refers to the PlanInput it came from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpulet/profile/profile.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::schedule {

// Rates are compared with this relative slack: what is left of a demand below it is rounding, not
// load. Far below check()'s tolerance.
inline constexpr double kRoundingSlack = 1e-9;

// One model on one size of one device class.
//
// Latencies never fall as the batch grows: where the measured ones do (noise), the smaller batch's
// counts on, because a round may always bring less than a full batch. That makes the mathematics of
// round.h exact, and what a plan states (the measured latency) at most what was reckoned with.
//
// Batches are kept up to the first that takes more than half the SLO: in every round, shared or
// not, the duty cycle is at least the batch's own latency, and both together must be within the
// SLO.
struct Row {
  const double* latency_ms = nullptr;  // [batch - 1], margin included
  std::uint32_t largest = 0;           // 0: no batch meets the SLO at this size
  double most_rate = 0;                // requests per second of the model alone (saturating)
  double least_ms = 0;  // gpulet time per request at its best batch: no round can do with less
};

// Devices that are alike for planning.
struct DeviceClass {
  const Device* example = nullptr;
  const profile::Profile* profile = nullptr;
  std::vector<int> sizes;              // percent, ascending
  std::vector<std::uint32_t> devices;  // indices into Problem::devices, ascending
};

// What a class knows of a model, beside its rows.
struct ModelOnClass {
  const profile::ModelProfile* profile = nullptr;  // null: not measured there
  double memory_mb = 0;                            // 0: unknown
  std::uint32_t best_size = 0;                     // index of the size with the highest most_rate
};

class Problem {
 public:
  // REQUIRES: validate(input) is ok; `input` outlives the Problem.
  explicit Problem(const PlanInput& input);

  // The rows point into the Problem itself.
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  [[nodiscard]] const PlanInput& input() const { return *input_; }
  // By name; demands without a rate are left out.
  [[nodiscard]] const std::vector<const ModelDemand*>& models() const { return models_; }
  [[nodiscard]] const std::vector<DeviceClass>& classes() const { return classes_; }
  // By key.
  [[nodiscard]] const std::vector<const Device*>& devices() const { return devices_; }
  // How many devices a plan may use.
  [[nodiscard]] std::size_t device_budget() const { return device_budget_; }

  [[nodiscard]] const Row& row(std::size_t model, std::size_t device_class,
                               std::size_t size) const {
    return rows_[first_row_[device_class] + model * classes_[device_class].sizes.size() + size];
  }
  [[nodiscard]] const ModelOnClass& on_class(std::size_t model, std::size_t device_class) const {
    return on_class_[device_class * models_.size() + model];
  }

 private:
  void sort_devices_into_classes();
  void add_rows(std::size_t device_class);
  void add_row(const ModelDemand& demand, const profile::LatencyTable& table,
               const std::vector<std::uint32_t>& knots, Share size);

  const PlanInput* input_;
  std::vector<const ModelDemand*> models_;
  std::vector<const Device*> devices_;
  std::vector<DeviceClass> classes_;
  std::size_t device_budget_ = 0;
  std::vector<std::size_t> first_row_;  // beside classes_
  std::vector<Row> rows_;
  std::vector<ModelOnClass> on_class_;
  std::vector<double> latencies_ms_;  // what the rows point into
};

}  // namespace gpulet::schedule

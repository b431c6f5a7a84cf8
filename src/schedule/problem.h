// A PlanInput laid out for policies: models, device classes and sizes as indices, and per (model,
// class, size) the latency of every batch that could ever be part of a round, in one flat array.
// Built once per plan() call, so that no inner loop looks up a string or searches a table. Where
// gpulets slow each other down there are further rows, each for one set of neighbours, made when
// they are first asked for (rows_beside.h). It refers to the PlanInput it came from. One thread at
// a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gpulet/profile/profile.h"
#include "gpulet/schedule/policy.h"
#include "schedule/row.h"
#include "schedule/rows_beside.h"

namespace gpulet::schedule {

// Which devices of the cluster are looked at: those of which gpulets get any share, or those that
// are divided by MIG, for which there are policies of their own.
enum class Division : std::uint8_t { by_share, by_mig, either };

// Devices that are alike for planning.
struct DeviceClass {
  const Device* example = nullptr;
  const profile::Profile* profile = nullptr;
  const profile::InterferenceModel* interference = nullptr;  // null: every slowdown is 1
  std::vector<int> sizes;                                    // percent, ascending
  std::vector<std::uint32_t> devices;  // indices into Problem::devices, ascending
  // Of devices that are divided by MIG: for every kind of maximal layout how many instances of each
  // size it has. Whatever is at most one of them is legal. Empty: any sizes that add up.
  std::vector<std::vector<std::uint32_t>> divisions;
  // The memory of a gpulet, beside sizes; infinite where only the device's counts.
  std::vector<double> gpulet_mb;
};

// What a class knows of a model, beside its rows.
struct ModelOnClass {
  const profile::ModelProfile* profile = nullptr;  // null: not measured there
  double memory_mb = 0;                            // for all its processes in a gpulet; 0: unknown
  std::uint32_t best_size = 0;                     // index of the size with the highest most_rate
  // The batches at which its latency may change its slope: between two of them it is linear.
  std::vector<std::uint32_t> measured;
};

class Problem {
 public:
  // REQUIRES: validate(input) is ok; `input` outlives the Problem.
  explicit Problem(const PlanInput& input, Division division = Division::by_share);

  // The rows point into the Problem itself.
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  [[nodiscard]] const PlanInput& input() const { return *input_; }
  // By name; demands without a rate are left out.
  [[nodiscard]] const std::vector<const ModelDemand*>& models() const { return models_; }
  [[nodiscard]] const std::vector<DeviceClass>& classes() const { return classes_; }
  // By key; without those that are divided otherwise.
  [[nodiscard]] const std::vector<const Device*>& devices() const { return devices_; }
  // How many devices a plan may use.
  [[nodiscard]] std::size_t device_budget() const { return device_budget_; }

  // Alone on the device.
  [[nodiscard]] const Row& row(std::size_t model, std::size_t device_class,
                               std::size_t size) const {
    return rows_[first_row_[device_class] + model * classes_[device_class].sizes.size() + size];
  }
  // Whether gpulets of such a device slow each other down.
  [[nodiscard]] bool interferes(std::size_t device_class) const {
    return classes_[device_class].interference != nullptr;
  }
  // Beside the gpulets that are given, which share its device with it. Stays where it is for as
  // long as the Problem lives.
  [[nodiscard]] const Row& row_beside(std::size_t model, std::size_t device_class, std::size_t size,
                                      std::span<const Neighbour> neighbours);
  // How often it was asked for one: what work is counted in where gpulets slow each other down.
  [[nodiscard]] std::uint64_t rows_asked() const { return rows_asked_; }
  [[nodiscard]] const ModelOnClass& on_class(std::size_t model, std::size_t device_class) const {
    return on_class_[device_class * models_.size() + model];
  }

 private:
  void sort_devices_into_classes(Division division);
  void add_rows(std::size_t device_class);
  void add_row(const ModelDemand& demand, const profile::LatencyTable& table,
               const std::vector<std::uint32_t>& knots, Share size);
  void finish_rows();

  const PlanInput* input_;
  std::vector<const ModelDemand*> models_;
  std::vector<const Device*> devices_;
  std::vector<DeviceClass> classes_;
  std::size_t device_budget_ = 0;
  std::vector<std::size_t> first_row_;  // beside classes_
  std::vector<Row> rows_;
  std::vector<ModelOnClass> on_class_;
  std::vector<double> latencies_ms_;  // what the rows point into
  RowsBeside rows_beside_;
  std::uint64_t rows_asked_ = 0;
};

}  // namespace gpulet::schedule

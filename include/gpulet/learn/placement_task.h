// What a learned placement is about: the devices that it places models on, in which shares, and the
// models with their objectives. A policy is trained for one task and fits no other (InSS, section
// 5.2). Plain values; pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/schedule/policy.h"

namespace gpulet::learn {

struct TaskModel {
  std::string name;
  double slo_ms = 0;
  std::uint32_t max_batch = 0;
  double highest_rate = 0;  // requests per second: what the policy sees as 1

  friend bool operator==(const TaskModel&, const TaskModel&) = default;
};

struct PlacementTask {
  std::vector<schedule::Device> devices;  // by key
  // In the order in which they are placed: those that keep a device busiest first.
  std::vector<TaskModel> models;

  // How many numbers a policy sees: the used memory of each device, the rate and the queue of each
  // model.
  [[nodiscard]] std::size_t observation_size() const { return devices.size() + 2 * models.size(); }
  // What may be done with one model: leave it out, or give it one of the sizes of one device.
  [[nodiscard]] std::uint32_t places() const;

  friend bool operator==(const PlacementTask&, const PlacementTask&) = default;
};

// Milliseconds that a device as a whole is busy with one request of the model, on the type where
// it is the least; 0 where no device's profile knows the model.
[[nodiscard]] double least_work_ms(const schedule::PlanInput& input, const std::string& model);

// The task of the input's cluster and demands, whose rates are the highest that it will see. Fails
// (invalid) without devices, on a device that MIG divides, and on a model that no device's profile
// knows or whose rate is 0.
[[nodiscard]] Result<PlacementTask> task_of(const schedule::PlanInput& input);

// Whether the input is of this task, perhaps with devices missing and models that are not asked
// for. Otherwise (invalid) the reason: a device or model that the task lacks or knows otherwise.
[[nodiscard]] Status fits(const PlacementTask& task, const schedule::PlanInput& input);

}  // namespace gpulet::learn

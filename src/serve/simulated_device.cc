#include "gpulet/serve/simulated_device.h"

#include <utility>

#include "gpulet/profile/interference.h"

namespace gpulet::serve {

SimulatedDevice::SimulatedDevice(std::string type,
                                 std::shared_ptr<const profile::ProfileSet> profiles)
    : type_(std::move(type)), profiles_(std::move(profiles)) {}

const profile::Profile* SimulatedDevice::profile() const {
  if (profiles_ == nullptr) return nullptr;
  const auto found = profiles_->find(type_);
  return found == profiles_->end() ? nullptr : &found->second;
}

Status SimulatedDevice::can_run(const std::string& model, std::uint32_t count, Share size) const {
  const auto* measured = profile();
  if (measured == nullptr) {
    return {StatusCode::invalid,
            "a simulated device of type '" + type_ +
                "' needs the profile of that name; name its directory in \"profiles\""};
  }
  const auto* of_model = measured->find(model);
  if (of_model == nullptr) {
    return {StatusCode::invalid, "profile '" + type_ + "' lacks the model '" + model + "'"};
  }
  if (!of_model->latency.latency_ms(count, size)) {
    return {StatusCode::invalid, "profile '" + type_ + "' has no latency of '" + model +
                                     "' for a batch of " + std::to_string(count) + " at " +
                                     std::to_string(size.percent) +
                                     " %; the largest batch measured there is " +
                                     std::to_string(of_model->latency.largest_batch(size))};
  }
  return {};
}

Result<Duration> SimulatedDevice::latency(const SimulatedBatch& batch,
                                          const std::vector<SimulatedBatch>& beside) {
  auto possible = can_run(batch.model, batch.count, batch.size);
  if (!possible.ok()) return possible;
  const auto alone = profile()->find(batch.model)->latency.latency_ms(batch.count, batch.size);
  double factor = 1;
  for (const auto& other : beside) factor += slowdown(batch, other) - 1;
  return from_ms(alone.value_or(0) * factor);
}

double SimulatedDevice::slowdown(const SimulatedBatch& batch, const SimulatedBatch& other) {
  const auto [entry, added] = slowdowns_.try_emplace({batch, other}, 1.0);
  if (added) {
    entry->second = profile::measured_slowdown(*profile(), {batch.model, batch.count, batch.size},
                                               {other.model, other.count, other.size});
  }
  return entry->second;
}

}  // namespace gpulet::serve

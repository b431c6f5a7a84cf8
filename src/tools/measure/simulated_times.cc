#include "tools/measure/simulated_times.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "gpulet/profile/store.h"

namespace gpulet::tools {

Result<std::shared_ptr<const SimulatedTimes>> SimulatedTimes::read(
    const std::filesystem::path& profile) {
  auto read = profile::read_profile(profile);
  if (!read.ok()) return read.status();
  return std::shared_ptr<const SimulatedTimes>(
      std::make_shared<SimulatedTimes>(std::move(read).value()));
}

SimulatedTimes::SimulatedTimes(profile::Profile profile) : profile_(std::move(profile)) {
  auto model = profile::InterferenceModel::create(profile_, profile::InterferenceKind::combined);
  if (model.ok()) interference_ = std::move(model).value();
}

Result<Duration> SimulatedTimes::alone(const profile::CoRunner& batch) const {
  const profile::ModelProfile* const model = profile_.find(batch.model);
  const auto ms =
      model == nullptr ? std::nullopt : model->latency.latency_ms(batch.batch, batch.share);
  if (ms) return from_ms(*ms);
  return Status(StatusCode::not_found,
                fmt::format("the simulated device has no latency of {} x{} at {} %; choose models, "
                            "batches and sizes of its profile",
                            batch.model, batch.batch, batch.share.percent));
}

Result<Duration> SimulatedTimes::beside(const profile::CoRunner& batch,
                                        const profile::CoRunner& other) const {
  const auto solo = alone(batch);
  if (!solo.ok() || !interference_) return solo;
  const double slowdown =
      interference_->slowdown(interference_->traits(batch.model, batch.batch, batch.share),
                              interference_->traits(other.model, other.batch, other.share));
  return std::chrono::duration_cast<Duration>(slowdown * solo.value());
}

}  // namespace gpulet::tools

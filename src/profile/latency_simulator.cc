#include "gpulet/profile/latency_simulator.h"

#include <utility>

namespace gpulet::profile {

LatencySimulator::LatencySimulator(std::string type, std::shared_ptr<const ProfileSet> profiles,
                                   std::shared_ptr<const InterferenceSet> interference)
    : type_(std::move(type)),
      profiles_(std::move(profiles)),
      interference_set_(std::move(interference)) {
  if (profiles_ == nullptr) return;
  const auto found = profiles_->find(type_);
  if (found == profiles_->end()) return;
  profile_ = &found->second;
  if (interference_set_ == nullptr) {
    InterferenceSet own;
    Result<InterferenceModel> model =
        InterferenceModel::create(*profile_, InterferenceKind::combined);
    if (model.ok()) own.emplace(type_, std::move(model).value());
    interference_set_ = std::make_shared<const InterferenceSet>(std::move(own));
  }
  const auto model = interference_set_->find(type_);
  if (model != interference_set_->end()) interference_ = &model->second;
}

void LatencySimulator::vary(std::optional<double> cv, std::uint64_t seed) {
  varies_ = true;
  cv_ = cv;
  random_ = Random(seed);
  known_.clear();
}

Result<const ModelProfile*> LatencySimulator::profile_of(const std::string& model) const {
  if (profile_ == nullptr) {
    return Status(StatusCode::invalid,
                  "a simulated device of type '" + type_ +
                      "' needs a profile of that name; set \"profiles\" to its directory");
  }
  const auto* of_model = profile_->find(model);
  if (of_model != nullptr) return of_model;
  return Status(StatusCode::invalid, "the profile '" + type_ + "' lacks the model '" + model +
                                         "'; measure it with gpulet profile run");
}

Status LatencySimulator::can_run(const std::string& model, std::uint32_t count, Share size) const {
  GPULET_TRY(const auto found, profile_of(model));
  const ModelProfile* of_model = found;
  if (!of_model->latency.latency_ms(count, size)) {
    return {StatusCode::invalid, "the profile '" + type_ + "' has no latency of '" + model +
                                     "' for a batch of " + std::to_string(count) + " at " +
                                     std::to_string(size.percent) +
                                     " %; the largest batch measured there is " +
                                     std::to_string(of_model->latency.largest_batch(size))};
  }
  return {};
}

const LatencySimulator::Known* LatencySimulator::know(const SimulatedBatch& batch) {
  const auto found = known_.find(batch);
  if (found != known_.end()) return &found->second;
  if (!can_run(batch.model, batch.count, batch.size).ok()) return nullptr;
  Known known;
  const ModelProfile& measured = *profile_->find(batch.model);
  const LatencyTable& of_profile = measured.latency_of(batch.processes);
  auto alone_ms = of_profile.latency_ms(batch.count, batch.size);
  if (!alone_ms) alone_ms = measured.latency.latency_ms(batch.count, batch.size);
  known.alone_ms = alone_ms.value_or(0);
  if (varies_) known.cv = cv_.value_or(of_profile.cv(batch.count, batch.size).value_or(0));
  if (interference_ != nullptr)
    known.traits = interference_->traits(batch.model, batch.count, batch.size);
  return &known_.emplace(batch, known).first->second;
}

Result<Duration> LatencySimulator::latency(const SimulatedBatch& batch,
                                           const std::vector<SimulatedBatch>& beside) {
  const Known* self = know(batch);
  if (self == nullptr) return can_run(batch.model, batch.count, batch.size);
  double factor = 1;
  for (const SimulatedBatch& other : beside) {
    const Known* neighbour = interference_ == nullptr ? nullptr : know(other);
    if (neighbour == nullptr) continue;
    factor = add_neighbour(factor, interference_->slowdown(self->traits, neighbour->traits));
  }
  return from_ms(self->alone_ms * factor * random_.log_normal(self->cv));
}

Result<Duration> LatencySimulator::latency_under_quota(const std::string& model,
                                                       std::uint32_t count, double percent) const {
  GPULET_TRY(const auto found, profile_of(model));
  const auto latency_ms = found->latency.latency_under_quota_ms(count, percent);
  if (latency_ms) return from_ms(*latency_ms);
  return Status(StatusCode::invalid, "the profile '" + type_ + "' has no latency of '" + model +
                                         "' for a batch of " + std::to_string(count) + " around " +
                                         std::to_string(percent) +
                                         " %; measure it at the smallest and the largest size");
}

}  // namespace gpulet::profile

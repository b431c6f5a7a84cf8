#include "gpulet/profile/inss_model.h"

#include <algorithm>

namespace gpulet::profile {

double InssCoefficients::l2(double share) const {
  return std::clamp(l2_slope * share + l2_constant, 0.0, 1.0);
}

InssModel::Parts InssModel::parts(const Served& served, double batch, double share) {
  const double running_ms = served.running.at(batch, share);
  return {.alone_ms = served.coefficients.transfer_ms * batch + served.coefficients.scheduling_ms +
                      running_ms,
          .running_ms = running_ms};
}

double InssModel::added_ms(const Served& self, double running_ms, const Served& other,
                           double other_share) const {
  return alpha_s_ * self.coefficients.launches +
         running_ms * self.coefficients.alpha_cache * other.coefficients.l2(other_share);
}

const InssModel::Served* InssModel::served(std::string_view model) const {
  const auto found = numbers_.find(model);
  return found == numbers_.end() ? nullptr : &served_[found->second];
}

std::optional<double> InssModel::latency_ms(std::string_view model, std::uint32_t batch,
                                            Share share) const {
  return latency_ms(model, batch, share, {});
}

std::optional<double> InssModel::latency_ms(std::string_view model, std::uint32_t batch,
                                            Share share, std::span<const CoRunner> others) const {
  const Served* const self = served(model);
  if (self == nullptr || batch == 0 || !share.valid()) return std::nullopt;
  const Parts own = parts(*self, batch, share.fraction());
  double latency_ms = own.alone_ms;
  for (const CoRunner& other : others) {
    const Served* const beside = served(other.model);
    if (beside == nullptr) return std::nullopt;
    latency_ms += added_ms(*self, own.running_ms, *beside, other.share.fraction());
  }
  return latency_ms;
}

double InssModel::slowdown(const Side& self, const Side& other) const {
  const Served& own = served_[self.model];
  const Parts alone = parts(own, self.batch, self.share);
  return 1 + added_ms(own, alone.running_ms, served_[other.model], other.share) / alone.alone_ms;
}

const InssCoefficients* InssModel::find(std::string_view model) const {
  const Served* const found = served(model);
  return found == nullptr ? nullptr : &found->coefficients;
}

std::span<const LatencySample> InssModel::fitted_alone(std::string_view model) const {
  const Served* const found = served(model);
  if (found == nullptr) return {};
  return found->alone;
}

}  // namespace gpulet::profile

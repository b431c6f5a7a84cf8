// R of the relaxation (relaxation.h): the most that the whole time of a gpulet could serve of a
// model, whatever the gpulet's other models do. A value; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/duty_cycle.h"

namespace gpulet::schedule {

class HighestRate {
 public:
  // Does not refer to the curve afterwards.
  HighestRate(const LatencyCurve& curve, double slo_ms);
  // The gpulet may have that curve instead, where it has no other model.
  void add_alternative(const LatencyCurve& curve, double slo_ms);

  // Requests per second, where the model's total demand is `demand`, in requests per second; 0
  // where the gpulet serves none. Never above unlimited(). Increases with the demand.
  [[nodiscard]] double of(double demand) const;
  // For an unlimited demand.
  [[nodiscard]] double unlimited() const { return unlimited_; }

 private:
  // At fixed intervals: the requests per ms of a batch, and the part of the demand that waits for
  // it, both over its time. With random arrivals: the most mean arrivals in a cycle that a batch
  // holds, and how long the cycle may be, in ms. The best minimum of `by_batch` and the demand
  // times `by_wait` counts.
  struct Limit {
    double by_batch = 0;
    double by_wait = 0;
  };
  void keep_highest();
  [[nodiscard]] double best_minimum(double demand_per_ms) const;
  [[nodiscard]] double requests_per_ms(double arrivals) const;

  std::vector<Limit> limits_;  // none exceeds another one in both; ascending by_batch
  // With random arrivals, [batch - 1]: the latencies, and the most requests per ms of cycles that
  // bring up to so many requests.
  std::vector<double> latency_ms_;
  std::vector<double> best_per_ms_;
  double margin_ = 1;
  std::uint32_t processes_ = 1;
  double unlimited_ = 0;
  std::vector<HighestRate> alternatives_;
};

}  // namespace gpulet::schedule

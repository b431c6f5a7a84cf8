// CorrectionEstimator: how much longer the batches of each model take than their profile says, or
// shorter, by size and device (docs/scheduling.md, "Feedback").
//
// The reference is always the profile, never a corrected latency, so corrections do not compound.
// Between the latency alone and that beside the planned neighbours, a batch is as predicted. A
// correction is bounded, rises after a few seconds of evidence and falls only after a whole period.
// Chance, single outliers and few batches do not move it. Pure; one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/profile/estimate.h"
#include "gpulet/schedule/plan.h"
#include "gpulet/serve/values/frontend_status.h"
#include "serve/adapt/slow_devices.h"

namespace gpulet::serve {

inline constexpr double kLeastCorrection = 0.5;
inline constexpr double kMostCorrection = 8;

struct CorrectionTimes {
  Duration period = std::chrono::seconds(20);  // a correction falls after this much evidence
  Duration forget = std::chrono::minutes(10);  // without batches
};

// One batch that ran.
struct ObservedBatch {
  Duration executed{};
  Duration alone{};   // as profiled
  Duration beside{};  // the same with the planned slowdown by neighbours
};

// The correction of one model at one size of one device.
class PaceEstimate {
 public:
  // `factor`: what is known from elsewhere.
  PaceEstimate(const CorrectionTimes& times, double factor, Time now);

  void add(const ObservedBatch& batch, Time now);
  // Call it at least once a second.
  void tick(Time now);

  // Observed latency divided by predicted.
  [[nodiscard]] double factor() const { return factor_; }
  // The same for the slowest hundredth of the recent batches, to a fifth; 0: too few batches.
  [[nodiscard]] double tail() const;
  [[nodiscard]] std::uint64_t batches() const { return batches_; }
  [[nodiscard]] bool forgotten(Time now) const { return now - last_batch_ >= times_.forget; }

 private:
  static constexpr std::size_t kSlices = 5;  // of which the median counts
  struct Slice {
    double batches = 0;
    double executed_s = 0;
    double alone_s = 0;
    double beside_s = 0;
    double squares = 0;  // of the ratios executed / beside
    double ratios = 0;
  };
  // What one slice says.
  struct Pace {
    double ratio = 1;
    double error = 0;  // standard error, relative
  };
  [[nodiscard]] static Pace pace_of(const Slice& slice);
  void close_slice(Time now);
  void follow(double median, double error, Time now);

  CorrectionTimes times_;
  Slice slice_;
  Time slice_began_;
  Time last_batch_;
  std::array<Pace, kSlices> recent_{};  // the last `slices_` ones, at slices_ % kSlices
  std::uint64_t slices_ = 0;
  std::uint32_t rising_ = 0;                     // slices for which it waited
  std::deque<std::pair<Time, double>> medians_;  // of the last period
  double factor_ = 1;
  std::uint64_t batches_ = 0;
  // Of the ratios executed / beside, with logarithmic buckets; old ones fade.
  static constexpr std::size_t kBuckets = 48;
  std::array<float, kBuckets> ratios_{};
  float counted_ = 0;
};

class CorrectionEstimator {
 public:
  explicit CorrectionEstimator(const CorrectionTimes& times) : times_(times) {}

  // The estimate of that place. A new one begins with what is known of the model on devices of the
  // type. Valid until the next tick() or forget().
  [[nodiscard]] PaceEstimate& at(const ObservedPlace& place, Time now);
  // Returns whether estimates were erased.
  bool tick(Time now);
  // The model's profile changed, or it was removed.
  void forget(const std::string& model);

  // Of the last tick().
  [[nodiscard]] const SlowDevices& slow_devices() const { return slow_devices_; }
  // For plans: of several devices of a type the one with the largest factor counts, after division
  // by its slowness; at other sizes the factor of the size with the most batches. Models without a
  // factor other than 1 are left out.
  [[nodiscard]] profile::Corrections corrections() const;
  // By model, device type and size; the device is the slowest one.
  [[nodiscard]] std::vector<CorrectionStatus> status() const;

 private:
  // For a place without an estimate.
  [[nodiscard]] double known_of(const ObservedPlace& place) const;
  // As status(), with factors divided by the slowness of their devices.
  [[nodiscard]] std::vector<CorrectionStatus> by_size(const SlowDevices& slow) const;

  CorrectionTimes times_;
  std::map<ObservedPlace, PaceEstimate> estimates_;
  SlowDevices slow_devices_;
};

}  // namespace gpulet::serve

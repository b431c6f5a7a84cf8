// The analytical latency model of InSS (section 4.1): a second way to predict latencies beside the
// measured tables, from few measurements. A batch takes
//
//   transfer    bytes of its requests / bandwidth of the bus
//   scheduling  (o_sch + int) * kernels: int is 0 alone, alpha_s * n + beta_s among n models
//   running     o_run(batch, share) * (1 + alpha_cache * sum of the neighbours' L2 utilisation)
//
// added up; o_run is a locally weighted regression, a model's L2 utilisation is linear in its
// share. How it is fitted, what of it a profile identifies, and its errors: docs/interference.md.
//
// Latencies in milliseconds, shares as fractions of the device. A value that owns what it needs and
// does not refer to the profile; immutable once fitted; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/share.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"

namespace gpulet::profile {

// A model's batches and sizes alone that are fitted: as many of either, spread evenly over the
// logarithms of what was measured.
inline constexpr std::size_t kInssBatches = 4;
inline constexpr std::size_t kInssShares = 4;
// And its measurements beside others.
inline constexpr std::size_t kInssPairs = 5;

// Running time over batch and share, from a handful of measured latencies: the device's work W is
// locally linear in (batch, 1/share, batch/share), and what launches do not hide of it is the
// running time: (S^4 + W^4)^(1/4) - S, close to max(0, W - S), for a scheduling time S.
class RunningTime {
 public:
  struct Sample {
    double batch = 0;
    double share = 0;
    double latency_ms = 0;  // of scheduling and running together
  };

  RunningTime() = default;  // 0 everywhere
  // REQUIRES: samples of positive numbers, none below `scheduling_ms`.
  RunningTime(double scheduling_ms, std::span<const Sample> samples);

  // Finite, at least 0. Beyond the samples it is extrapolated, but never below the least of them.
  [[nodiscard]] double at(double batch, double share) const;

 private:
  struct Point {
    double batch = 0;
    double share = 0;
    double log_batch = 0;
    double log_share = 0;
    double work_ms = 0;
    double weight = 0;
  };

  double scheduling_ms_ = 0;
  double least_work_ms_ = 0;
  double batch_step_ = 1;  // distances between the samples, in logarithms
  double share_step_ = 1;
  std::vector<Point> points_;
};

// What was fitted for one served model.
struct InssCoefficients {
  double scheduling_ms = 0;  // o_sch * kernels: what neither batch nor share changes
  double transfer_ms = 0;    // of one request, there and back; 0 where it is not known
  // Kernels of a batch. Where they were not counted for every model: scheduling_ms, as if each
  // kernel took the same; alpha_s and beta_s are fractions of it then.
  double launches = 0;
  double l2_slope = 0;  // L2 utilisation = l2_slope * share + l2_constant
  double l2_constant = 0;
  double alpha_cache = 0;  // at least 0

  // At a share, a fraction 0..1.
  [[nodiscard]] double l2(double share) const;
};

class InssModel {
 public:
  // A batch by numbers, for those who ask often.
  struct Side {
    std::uint32_t model = 0;  // in the order of the profile's models
    double batch = 0;
    double share = 0;
  };

  // L(batch, share) alone, and beside `others`; any batch from 1 and any share. Empty for a model
  // that the profile does not have. Some hundred nanoseconds; allocates nothing.
  [[nodiscard]] std::optional<double> latency_ms(std::string_view model, std::uint32_t batch,
                                                 Share share) const;
  [[nodiscard]] std::optional<double> latency_ms(std::string_view model, std::uint32_t batch,
                                                 Share share,
                                                 std::span<const CoRunner> others) const;

  // Latency beside `other` over that alone: at least 1 and finite. The excesses over 1 of several
  // neighbours add up, exactly as this model's latency beside all of them.
  // REQUIRES: numbers of models below models().
  [[nodiscard]] double slowdown(const Side& self, const Side& other) const;

  [[nodiscard]] std::size_t models() const { return served_.size(); }
  [[nodiscard]] const InssCoefficients* find(std::string_view model) const;
  // By launch. Only pairs are measured, so what is known is int among two: alpha_s is that and
  // beta_s = -alpha_s, by which int is 0 alone and every neighbour adds the same.
  [[nodiscard]] double alpha_s() const { return alpha_s_; }
  [[nodiscard]] double beta_s() const { return -alpha_s_; }
  // False where no batch was measured beside another: neighbours cost nothing then.
  [[nodiscard]] bool knows_neighbours() const { return !pairs_.empty(); }

  // What it was fitted to: everything else is held out.
  [[nodiscard]] std::span<const LatencySample> fitted_alone(std::string_view model) const;
  [[nodiscard]] std::span<const PairSample> fitted_pairs() const { return pairs_; }
  // What the profile does not identify, and what was done instead; empty: nothing.
  [[nodiscard]] const std::string& note() const { return note_; }

 private:
  friend class InssFitting;
  struct Served {
    InssCoefficients coefficients;
    RunningTime running;
    std::vector<LatencySample> alone;
  };
  struct Parts {
    double alone_ms = 0;
    double running_ms = 0;
  };

  [[nodiscard]] const Served* served(std::string_view model) const;
  [[nodiscard]] static Parts parts(const Served& served, double batch, double share);
  // What one neighbour adds to a batch.
  [[nodiscard]] double added_ms(const Served& self, double running_ms, const Served& other,
                                double other_share) const;

  std::map<std::string, std::uint32_t, std::less<>> numbers_;
  std::vector<Served> served_;
  std::vector<PairSample> pairs_;
  double alpha_s_ = 0;
  std::string note_;
};

// Fitted to the profile's chosen cells, and to kInssPairs pairs of every model that has them, drawn
// with `seed` among those whose batches were both measured alone too. The same for the same profile
// and seed. Cannot fail: see note().
[[nodiscard]] InssModel fit_inss(const Profile& profile, std::uint64_t seed);

}  // namespace gpulet::profile

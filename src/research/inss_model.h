// The analytical latency model of InSS (section 4.1), which predicts latencies from few
// measurements instead of tables. The latency of a batch is the sum of
//
//   transfer    bytes of its requests / bandwidth of the bus
//   scheduling  (o_sch + int) * kernels: int is 0 alone, alpha_s * n + beta_s among n models
//   running     o_run(batch, share) * (1 + alpha_cache * sum of the neighbours' L2 utilisation)
//
// o_run is a locally weighted regression; a model's L2 utilisation is linear in its share. Fitting,
// identifiability and errors: docs/interference.md.
//
// Latencies are in milliseconds, shares are fractions of the device. The model owns its data and
// does not refer to the profile. Immutable once fitted; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "gpulet/research/research.h"

namespace gpulet::research {

using profile::CoRunner;
using profile::LatencySample;
using profile::PairSample;
using profile::Profile;

// The numbers of batches and sizes of each model that are fitted alone, spread evenly over the
// logarithms of the measured ones.
inline constexpr std::size_t kInssBatches = 4;
inline constexpr std::size_t kInssShares = 4;
// The number of pairs of each model that are fitted.
inline constexpr std::size_t kInssPairs = 5;

// Running time over batch and share, from a few measured latencies. The device's work W is locally
// linear in (batch, 1/share, batch/share). The running time is the part of W that launches do not
// hide: (S^4 + W^4)^(1/4) - S, close to max(0, W - S), for a scheduling time S.
class RunningTime {
 public:
  struct Sample {
    double batch = 0;
    double share = 0;
    double latency_ms = 0;  // scheduling and running
  };

  RunningTime() = default;  // 0 everywhere
  // REQUIRES: samples of positive numbers, none below `scheduling_ms`.
  RunningTime(double scheduling_ms, std::span<const Sample> samples);

  // Finite, at least 0. Extrapolated beyond the samples, but never below the smallest of them.
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
  double min_work_ms_ = 0;
  double batch_step_ = 1;  // logarithmic distance between samples
  double share_step_ = 1;
  std::vector<Point> points_;
};

// The fitted coefficients of one model.
struct InssCoefficients {
  double scheduling_ms = 0;  // o_sch * kernels: independent of batch and share
  double transfer_ms = 0;    // per request, both ways; 0: unknown
  // Kernels per batch. Where some model's kernels were not counted: scheduling_ms, and alpha_s and
  // beta_s are fractions of it.
  double launches = 0;
  double l2_slope = 0;  // L2 utilisation = l2_slope * share + l2_constant
  double l2_constant = 0;
  double alpha_cache = 0;  // at least 0

  // L2 utilisation at a share of 0..1.
  [[nodiscard]] double l2(double share) const;
};

class InssModel {
 public:
  using Side = profile::PairModel::Side;

  // L(batch, share) alone or beside `others`, for any batch from 1 and any share. Empty for an
  // unknown model. Takes hundreds of nanoseconds; allocates nothing.
  [[nodiscard]] std::optional<double> latency_ms(std::string_view model, std::uint32_t batch,
                                                 Share share,
                                                 std::span<const CoRunner> others = {}) const;

  // Latency beside `other` over latency alone: finite, at least 1. The excesses over 1 of several
  // neighbours add up. REQUIRES: model indices below models().
  [[nodiscard]] double slowdown(const Side& self, const Side& other) const;

  [[nodiscard]] std::size_t models() const { return served_.size(); }
  [[nodiscard]] const InssCoefficients* find(std::string_view model) const;
  // Per launch. Only pairs are measured, so only int among two models is known: alpha_s is that,
  // and beta_s = -alpha_s makes int 0 alone and the same for every neighbour.
  [[nodiscard]] double alpha_s() const { return alpha_s_; }
  [[nodiscard]] double beta_s() const { return -alpha_s_; }
  // False without measured pairs: neighbours then cost nothing.
  [[nodiscard]] bool knows_neighbours() const { return !pairs_.empty(); }

  // The fitted samples. All others are held out.
  [[nodiscard]] std::span<const LatencySample> fitted_alone(std::string_view model) const;
  [[nodiscard]] std::span<const PairSample> fitted_pairs() const { return pairs_; }
  // The coefficients that the profile does not identify, and their replacements.
  [[nodiscard]] const std::string& note() const { return note_; }

 private:
  friend class InssFitting;
  struct ServedModel {
    InssCoefficients coefficients;
    RunningTime running;
    std::vector<LatencySample> alone;
  };
  struct Parts {
    double alone_ms = 0;
    double running_ms = 0;
  };

  [[nodiscard]] const ServedModel* served(std::string_view model) const;
  [[nodiscard]] static Parts parts(const ServedModel& served, double batch, double share);
  // The time that one neighbour adds to a batch.
  [[nodiscard]] double added_ms(const ServedModel& self, double running_ms,
                                const ServedModel& other, double other_share) const;

  std::map<std::string, std::uint32_t, std::less<>> numbers_;
  std::vector<ServedModel> served_;
  std::vector<PairSample> pairs_;
  double alpha_s_ = 0;
  std::string note_;
};

// Fits the model to chosen cells of the profile, and to kInssPairs pairs of every model that has
// them, drawn with `seed` among the pairs whose batches were also measured alone. Deterministic.
// Cannot fail: see note().
[[nodiscard]] InssModel fit_inss(const Profile& profile, std::uint64_t seed);
// The same with the first kInssPairs pairs of each model in `drawn`. REQUIRES: usable pairs.
[[nodiscard]] InssModel fit_inss_to(const Profile& profile,
                                    std::span<const PairSample* const> drawn);

// The errors on samples that were not fitted. REQUIRES: the model was fitted to this profile.
[[nodiscard]] InssErrors held_out_errors(const InssModel& model, const Profile& profile);

// A CSV of every measured latency with the predicted one. `fitted`: the model was fitted to it.
[[nodiscard]] std::string cells_csv(const InssModel& inss, const Profile& profile);

}  // namespace gpulet::research

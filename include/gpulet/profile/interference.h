// Interference models: how much slower a batch runs while another gpulet of the same device is
// busy. docs/interference.md. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "gpulet/base/status.h"
#include "gpulet/core/ids.h"
#include "gpulet/profile/profile.h"

namespace gpulet::profile {
// One of two batches that run concurrently in two gpulets of one device.
struct CoRunner {
  std::string_view model;
  std::uint32_t batch = 0;
  Share share;
};

// "none", "linear", "learned", "measured", "inss", "combined".
[[nodiscard]] std::string_view to_string(InterferenceKind kind);
// Fails with invalid, naming the known kinds.
[[nodiscard]] Result<InterferenceKind> parse_interference_kind(std::string_view text);

// The features of one batch at one size while it runs alone.
struct SoloTraits {
  double log2_batch = 0;
  double share = 0;           // fraction of the device, 0..1
  double log_latency_ms = 0;  // natural logarithm of L(b, p)
  double flatness =
      0;  // L(b, largest measured size) / L(b, p): 1 where a larger share gains nothing
  double log_stretch = 0;  // logarithm of L(b, p) over the model's smallest measured latency
  double log_work = 0;     // logarithm of the device time per request in ms: L(b, p) * share / b
  double l2 = 0;           // utilisation 0..1, interpolated like latency
  double dram = 0;
};

// A batch with its features, made once by InterferenceModel::traits() so that predictions need no
// look-up. Between two measured batches a slowdown is interpolated linearly, like the latency, from
// the features of both.
struct BatchTraits {
  static constexpr std::uint32_t kUnknown = 0xffffffff;

  std::uint32_t model = kUnknown;       // index of the model in the profile
  std::uint32_t cell_below = kUnknown;  // index of the measured cell; unknown where the
  std::uint32_t cell_above = kUnknown;  // size is not a measured one
  double log2_percent = 0;
  double part = 0;  // position from `below` to `above`: 0 at a measured batch, below 1
  SoloTraits below;
  SoloTraits above;
};

// No prediction is above it.
inline constexpr double kMostSlowdown = 1000;

// A model of the kind `inss`, which another library fits. Immutable once fitted; any thread.
class PairModel {
 public:
  // A batch by the index of its model in the profile, which avoids look-ups by name.
  struct Side {
    std::uint32_t model = 0;
    double batch = 0;
    double share = 0;  // fraction of the device
  };

  virtual ~PairModel() = default;
  // Latency beside `other` over latency alone: finite, at least 1.
  [[nodiscard]] virtual double slowdown(const Side& self, const Side& other) const = 0;
  // False: it was fitted to no pair, so neighbours cost nothing.
  [[nodiscard]] virtual bool knows_neighbours() const = 0;
};

// Fits the model to a profile and to pairs of it, of which it may take the first ones only.
// Deterministic; does not fail. Null: this program has no such model.
using FitPairModel = std::shared_ptr<const PairModel> (*)(const Profile& profile,
                                                          std::span<const PairSample* const> pairs);

// One kind of model, prepared for one profile, which must outlive it. Immutable except for a cache
// of predictions in atomics; any number of threads. Copies share their state.
class InterferenceModel {
 public:
  // Fails with not_found where the profile has no fit of that kind (linear, learned), no pairs
  // (measured, inss), or neither a learned fit nor pairs (combined); for inss also without
  // `fit_inss`. The inss model is fitted here, with the seed of the profile's fit.
  [[nodiscard]] static Result<InterferenceModel> create(const Profile& profile,
                                                        InterferenceKind kind,
                                                        FitPairModel fit_inss = nullptr);

  // Where the profile has no L(batch, share) for the model, the traits are unknown and their
  // slowdown is 1.
  [[nodiscard]] BatchTraits traits(std::string_view model, std::uint32_t batch, Share share) const;

  // The predicted slowdown of `self` by one neighbour: finite, at least 1. Takes less than a
  // microsecond for measured batches and up to four times that between them; some nanoseconds from
  // the cache, which holds measured batches at measured sizes. Allocates nothing. REQUIRES: traits
  // of this model.
  [[nodiscard]] double slowdown(const BatchTraits& self, const BatchTraits& other) const;

  // At most the least slowdown of `self` by one of the others, and less only by rounding. Where
  // both are measured batches, faster than asking for each. kMostSlowdown without others.
  [[nodiscard]] double least_slowdown(const BatchTraits& self,
                                      std::span<const BatchTraits> others) const;

  [[nodiscard]] InterferenceKind kind() const;

 private:
  struct Predictor;
  InterferenceModel() = default;
  std::shared_ptr<const Predictor> predictor_;
};

// Interference models by device type. Types without a model have no interference.
using InterferenceSet = std::map<std::string, InterferenceModel, std::less<>>;

// The models of all profiles. Fails where a profile has no fit of that kind. `none`: an empty set.
[[nodiscard]] Result<InterferenceSet> interference_of(const ProfileSet& profiles,
                                                      InterferenceKind kind,
                                                      FitPairModel fit_inss = nullptr);

// Combines the slowdowns by several neighbours. Only pairs are measured, so the excesses over 1 add
// up. `so_far` starts at 1.
[[nodiscard]] constexpr double add_neighbour(double so_far, double slowdown) {
  return so_far + (slowdown - 1);
}

// The fewest usable pairs to fit a model to.
inline constexpr std::size_t kLeastPairs = 20;

struct FitOptions {
  std::uint64_t seed = 1;           // for the fitted pairs and the trees' rows
  double train_fraction = 0.7;      // of the pairs; the others are held out; above 0, below 1
  FitPairModel fit_inss = nullptr;  // null: determines no errors of inss
};

// Fits the interference models to the profile's pairs and determines their errors on held-out
// pairs. Deterministic. Takes tenths of a second for thousands of pairs. Where a profile has too
// few pairs or no utilisation, the note says which models are missing and why. Fails with invalid
// on a train_fraction out of bounds.
[[nodiscard]] Result<InterferenceFit> fit_interference(const Profile& profile,
                                                       const FitOptions& options);

}  // namespace gpulet::profile

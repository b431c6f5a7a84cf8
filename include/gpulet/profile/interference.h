// How much slower a batch gets by what runs beside it on the same device: the models of
// interference that plans are made with, and the measured pairs themselves. docs/interference.md.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "gpulet/core/share.h"
#include "gpulet/core/status.h"
#include "gpulet/profile/profile.h"

namespace gpulet::profile {

// One of two batches that run at the same time in two gpulets of one device.
struct CoRunner {
  std::string_view model;
  std::uint32_t batch = 0;
  Share share;
};

// The factor by which L(b, p) of `self` grows while `other` runs: taken from the measured pair of
// the same two models that is nearest in both batches and both sizes (in logarithms: twice the
// batch is as far as twice the size), as its latency over L(b, p) of the same cell alone. At least
// 1; exactly 1 where no such pair was measured. Ties go to the pair that comes first in the
// profile. Looks at every pair of the profile.
[[nodiscard]] double measured_slowdown(const Profile& profile, const CoRunner& self,
                                       const CoRunner& other);

// "none", "linear", "learned", "measured", "inss".
[[nodiscard]] std::string_view to_string(InterferenceKind kind);
// Fails (invalid) with the names there are.
[[nodiscard]] Result<InterferenceKind> parse_interference_kind(std::string_view text);

// What a model of interference knows of one batch at one size while it runs alone.
struct SoloTraits {
  double log2_batch = 0;
  double share = 0;           // fraction of the device, 0..1
  double log_latency_ms = 0;  // natural logarithm of L(b, p)
  double flatness = 0;     // L(b, largest measured size) over L(b, p): 1 where share gains nothing
  double log_stretch = 0;  // logarithm of L(b, p) over the model's least measured latency
  double log_work = 0;     // logarithm of the device time per request in ms: L(b, p) * share / b
  double l2 = 0;           // utilisation, fractions 0..1; interpolated like latency
  double dram = 0;
};

// A batch as the models of interference see it; made once by InterferenceModel::traits, so that no
// prediction looks anything up. Between two measured batches of the model a slowdown is linear, as
// the latency is: hence both neighbours, and where the batch stands between them.
struct BatchTraits {
  static constexpr std::uint32_t kUnknown = 0xffffffff;

  std::uint32_t model = kUnknown;       // number of the model within the profile
  std::uint32_t cell_below = kUnknown;  // number of the measured batch and size; unknown where the
  std::uint32_t cell_above = kUnknown;  // size is not a measured one
  double log2_percent = 0;
  double part = 0;  // of the way from `below` to `above`; 0 at a measured batch, always below 1
  SoloTraits below;
  SoloTraits above;
};

// One kind of model, ready to predict for one profile. Immutable to its users (it remembers what it
// was asked, in atomics); any number of threads. Copies share all they hold. It refers to the
// Profile, which must outlive it.
class InterferenceModel {
 public:
  // Fails (not_found), saying what to do, where the profile holds no fit of that kind (linear,
  // learned), or no pairs (measured, inss). inss is fitted here, with the seed of the profile's
  // fit.
  [[nodiscard]] static Result<InterferenceModel> create(const Profile& profile,
                                                        InterferenceKind kind);

  // REQUIRES: the profile answers L(batch, share) of the model. (Where it does not, the traits are
  // those of a stranger, whose slowdown is 1.)
  [[nodiscard]] BatchTraits traits(std::string_view model, std::uint32_t batch, Share share) const;

  // The predicted slowdown of `self` by one neighbour: at least 1 and finite. Between measured
  // batches (those that the model's latency table names at any size) linear in the batch of either.
  // A fraction of a microsecond for measured batches, up to four times that between them; some
  // nanoseconds where both sizes are measured ones too and it was asked before. Allocates nothing.
  // REQUIRES: traits made by this model.
  [[nodiscard]] double slowdown(const BatchTraits& self, const BatchTraits& other) const;

  [[nodiscard]] InterferenceKind kind() const;

 private:
  struct Predictor;
  InterferenceModel() = default;
  std::shared_ptr<const Predictor> predictor_;
};

// One model of interference for each device type; a type that is not in it: no interference is
// reckoned with.
using InterferenceSet = std::map<std::string, InterferenceModel, std::less<>>;

// Of every profile. Fails where a profile has no fit of that kind; `none` gives an empty set.
[[nodiscard]] Result<InterferenceSet> interference_of(const ProfileSet& profiles,
                                                      InterferenceKind kind);

// The slowdown by several neighbours: pairs are all that is ever measured, so their excesses over 1
// add up. `so_far` starts at 1.
[[nodiscard]] constexpr double add_neighbour(double so_far, double slowdown) {
  return so_far + (slowdown - 1);
}

}  // namespace gpulet::profile

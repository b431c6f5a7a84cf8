// A profile: everything that was measured about the models on one type of device. Cluster files
// name a device's profile by the device's `type`. Format: profiles/FORMAT.md; reading and writing:
// profile/store.h. Values, immutable once built; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/control/node_control.h"
#include "gpulet/core/ids.h"

namespace gpulet::profile {
// Why the measurement of a cell is doubtful. Plans use such cells like all others.
enum class Doubt : std::uint8_t {
  none,
  busy,        // other processes used the device's cores
  unsteady,    // its median did not settle
  neighbours,  // its latency does not fit the adjacent cells
};
// The enumerator's name; "" for none.
[[nodiscard]] std::string_view to_string(Doubt doubt);

struct LatencySample {
  std::uint32_t batch = 0;
  Share share;
  double latency_ms = 0;           // per batch, also where many ran back to back
  std::optional<double> p99_ms{};  // of single batches; stored only
  std::optional<double> cv{};      // coefficient of variation of single batches
  Doubt doubt = Doubt::none;       // stored only
  std::uint32_t processes = 1;     // that run such batches in the gpulet at the same time

  friend bool operator==(const LatencySample&, const LatencySample&) = default;
};

// L(b, p): the measured latency of one batch of b requests of one model, alone on a gpulet of p
// percent. Cells between measured ones are interpolated: linear in the batch between two measured
// batches of one size, and linear in 1/p between two measured sizes (latency is close to affine in
// it), where both sizes answer. Nothing is extrapolated: there is no answer above the largest batch
// of a size or outside the measured sizes. A batch below the smallest measured one costs as much as
// that one. A look-up takes tens of nanoseconds and allocates nothing.
class LatencyTable {
 public:
  // Fails (invalid) on no samples, a batch of 0, a share outside 1..100, a latency that is not
  // finite and positive, or two samples for one cell whose latencies differ.
  [[nodiscard]] static Result<LatencyTable> create(std::vector<LatencySample> samples);

  // Milliseconds; empty without an answer, and for batch 0.
  [[nodiscard]] std::optional<double> latency_ms(std::uint32_t batch, Share share) const;

  // The coefficient of variation of single batches, interpolated likewise. Empty where
  // latency_ms() is, or where the spread of a cell that it depends on is unknown.
  [[nodiscard]] std::optional<double> cv(std::uint32_t batch, Share share) const;

  // The spread of every cell is known.
  [[nodiscard]] bool knows_spread() const { return knows_spread_; }

  // The latency under a quota of `percent` of the device's time, which need not be a whole number
  // or within the measured sizes. Below the smallest size p, the latency at p is scaled by
  // p/percent, because the same work takes longer. The result is never below the latency at the
  // largest size, which also holds above it. REQUIRES: percent > 0.
  [[nodiscard]] std::optional<double> latency_under_quota_ms(std::uint32_t batch,
                                                             double percent) const;

  // The largest batch with an answer at that size; 0 where the size has none.
  [[nodiscard]] std::uint32_t largest_batch(Share share) const;

  // The given cells, ordered by size, then batch.
  [[nodiscard]] const std::vector<LatencySample>& samples() const { return samples_; }

 private:
  LatencyTable() = default;

  struct Curve {  // one measured size
    Share share;
    std::vector<std::uint32_t> batches;  // ascending
    std::vector<double> latencies_ms;    // parallel to batches
    std::vector<double> cvs;             // parallel to batches; NaN: unknown
  };
  using Values = std::vector<double> Curve::*;
  [[nodiscard]] static std::optional<double> within_curve(const Curve& curve, Values values,
                                                          std::uint32_t batch);
  // Empty outside the measured sizes.
  [[nodiscard]] std::optional<double> interpolated(Values values, std::uint32_t batch,
                                                   double percent) const;

  std::vector<LatencySample> samples_;
  bool knows_spread_ = false;
  std::vector<Curve> curves_;  // by ascending share
};

// The kinds of interference models (profile/interference.h).
enum class InterferenceKind { none, linear, learned, measured, inss, combined };

// slowdown = l2_self * L2(self) + l2_other * L2(other) + dram_self * DRAM(self) + dram_other *
// DRAM(other) + constant, with utilisations 0..1 (gpulet, section 4.4).
struct LinearCoefficients {
  double l2_self = 0;
  double l2_other = 0;
  double dram_self = 0;
  double dram_other = 0;
  double constant = 1;

  friend bool operator==(const LinearCoefficients&, const LinearCoefficients&) = default;
};

// Percentiles of the relative error |predicted - measured| / measured latency over pairs that were
// not fitted.
struct HeldOutErrors {
  InterferenceKind kind = InterferenceKind::none;
  double p50 = 0;
  double p90 = 0;
  double p95 = 0;
  // By model: the 90th percentile over its pairs where none of them was fitted.
  std::map<std::string, double, std::less<>> unseen_model_p90;

  friend bool operator==(const HeldOutErrors&, const HeldOutErrors&) = default;
};

class BoostedTrees;

// Fitted trees, or none. Copies share the trees; two are equal where their trees are.
class FittedTrees {
 public:
  FittedTrees() = default;
  explicit FittedTrees(BoostedTrees trees);

  [[nodiscard]] bool has_value() const { return trees_ != nullptr; }
  // REQUIRES for both: has_value().
  [[nodiscard]] const BoostedTrees& operator*() const { return *trees_; }
  [[nodiscard]] const BoostedTrees* operator->() const { return trees_.get(); }

  friend bool operator==(const FittedTrees& one, const FittedTrees& other);

 private:
  std::shared_ptr<const BoostedTrees> trees_;
};

// The interference models that were fitted to a profile's pairs (fit_interference()).
struct InterferenceFit {
  std::uint64_t seed = 0;
  double train_fraction = 0;                 // fraction of the pairs, drawn with the seed
  std::size_t pairs = 0;                     // pairs whose latency alone is known, too
  std::optional<LinearCoefficients> linear;  // fitted to the drawn fraction
  // Fitted to all pairs, after its errors were determined with the drawn fraction.
  FittedTrees learned;
  bool learned_uses_utilization = false;  // false: its utilisation features are 0
  std::vector<HeldOutErrors> errors;      // by kind, fitted to the drawn fraction
  std::string note;                       // the missing models, with the reasons

  friend bool operator==(const InterferenceFit&, const InterferenceFit&) = default;
};

struct Utilization {
  std::uint32_t batch = 0;
  Share share;
  double l2 = 0;    // fraction 0..1
  double dram = 0;  // fraction 0..1

  friend bool operator==(const Utilization&, const Utilization&) = default;
};

// One side of a co-run: the latency of `batch` of `model` while the other model runs in another
// gpulet of the device.
struct PairSample {
  std::string model;
  std::uint32_t batch = 0;
  Share share;
  std::string other_model;
  std::uint32_t other_batch = 0;
  Share other_share;
  double latency_ms = 0;

  friend bool operator==(const PairSample&, const PairSample&) = default;
};

// Whence the latencies of a model come that was not measured (estimate.h).
struct EstimateSource {
  std::string nearest;     // the measured model whose table was scaled; empty: none
  std::size_t probes = 0;  // cells that were probed; 0: the latencies are placeholders

  friend bool operator==(const EstimateSource&, const EstimateSource&) = default;
};

struct ModelProfile {
  LatencyTable latency;                  // of one process alone in its gpulet
  std::vector<Utilization> utilization;  // may be empty
  std::optional<double> memory_mb;       // resident memory of the loaded model
  // Optional inputs of the InSS model (inss_model.h).
  std::optional<double> kernels{};       // launches per batch
  std::optional<double> input_bytes{};   // per request
  std::optional<double> output_bytes{};  // per request
  // How its response time depends on its cores (gpulet profile run --controller).
  std::optional<control::Plant> controller{};
  // The latency in one of several processes of the model that share a gpulet while all of them run,
  // by their number, which is above 1.
  std::map<std::uint32_t, LatencyTable> shared_latency{};
  std::optional<EstimateSource> estimate{};  // set: `latency` is an estimate

  // The latency in one of so many processes: `latency` where it was not measured.
  [[nodiscard]] const LatencyTable& latency_of(std::uint32_t processes) const {
    const auto found = shared_latency.find(processes);
    return found == shared_latency.end() ? latency : found->second;
  }
};

// How the profile was measured: free text by key ("machine", "date", "libtorch", "partitioning",
// ...).
using Provenance = std::map<std::string, std::string, std::less<>>;

struct Profile {
  std::string name;
  Provenance provenance;
  std::map<std::string, ModelProfile, std::less<>> models;
  std::vector<PairSample> pairs;                // may be empty
  std::optional<InterferenceFit> interference;  // empty: not fitted
  std::optional<double> pcie_gbps;              // 10^9 bytes per second between host and device

  // nullptr where the model was not measured.
  [[nodiscard]] const ModelProfile* find(std::string_view model) const;
  // Whether it says of any model what several processes in a gpulet cost. A plan then chooses their
  // number.
  [[nodiscard]] bool knows_processes() const;
};

// Profiles by device type.
using ProfileSet = std::map<std::string, Profile, std::less<>>;

// Cells by model.
using CellSet = std::map<std::string, std::set<std::pair<Share, std::uint32_t>>, std::less<>>;

// `stored`, updated with a later measurement of a part of it. A measured cell replaces the stored
// one. For measured models, stored cells stay unless they are in `requested`: a requested cell that
// was not measured now takes too long. Other values stay where the measurement has none. All other
// models, all pairs and the fit stay; refit where latencies changed. REQUIRES: equal names.
[[nodiscard]] Profile updated(Profile stored, Profile measured, const CellSet& requested);

}  // namespace gpulet::profile

// The interference models behind InterferenceModel: features of batches, the table of measured
// pairs, and predictions. Immutable; any thread.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/profile/boosted_trees.h"
#include "gpulet/profile/inss_model.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"

namespace gpulet::profile {
// Utilisation over batch and size: linear in the batch, and linear in 1/size like latency. Constant
// beyond the measured batches and sizes.
class UtilizationTable {
 public:
  struct Fractions {
    double l2 = 0;
    double dram = 0;
  };

  explicit UtilizationTable(const std::vector<Utilization>& samples);

  // Zeros without samples.
  [[nodiscard]] Fractions at(std::uint32_t batch, Share share) const;

 private:
  struct Curve {
    Share share;
    std::vector<std::uint32_t> batches;  // ascending
    std::vector<Fractions> fractions;    // parallel to batches
  };
  [[nodiscard]] static Fractions within_curve(const Curve& curve, std::uint32_t batch);

  std::vector<Curve> curves_;  // by ascending share
};

// The features of all batches of a profile, whose latency tables must outlive the table.
class SoloTraitsTable {
 public:
  explicit SoloTraitsTable(const Profile& profile);

  // True where every model of the profile has utilisation samples.
  [[nodiscard]] bool has_utilization() const { return has_utilization_; }
  // The number of cells: every measured batch of a model at every measured size of it.
  [[nodiscard]] std::size_t cells() const { return cells_.size(); }
  // BatchTraits::kUnknown for an unknown model.
  [[nodiscard]] std::uint32_t number_of(std::string_view model) const;
  // Unknown traits where L(batch, share) has no answer.
  [[nodiscard]] BatchTraits traits(std::string_view model, std::uint32_t batch, Share share) const;
  // For exactly that batch, measured or not. Empty where L(batch, share) has no answer.
  [[nodiscard]] std::optional<SoloTraits> solo(std::string_view model, std::uint32_t batch,
                                               Share share) const;

 private:
  struct Model {
    std::uint32_t number = 0;
    std::uint32_t first_cell = 0;
    const LatencyTable* latency = nullptr;
    double least_ms = 0;
    UtilizationTable utilization;
    std::vector<std::uint32_t> batches;  // measured at any size, ascending
    std::vector<Share> sizes;            // measured, ascending
  };
  [[nodiscard]] static std::optional<SoloTraits> look_up(const Model& model, std::uint32_t batch,
                                                         Share share);

  std::map<std::string, Model, std::less<>> models_;
  std::vector<SoloTraits> cells_;  // by model, size, batch; undefined where L has no answer
  bool has_utilization_ = true;
};

// The pairs of a profile, ordered for a nearest-neighbour search. The measured slowdown of a batch
// by another is the latency of the nearest pair of the same two models over L(b, p) of its own cell
// alone. The distance is the sum of the differences of the logarithms of both batches and both
// sizes; ties go to the pair that is first in the profile. Owns its data.
class MeasuredPairs {
 public:
  // A batch by model index; logarithms to base 2.
  struct Side {
    std::uint32_t model = 0;
    double log_batch = 0;
    double log_percent = 0;
  };

  // Keeps the pairs whose latency alone is known.
  MeasuredPairs(const std::vector<PairSample>& pairs, const Profile& profile,
                const SoloTraitsTable& models);

  [[nodiscard]] std::size_t size() const { return cells_.size(); }
  // At least 1; 1 where no pair of the two models was measured.
  [[nodiscard]] double slowdown(const Side& self, const Side& other) const;
  // That of exactly these two batches; empty where they were not measured together.
  [[nodiscard]] std::optional<double> exact(const Side& self, const Side& other) const;

 private:
  static constexpr std::size_t kLevels = 4;  // batch, size, other batch, other size
  using Key = std::array<double, kLevels>;

  struct Cell {
    std::uint32_t model = 0;
    std::uint32_t other_model = 0;
    Key key{};
    std::uint32_t order = 0;  // position in the profile; the first wins a tie
    double slowdown = 1;
    // By level: the end of the run of cells whose keys agree up to that level.
    std::array<std::uint32_t, kLevels> end{};
  };

  std::vector<Cell> cells_;  // ordered by models, then key
};

// One of the two measured batches around a batch.
struct MeasuredBatch {
  const BatchTraits* batch = nullptr;
  bool above = false;

  [[nodiscard]] const SoloTraits& solo() const { return above ? batch->above : batch->below; }
};

// One kind of interference model with its parameters.
struct Fitted {
  InterferenceKind kind = InterferenceKind::none;
  LinearCoefficients linear{};  // linear
  // learned, and combined if the profile has such a fit; predict the logarithm of the slowdown
  std::optional<BoostedTrees> trees{};
  bool utilization = false;              // of `trees`
  std::optional<MeasuredPairs> pairs{};  // measured, combined
  std::optional<InssModel> inss{};

  // At least 1, and bounded far above any real slowdown so that a bad fit stays finite.
  [[nodiscard]] double slowdown(const MeasuredBatch& self, const MeasuredBatch& other) const;

 private:
  [[nodiscard]] double learned(const MeasuredBatch& self, const MeasuredBatch& other) const;
  [[nodiscard]] double combined(const MeasuredBatch& self, const MeasuredBatch& other) const;
};

// Interpolates `at(MeasuredBatch self, MeasuredBatch other)` linearly between measured batches. 1
// where one of the two is unknown.
template <typename At>
[[nodiscard]] double between_measured(const BatchTraits& self, const BatchTraits& other,
                                      const At& at) {
  if (self.model == BatchTraits::kUnknown || other.model == BatchTraits::kUnknown) return 1;
  const auto beside = [&](bool above) {
    const double below = at(MeasuredBatch{&self, above}, MeasuredBatch{&other, false});
    if (other.part == 0) return below;
    return std::lerp(below, at(MeasuredBatch{&self, above}, MeasuredBatch{&other, true}),
                     other.part);
  };
  const double below = beside(false);
  return self.part == 0 ? below : std::lerp(below, beside(true), self.part);
}

// The features of the learned model in the order of their indices in trees: those of the batch,
// then those of the neighbour.
inline constexpr std::array<std::string_view, 16> kFeatureNames{"log2_batch",
                                                                "share",
                                                                "log_latency_ms",
                                                                "flatness",
                                                                "log_stretch",
                                                                "log_work",
                                                                "l2",
                                                                "dram",
                                                                "other_log2_batch",
                                                                "other_share",
                                                                "other_log_latency_ms",
                                                                "other_flatness",
                                                                "other_log_stretch",
                                                                "other_log_work",
                                                                "other_l2",
                                                                "other_dram"};
using Features = std::array<float, kFeatureNames.size()>;

// The model's identity is not a feature, so that predictions hold for models without pairs. Without
// `utilization`, the utilisation features are 0.
[[nodiscard]] inline Features features_of(const SoloTraits& self, const SoloTraits& other,
                                          bool utilization) {
  const double used = utilization ? 1 : 0;
  Features features{};
  std::size_t next = 0;
  for (const SoloTraits* side : {&self, &other}) {
    for (const double number :
         {side->log2_batch, side->share, side->log_latency_ms, side->flatness, side->log_stretch,
          side->log_work, side->l2 * used, side->dram * used}) {
      features[next++] = static_cast<float>(number);
    }
  }
  return features;
}

}  // namespace gpulet::profile

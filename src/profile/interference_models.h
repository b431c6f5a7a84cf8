// The interference models behind InterferenceModel: features of batches, the table of measured
// pairs, and predictions. Immutable; any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/ids.h"
#include "gpulet/profile/interference.h"
#include "gpulet/profile/profile.h"
#include "profile/boosted_trees.h"

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
  [[nodiscard]] std::span<const SoloTraits> all_cells() const { return cells_; }
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
  // Whether that model was measured next to any.
  [[nodiscard]] bool has(std::uint32_t model) const;
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
  [[nodiscard]] std::uint32_t cell() const { return above ? batch->cell_above : batch->cell_below; }
};

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
inline constexpr std::size_t kFeaturesOfSide = kFeatureNames.size() / 2;
[[nodiscard]] inline std::array<float, kFeaturesOfSide> features_of(const SoloTraits& side,
                                                                    bool utilization) {
  const double used = utilization ? 1 : 0;
  const auto as_float = [](double number) { return static_cast<float>(number); };
  return {as_float(side.log2_batch), as_float(side.share),       as_float(side.log_latency_ms),
          as_float(side.flatness),   as_float(side.log_stretch), as_float(side.log_work),
          as_float(side.l2 * used),  as_float(side.dram * used)};
}

[[nodiscard]] inline Features features_of(const SoloTraits& self, const SoloTraits& other,
                                          bool utilization) {
  Features features{};
  const auto own = features_of(self, utilization);
  const auto others = features_of(other, utilization);
  std::copy(others.begin(), others.end(), std::copy(own.begin(), own.end(), features.begin()));
  return features;
}

// What the trees of a learned model can know of each measured cell beforehand, as the batch and as
// its neighbour. A prediction from it takes a fraction of one from the features.
class LearnedCells {
 public:
  LearnedCells() = default;
  LearnedCells(const BoostedTrees& trees, std::span<const SoloTraits> cells, bool utilization);

  [[nodiscard]] bool empty() const { return own_.empty(); }
  // The predicted logarithm of a slowdown. REQUIRES: the trees and cells that it was made with.
  [[nodiscard]] double predict(const BoostedTrees& trees, std::uint32_t self,
                               std::uint32_t other) const;

  // The predictions for one cell next to many others: the leaves of several trees at a time, as
  // they follow from the other cell alone.
  class Beside {
   public:
    // The same as predict() but for rounding, by at most kRounding.
    [[nodiscard]] float predict(std::uint32_t other) const {
      const std::uint8_t* const codes = cells_->codes_.data() + other * cells_->groups_.size();
      float sum = 0;
      for (std::size_t group = 0; group < cells_->groups_.size(); ++group)
        sum += sums_[group * kCodes + codes[group]];
      return sum;
    }
    static constexpr double kRounding = 1e-4;

   private:
    friend class LearnedCells;
    const LearnedCells* cells_ = nullptr;
    std::vector<float> sums_;  // [group * kCodes + code]
  };
  [[nodiscard]] Beside beside(const BoostedTrees& trees, std::uint32_t self) const;

 private:
  static constexpr std::size_t kCodeBits = 8;
  static constexpr std::size_t kCodes = std::size_t{1} << kCodeBits;
  // Consecutive trees that together ask at most kCodeBits questions about the other batch.
  struct Group {
    std::size_t first_tree = 0;
    std::size_t trees = 0;
  };
  void group_trees(const BoostedTrees& trees);
  void encode(std::size_t cells, std::size_t trees);

  std::vector<std::uint8_t> own_;     // [cell * trees + tree]: bits of the leaf's index
  std::vector<std::uint8_t> others_;  // the same for the other batch
  // By tree: the bits that the other batch decides.
  std::vector<std::uint8_t> asked_;
  std::vector<Group> groups_;
  std::vector<std::uint8_t> codes_;  // [cell * groups + group]: those bits of its trees, joined
};

// One kind of interference model with its parameters.
struct Fitted {
  InterferenceKind kind = InterferenceKind::none;
  LinearCoefficients linear{};  // linear
  // learned, and combined if the profile has such a fit; predict the logarithm of the slowdown
  std::optional<BoostedTrees> trees{};
  bool utilization = false;              // of `trees`
  LearnedCells cells{};                  // of `trees`; empty: each prediction starts from features
  std::optional<MeasuredPairs> pairs{};  // measured, combined
  std::shared_ptr<const PairModel> inss{};  // inss

  void set_trees(const InterferenceFit& fit, const SoloTraitsTable& table);

  // Whether predictions for the model follow from `cells` alone.
  [[nodiscard]] bool only_learned(std::uint32_t model) const;

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

}  // namespace gpulet::profile

#include "gpulet/profile/interference.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "profile/fitting.h"
#include "profile/interference_models.h"

namespace gpulet::profile {
namespace {

template <typename T>
void sort_unique(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

// The value at `part` of the way from `a` to `b`.
UtilizationTable::Fractions between(const UtilizationTable::Fractions& a,
                                    const UtilizationTable::Fractions& b, double part) {
  return {.l2 = std::lerp(a.l2, b.l2, part), .dram = std::lerp(a.dram, b.dram, part)};
}

}  // namespace

UtilizationTable::UtilizationTable(const std::vector<Utilization>& samples) {
  std::vector<Utilization> sorted = samples;
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.share != b.share ? a.share < b.share : a.batch < b.batch;
  });
  for (const Utilization& sample : sorted) {
    if (curves_.empty() || curves_.back().share != sample.share) {
      curves_.push_back({.share = sample.share, .batches = {}, .fractions = {}});
    }
    curves_.back().batches.push_back(sample.batch);
    curves_.back().fractions.push_back({.l2 = sample.l2, .dram = sample.dram});
  }
}

UtilizationTable::Fractions UtilizationTable::within_curve(const Curve& curve,
                                                           std::uint32_t batch) {
  const auto above = std::lower_bound(curve.batches.begin(), curve.batches.end(), batch);
  if (above == curve.batches.end()) return curve.fractions.back();
  const auto index = static_cast<std::size_t>(above - curve.batches.begin());
  if (index == 0 || *above == batch) return curve.fractions[index];
  const double below = curve.batches[index - 1];
  return between(curve.fractions[index - 1], curve.fractions[index],
                 (batch - below) / (*above - below));
}

UtilizationTable::Fractions UtilizationTable::at(std::uint32_t batch, Share share) const {
  if (curves_.empty()) return {};
  const auto larger =
      std::lower_bound(curves_.begin(), curves_.end(), share,
                       [](const Curve& curve, Share size) { return curve.share < size; });
  if (larger == curves_.end()) return within_curve(curves_.back(), batch);
  if (larger == curves_.begin() || larger->share == share) return within_curve(*larger, batch);
  const auto smaller = larger - 1;
  // Linear in 1 / size.
  const double inverse_larger = 1.0 / larger->share.percent;
  const double part =
      (1.0 / share.percent - inverse_larger) / (1.0 / smaller->share.percent - inverse_larger);
  return between(within_curve(*larger, batch), within_curve(*smaller, batch), part);
}

SoloTraitsTable::SoloTraitsTable(const Profile& profile) {
  for (const auto& [name, known] : profile.models) {
    Model model{.number = static_cast<std::uint32_t>(models_.size()),
                .first_cell = static_cast<std::uint32_t>(cells_.size()),
                .latency = &known.latency,
                .least_ms = known.latency.samples().front().latency_ms,
                .utilization = UtilizationTable(known.utilization),
                .batches = {},
                .sizes = {}};
    for (const LatencySample& sample : known.latency.samples()) {
      model.batches.push_back(sample.batch);
      model.sizes.push_back(sample.share);
      model.least_ms = std::min(model.least_ms, sample.latency_ms);
    }
    sort_unique(model.batches);
    sort_unique(model.sizes);
    for (const Share size : model.sizes) {
      for (const std::uint32_t batch : model.batches) {
        cells_.push_back(look_up(model, batch, size).value_or(SoloTraits{}));
      }
    }
    has_utilization_ = has_utilization_ && !known.utilization.empty();
    models_.emplace(name, std::move(model));
  }
}

std::uint32_t SoloTraitsTable::number_of(std::string_view model) const {
  const auto found = models_.find(model);
  return found == models_.end() ? BatchTraits::kUnknown : found->second.number;
}

std::optional<SoloTraits> SoloTraitsTable::look_up(const Model& model, std::uint32_t batch,
                                                   Share share) {
  const auto latency_ms = model.latency->latency_ms(batch, share);
  if (!latency_ms) return std::nullopt;
  double widest_ms = *latency_ms;  // at the largest measured size that has a latency
  for (auto size = model.sizes.rbegin(); size != model.sizes.rend() && *size > share; ++size) {
    if (const auto answer = model.latency->latency_ms(batch, *size)) {
      widest_ms = *answer;
      break;
    }
  }
  const UtilizationTable::Fractions used = model.utilization.at(batch, share);
  return SoloTraits{.log2_batch = std::log2(batch),
                    .share = share.fraction(),
                    .log_latency_ms = std::log(*latency_ms),
                    .flatness = widest_ms / *latency_ms,
                    .log_stretch = std::log(*latency_ms / model.least_ms),
                    .log_work = std::log(*latency_ms * share.fraction() / batch),
                    .l2 = used.l2,
                    .dram = used.dram};
}

std::optional<SoloTraits> SoloTraitsTable::solo(std::string_view model, std::uint32_t batch,
                                                Share share) const {
  const auto found = models_.find(model);
  if (found == models_.end()) return std::nullopt;
  return look_up(found->second, batch, share);
}

BatchTraits SoloTraitsTable::traits(std::string_view name, std::uint32_t batch, Share share) const {
  const auto found = models_.find(name);
  if (found == models_.end() || !found->second.latency->latency_ms(batch, share)) return {};
  const Model& model = found->second;
  // L(batch, share) exists, so `above` exists: no batch beyond the largest measured one has a
  // latency.
  const auto batches = model.batches.begin();
  const auto above = std::lower_bound(batches, model.batches.end(), batch);
  const bool measured = above == batches || *above == batch;
  const auto below = measured ? above : above - 1;
  BatchTraits traits;
  traits.model = model.number;
  traits.log2_percent = std::log2(share.percent);
  if (!measured) traits.part = static_cast<double>(batch - *below) / (*above - *below);
  const auto size = std::lower_bound(model.sizes.begin(), model.sizes.end(), share);
  if (size != model.sizes.end() && *size == share) {
    const auto row = static_cast<std::size_t>(size - model.sizes.begin()) * model.batches.size();
    const auto cell = [&](auto at) {
      return static_cast<std::uint32_t>(model.first_cell + row +
                                        static_cast<std::size_t>(at - batches));
    };
    traits.cell_below = cell(below);
    traits.cell_above = cell(above);
    traits.below = cells_[traits.cell_below];
    traits.above = cells_[traits.cell_above];
    return traits;
  }
  const auto at_below = look_up(model, *below, share);
  const auto at_above = measured ? at_below : look_up(model, *above, share);
  if (!at_below || !at_above) return {};
  traits.below = *at_below;
  traits.above = *at_above;
  return traits;
}

MeasuredPairs::MeasuredPairs(const std::vector<PairSample>& pairs, const Profile& profile,
                             const SoloTraitsTable& models) {
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const PairSample& pair = pairs[i];
    const ModelProfile* const alone = profile.find(pair.model);
    if (alone == nullptr || profile.find(pair.other_model) == nullptr) continue;
    const std::optional<double> latency_ms = alone->latency.latency_ms(pair.batch, pair.share);
    if (!latency_ms) continue;
    cells_.push_back({.model = models.number_of(pair.model),
                      .other_model = models.number_of(pair.other_model),
                      .key = {std::log2(pair.batch), std::log2(pair.share.percent),
                              std::log2(pair.other_batch), std::log2(pair.other_share.percent)},
                      .order = static_cast<std::uint32_t>(i),
                      .slowdown = std::max(pair.latency_ms / *latency_ms, 1.0),
                      .end = {}});
  }
  const auto place = [](const Cell& cell) {
    return std::tie(cell.model, cell.other_model, cell.key, cell.order);
  };
  std::sort(cells_.begin(), cells_.end(),
            [&place](const Cell& a, const Cell& b) { return place(a) < place(b); });
  // From the last cell on, because a run of equal cells ends where that of the next cell does.
  for (std::size_t i = cells_.size(); i-- > 0;) {
    Cell& cell = cells_[i];
    bool same = i + 1 < cells_.size() && cell.model == cells_[i + 1].model &&
                cell.other_model == cells_[i + 1].other_model;
    for (std::size_t level = 0; level < kLevels; ++level) {
      same = same && cell.key[level] == cells_[i + 1].key[level];
      cell.end[level] = same ? cells_[i + 1].end[level] : static_cast<std::uint32_t>(i + 1);
    }
  }
}

double MeasuredPairs::slowdown(const Side& self, const Side& other) const {
  const Key target{self.log_batch, self.log_percent, other.log_batch, other.log_percent};
  const auto models = std::pair(self.model, other.model);
  auto cell = std::lower_bound(cells_.begin(), cells_.end(), models, [](const Cell& c, auto key) {
    return std::pair(c.model, c.other_model) < key;
  });
  double nearest = std::numeric_limits<double>::infinity();  // the distance of `best`
  const Cell* best = nullptr;
  while (cell != cells_.end() && std::pair(cell->model, cell->other_model) == models) {
    // The distance grows with each level. Cells that agree up to a level that is too far away are
    // skipped together.
    double away = 0;
    std::size_t level = 0;
    while (level < kLevels) {
      away += std::abs(cell->key[level] - target[level]);
      if (away > nearest) break;
      ++level;
    }
    if (level == kLevels) {
      if (away < nearest || cell->order < best->order) {
        nearest = away;
        best = &*cell;
      }
      ++cell;
    } else {
      cell = cells_.begin() + cell->end[level];
    }
  }
  return best == nullptr ? 1 : best->slowdown;
}

std::optional<double> MeasuredPairs::exact(const Side& self, const Side& other) const {
  const Key target{self.log_batch, self.log_percent, other.log_batch, other.log_percent};
  const auto place = [](const Cell& cell) {
    return std::tie(cell.model, cell.other_model, cell.key);
  };
  const auto found = std::lower_bound(
      cells_.begin(), cells_.end(), std::tie(self.model, other.model, target),
      [&place](const Cell& cell, const auto& wanted) { return place(cell) < wanted; });
  if (found == cells_.end() || place(*found) != std::tie(self.model, other.model, target))
    return std::nullopt;
  return found->slowdown;
}

bool MeasuredPairs::has(std::uint32_t model) const {
  const auto first =
      std::lower_bound(cells_.begin(), cells_.end(), model,
                       [](const Cell& cell, std::uint32_t wanted) { return cell.model < wanted; });
  return first != cells_.end() && first->model == model;
}

namespace {

double predict_linear(const LinearCoefficients& fit, const SoloTraits& self,
                      const SoloTraits& other) {
  return fit.l2_self * self.l2 + fit.l2_other * other.l2 + fit.dram_self * self.dram +
         fit.dram_other * other.dram + fit.constant;
}

MeasuredPairs::Side pair_side(const MeasuredBatch& batch) {
  return {batch.batch->model, batch.solo().log2_batch, batch.batch->log2_percent};
}

PairModel::Side inss_side(const MeasuredBatch& batch) {
  return {.model = batch.batch->model,
          .batch = std::exp2(batch.solo().log2_batch),
          .share = batch.solo().share};
}

}  // namespace

LearnedCells::LearnedCells(const BoostedTrees& trees, std::span<const SoloTraits> cells,
                           bool utilization)
    : own_(cells.size() * trees.trees()), others_(own_.size()) {
  const std::size_t count = trees.trees();
  for (std::size_t cell = 0; cell < cells.size(); ++cell) {
    const auto features = features_of(cells[cell], utilization);
    trees.answer(features, 0, std::span(own_).subspan(cell * count, count));
    trees.answer(features, features.size(), std::span(others_).subspan(cell * count, count));
  }
  group_trees(trees);
  encode(cells.size(), count);
}

// A question about the other batch is one about a feature from kFeaturesOfSide on.
void LearnedCells::group_trees(const BoostedTrees& trees) {
  std::size_t bits = 0;
  for (std::size_t tree = 0; tree < trees.trees(); ++tree) {
    unsigned asked = 0;
    for (std::size_t level = 0; level < trees.depth(); ++level) {
      const std::size_t feature = trees.questions()[tree * trees.depth() + level].feature;
      asked = 2 * asked + (feature >= kFeaturesOfSide ? 1U : 0U);
    }
    asked_.push_back(static_cast<std::uint8_t>(asked));
    const auto more = static_cast<std::size_t>(std::popcount(asked));
    if (groups_.empty() || bits + more > kCodeBits) {
      groups_.push_back({tree, 0});
      bits = 0;
    }
    ++groups_.back().trees;
    bits += more;
  }
}

// Extracts the bits of `asked_` from each leaf, the highest bit first, and joins those of a group.
void LearnedCells::encode(std::size_t cells, std::size_t trees) {
  codes_.reserve(cells * groups_.size());
  for (std::size_t cell = 0; cell < cells; ++cell) {
    for (const Group& group : groups_) {
      unsigned code = 0;
      for (std::size_t tree = group.first_tree; tree < group.first_tree + group.trees; ++tree) {
        const unsigned leaf = others_[cell * trees + tree];
        for (unsigned bit = 1U << (kCodeBits - 1); bit != 0; bit >>= 1) {
          if ((asked_[tree] & bit) != 0) code = 2 * code + ((leaf & bit) != 0 ? 1U : 0U);
        }
      }
      codes_.push_back(static_cast<std::uint8_t>(code));
    }
  }
}

LearnedCells::Beside LearnedCells::beside(const BoostedTrees& trees, std::uint32_t self) const {
  Beside result;
  result.cells_ = this;
  result.sums_.assign(groups_.size() * kCodes, 0);
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    float* const sums = result.sums_.data() + group * kCodes;
    if (group == 0) sums[0] = static_cast<float>(trees.base());
    std::size_t codes = 1;
    const std::size_t first = groups_[group].first_tree;
    for (std::size_t tree = first; tree < first + groups_[group].trees; ++tree) {
      const unsigned own = own_[self * trees.trees() + tree];
      const unsigned asked = asked_[tree];
      const float* const leaves = trees.leaves().data() + (tree << trees.depth());
      const std::size_t answers = std::size_t{1} << std::popcount(asked);
      // Replaces each code by the codes that append an answer of this tree. Starts at the last
      // code, so that no sum is overwritten before it was read.
      for (std::size_t code = codes; code-- > 0;) {
        unsigned answer = 0;  // each subset of the bits in `asked`, in ascending order
        const float before = sums[code];
        for (std::size_t at = 0; at < answers; ++at) {
          sums[code * answers + at] = before + leaves[own | answer];
          answer = (answer - asked) & asked;
        }
      }
      codes *= answers;
    }
  }
  return result;
}

double LearnedCells::predict(const BoostedTrees& trees, std::uint32_t self,
                             std::uint32_t other) const {
  const std::size_t count = trees.trees();
  return trees.predict_joined(std::span(own_).subspan(self * count, count),
                              std::span(others_).subspan(other * count, count));
}

void Fitted::set_trees(const InterferenceFit& fit, const SoloTraitsTable& table) {
  trees = *fit.learned;
  utilization = fit.learned_uses_utilization;
  cells = LearnedCells(*trees, table.all_cells(), utilization);
}

bool Fitted::only_learned(std::uint32_t model) const {
  if (cells.empty() || model == BatchTraits::kUnknown) return false;
  return kind == InterferenceKind::learned ||
         (kind == InterferenceKind::combined && !pairs->has(model));
}

double Fitted::learned(const MeasuredBatch& self, const MeasuredBatch& other) const {
  const bool known = self.cell() != BatchTraits::kUnknown && other.cell() != BatchTraits::kUnknown;
  if (known && !cells.empty()) return std::exp(cells.predict(*trees, self.cell(), other.cell()));
  return std::exp(trees->predict(features_of(self.solo(), other.solo(), utilization)));
}

double Fitted::combined(const MeasuredBatch& self, const MeasuredBatch& other) const {
  if (const auto measured = pairs->exact(pair_side(self), pair_side(other))) return *measured;
  return trees ? learned(self, other) : pairs->slowdown(pair_side(self), pair_side(other));
}

double Fitted::slowdown(const MeasuredBatch& self, const MeasuredBatch& other) const {
  double slowdown = 1;
  switch (kind) {
    case InterferenceKind::none:
      break;
    case InterferenceKind::linear:
      slowdown = predict_linear(linear, self.solo(), other.solo());
      break;
    case InterferenceKind::learned:
      slowdown = learned(self, other);
      break;
    case InterferenceKind::measured:
      slowdown = pairs->slowdown(pair_side(self), pair_side(other));
      break;
    case InterferenceKind::inss:
      slowdown = inss->slowdown(inss_side(self), inss_side(other));
      break;
    case InterferenceKind::combined:
      slowdown = combined(self, other);
      break;
  }
  return std::clamp(slowdown, 1.0, kMostSlowdown);
}

namespace {

// Indexed by InterferenceKind.
constexpr std::array<std::string_view, 6> kKindNames{"none",     "linear", "learned",
                                                     "measured", "inss",   "combined"};

// Profiles with more cells have no cache; the cache takes at most 8 MB.
constexpr std::size_t kMostCachedCells = 1024;

Status no_fit(const Profile& profile, InterferenceKind kind) {
  const bool noted = profile.interference && !profile.interference->note.empty();
  return {StatusCode::not_found,
          fmt::format("profile {}: has no fit of the {} interference model{}; import it with "
                      "measured pairs (`gpulet profile import` with --interference, and with "
                      "--utilization for linear), or plan with interference none",
                      profile.name, to_string(kind),
                      noted ? fmt::format(" ({})", profile.interference->note) : "")};
}

Status no_pair(const Profile& profile) {
  return {StatusCode::not_found,
          fmt::format("profile {}: has no measured pair of its models; import it with `gpulet "
                      "profile import` and --interference, or plan with interference none",
                      profile.name)};
}

Status no_inss() {
  return {StatusCode::not_found,
          "the interference model inss is part of the research library, which this program was "
          "built without: build it with -DGPULET_WITH_RESEARCH=ON, or plan with another model"};
}

}  // namespace

std::string_view to_string(InterferenceKind kind) {
  return kKindNames.at(static_cast<std::size_t>(kind));
}

Result<InterferenceKind> parse_interference_kind(std::string_view text) {
  const auto* const found = std::find(kKindNames.begin(), kKindNames.end(), text);
  if (found != kKindNames.end()) {
    return static_cast<InterferenceKind>(found - kKindNames.begin());
  }
  return Status(StatusCode::invalid,
                fmt::format("interference model \"{}\" is unknown; write none, linear, learned, "
                            "measured, inss or combined",
                            text));
}

struct InterferenceModel::Predictor {
  explicit Predictor(const Profile& profile) : table(profile) {
    const std::size_t cells = table.cells();
    if (cells <= kMostCachedCells) cache = std::vector<std::atomic<double>>(cells * cells);
  }

  // The prediction, cached where both are measured cells. All threads compute the same value, so
  // concurrent stores are harmless.
  [[nodiscard]] double at(const MeasuredBatch& self, const MeasuredBatch& other) const {
    const std::uint32_t row = self.cell();
    const std::uint32_t column = other.cell();
    if (cache.empty() || row == BatchTraits::kUnknown || column == BatchTraits::kUnknown) {
      return fitted.slowdown(self, other);
    }
    std::atomic<double>& entry = cache[row * table.cells() + column];
    const double known = entry.load(std::memory_order_relaxed);
    if (known != 0) return known;
    const double slowdown = fitted.slowdown(self, other);
    entry.store(slowdown, std::memory_order_relaxed);
    return slowdown;
  }

  // InterferenceModel::least_slowdown() by LearnedCells::Beside, which adds the leaves of several
  // trees at a time. Empty where a batch is not a measured one or the prediction needs other
  // models.
  [[nodiscard]] std::optional<double> least_learned(const BatchTraits& self,
                                                    std::span<const BatchTraits> others) const {
    const bool measured = self.part == 0 && self.cell_below != BatchTraits::kUnknown;
    if (!measured || !fitted.only_learned(self.model)) return std::nullopt;
    const LearnedCells::Beside beside = fitted.cells.beside(*fitted.trees, self.cell_below);
    float least = std::numeric_limits<float>::infinity();
    for (const BatchTraits& other : others) {
      if (other.part != 0 || other.cell_below == BatchTraits::kUnknown) return std::nullopt;
      least = std::min(least, beside.predict(other.cell_below));
    }
    return std::clamp(std::exp(least - LearnedCells::Beside::kRounding), 1.0, kMostSlowdown);
  }

  SoloTraitsTable table;
  Fitted fitted;
  // [cell of self * cells + cell of other]; 0: not computed yet. Empty for large profiles.
  mutable std::vector<std::atomic<double>> cache;
};

Result<InterferenceModel> InterferenceModel::create(const Profile& profile, InterferenceKind kind,
                                                    FitPairModel fit_inss) {
  auto predictor = std::make_shared<Predictor>(profile);
  const std::optional<InterferenceFit>& fit = profile.interference;
  Fitted& fitted = predictor->fitted;
  fitted.kind = kind;
  switch (kind) {
    case InterferenceKind::none:
      break;
    case InterferenceKind::linear:
      if (!fit || !fit->linear) return no_fit(profile, kind);
      fitted.linear = *fit->linear;
      break;
    case InterferenceKind::learned:
      if (!fit || !fit->learned.has_value()) return no_fit(profile, kind);
      fitted.set_trees(*fit, predictor->table);
      break;
    case InterferenceKind::measured:
      fitted.pairs.emplace(profile.pairs, profile, predictor->table);
      if (fitted.pairs->size() == 0) return no_pair(profile);
      break;
    case InterferenceKind::inss:
      if (fit_inss == nullptr) return no_inss();
      fitted.inss = fit_inss(profile, drawn_pairs(profile, fit ? fit->seed : FitOptions{}.seed));
      if (!fitted.inss->knows_neighbours()) return no_pair(profile);
      break;
    case InterferenceKind::combined:
      fitted.pairs.emplace(profile.pairs, profile, predictor->table);
      if (fit && fit->learned.has_value()) {
        fitted.set_trees(*fit, predictor->table);
      } else if (fitted.pairs->size() == 0) {
        return no_pair(profile);
      }
      break;
  }
  InterferenceModel model;
  model.predictor_ = std::move(predictor);
  return model;
}

InterferenceKind InterferenceModel::kind() const { return predictor_->fitted.kind; }

BatchTraits InterferenceModel::traits(std::string_view model, std::uint32_t batch,
                                      Share share) const {
  return predictor_->table.traits(model, batch, share);
}

double InterferenceModel::slowdown(const BatchTraits& self, const BatchTraits& other) const {
  return between_measured(self, other, [this](const MeasuredBatch& one, const MeasuredBatch& two) {
    return predictor_->at(one, two);
  });
}

double InterferenceModel::least_slowdown(const BatchTraits& self,
                                         std::span<const BatchTraits> others) const {
  if (others.empty()) return kMostSlowdown;
  if (const auto least = predictor_->least_learned(self, others)) return *least;
  double least = kMostSlowdown;
  for (const BatchTraits& other : others) least = std::min(least, slowdown(self, other));
  return least;
}

Result<InterferenceSet> interference_of(const ProfileSet& profiles, InterferenceKind kind,
                                        FitPairModel fit_inss) {
  InterferenceSet set;
  if (kind == InterferenceKind::none) return set;
  for (const auto& [type, profile] : profiles) {
    GPULET_TRY(InterferenceModel model, InterferenceModel::create(profile, kind, fit_inss));
    set.emplace(type, std::move(model));
  }
  return set;
}

}  // namespace gpulet::profile

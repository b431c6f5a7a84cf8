#include <fmt/format.h>

#include <Eigen/QR>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/percentile.h"
#include "gpulet/base/random.h"
#include "gpulet/profile/interference.h"
#include "profile/fitting.h"
#include "profile/interference_models.h"

namespace gpulet::profile {
std::optional<std::vector<double>> least_squares(const std::vector<double>& rows,
                                                 std::size_t columns,
                                                 const std::vector<double>& targets) {
  const std::size_t count = targets.size();
  if (count < columns || columns == 0 || rows.size() != count * columns) return std::nullopt;
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const auto width = static_cast<Eigen::Index>(columns);
  const Matrix matrix =
      Eigen::Map<const Matrix>(rows.data(), static_cast<Eigen::Index>(count), width);
  const Eigen::HouseholderQR<Matrix> qr(matrix);
  // The diagonal has the part of each column that does not depend on the columns before it.
  for (Eigen::Index column = 0; column < width; ++column) {
    constexpr double kDependent = 1e-10;
    const double independent = std::abs(qr.matrixQR()(column, column));
    if (!(independent > kDependent * matrix.col(column).norm())) return std::nullopt;
  }
  const Eigen::VectorXd weights =
      qr.solve(Eigen::Map<const Eigen::VectorXd>(targets.data(), static_cast<Eigen::Index>(count)));
  if (!weights.allFinite()) return std::nullopt;
  return std::vector<double>(weights.begin(), weights.end());
}

std::optional<double> pair_slowdown(const Profile& profile, const PairSample& pair) {
  const ModelProfile* const self = profile.find(pair.model);
  const ModelProfile* const other = profile.find(pair.other_model);
  if (self == nullptr || other == nullptr) return std::nullopt;
  const std::optional<double> alone_ms = self->latency.latency_ms(pair.batch, pair.share);
  if (!alone_ms || !other->latency.latency_ms(pair.other_batch, pair.other_share)) {
    return std::nullopt;
  }
  const double slowdown = pair.latency_ms / *alone_ms;
  if (!std::isnormal(slowdown)) return std::nullopt;
  return slowdown;
}

std::vector<std::size_t> drawn_order(std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Random random(stream_seed(seed, "pairs"));
  for (std::size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

std::vector<const PairSample*> drawn_pairs(const Profile& profile, std::uint64_t seed) {
  std::vector<const PairSample*> usable;
  for (const PairSample& pair : profile.pairs) {
    if (pair_slowdown(profile, pair)) usable.push_back(&pair);
  }
  std::vector<const PairSample*> drawn;
  drawn.reserve(usable.size());
  for (const std::size_t number : drawn_order(usable.size(), seed)) {
    drawn.push_back(usable[number]);
  }
  return drawn;
}

namespace {

// A measured pair with its features.
struct Example {
  const PairSample* pair = nullptr;
  SoloTraits self;  // features at exactly its batches
  SoloTraits other;
  BatchTraits self_traits;  // inputs of a prediction
  BatchTraits other_traits;
  double slowdown = 1;
};

using Examples = std::vector<Example>;
using Chosen = std::vector<bool>;        // by example
using Order = std::vector<std::size_t>;  // of the examples, in random order

Examples examples_of(const Profile& profile, const SoloTraitsTable& table) {
  Examples examples;
  for (const PairSample& pair : profile.pairs) {
    const auto self = table.solo(pair.model, pair.batch, pair.share);
    const auto other = table.solo(pair.other_model, pair.other_batch, pair.other_share);
    if (!self || !other) continue;
    const auto slowdown = pair_slowdown(profile, pair);
    if (!slowdown) continue;
    examples.push_back(
        {.pair = &pair,
         .self = *self,
         .other = *other,
         .self_traits = table.traits(pair.model, pair.batch, pair.share),
         .other_traits = table.traits(pair.other_model, pair.other_batch, pair.other_share),
         .slowdown = *slowdown});
  }
  return examples;
}

// Draws the fraction, rounded to examples; at least one is fitted and one is held out.
Chosen draw(const Order& order, double train_fraction) {
  const auto count =
      static_cast<std::size_t>(std::lround(train_fraction * static_cast<double>(order.size())));
  Chosen fitted(order.size(), false);
  for (std::size_t i = 0; i < std::clamp<std::size_t>(count, 1, order.size() - 1); ++i) {
    fitted[order[i]] = true;
  }
  return fitted;
}

// Empty where the pairs' utilisations depend on each other.
std::optional<Fitted> fit_linear(const Examples& examples, const Chosen& chosen) {
  std::vector<double> rows;
  std::vector<double> targets;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    if (!chosen[i]) continue;
    const Example& example = examples[i];
    for (const double number :
         {example.self.l2, example.other.l2, example.self.dram, example.other.dram, 1.0}) {
      rows.push_back(number);
    }
    targets.push_back(example.slowdown);
  }
  constexpr std::size_t kCoefficients = 5;
  const auto weights = least_squares(rows, kCoefficients, targets);
  if (!weights) return std::nullopt;
  const std::vector<double>& w = *weights;
  Fitted fitted;
  fitted.kind = InterferenceKind::linear;
  fitted.linear = {
      .l2_self = w[0], .l2_other = w[1], .dram_self = w[2], .dram_other = w[3], .constant = w[4]};
  return fitted;
}

Result<Fitted> fit_learned(const Examples& examples, const Chosen& chosen, bool utilization,
                           std::uint64_t seed) {
  std::vector<float> rows;
  std::vector<double> targets;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    if (!chosen[i]) continue;
    const Features features = features_of(examples[i].self, examples[i].other, utilization);
    rows.insert(rows.end(), features.begin(), features.end());
    // In logarithms, a factor too large counts as much as the same factor too small.
    targets.push_back(std::log(examples[i].slowdown));
  }
  GPULET_TRY(BoostedTrees trees, fit_boosted_trees(rows, kFeatureNames.size(), targets,
                                                   {.seed = stream_seed(seed, "learned")}));
  Fitted fitted;
  fitted.kind = InterferenceKind::learned;
  fitted.trees = std::move(trees);
  fitted.utilization = utilization;
  return fitted;
}

Fitted keep_measured(const Profile& profile, const SoloTraitsTable& table, const Examples& examples,
                     const Chosen& chosen) {
  std::vector<PairSample> pairs;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    if (chosen[i]) pairs.push_back(*examples[i].pair);
  }
  Fitted fitted;
  fitted.kind = InterferenceKind::measured;
  fitted.pairs.emplace(pairs, profile, table);
  return fitted;
}

// Fits the model `inss` to the chosen pairs, in the order in which they were drawn.
Fitted fit_drawn(FitPairModel fit, const Profile& profile, const Examples& examples,
                 const Order& order, const Chosen& chosen) {
  std::vector<const PairSample*> drawn;
  for (const std::size_t i : order) {
    if (chosen[i]) drawn.push_back(examples[i].pair);
  }
  Fitted fitted;
  fitted.kind = InterferenceKind::inss;
  fitted.inss = fit(profile, drawn);
  return fitted;
}

// Relative latency errors of the examples that were not chosen.
std::vector<double> errors_of(const Fitted& fitted, const Examples& examples,
                              const Chosen& chosen) {
  std::vector<double> errors;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    if (chosen[i]) continue;
    const double predicted =
        between_measured(examples[i].self_traits, examples[i].other_traits,
                         [&fitted](const MeasuredBatch& a, const MeasuredBatch& b) {
                           return fitted.slowdown(a, b);
                         });
    errors.push_back(std::abs(predicted / examples[i].slowdown - 1));
  }
  return errors;
}

class Fitting {
 public:
  Fitting(const Profile& profile, const FitOptions& options)
      : profile_(profile),
        options_(options),
        table_(profile),
        examples_(examples_of(profile, table_)),
        order_(drawn_order(examples_.size(), options.seed)) {}

  Result<InterferenceFit> run() {
    fit_.seed = options_.seed;
    fit_.train_fraction = options_.train_fraction;
    fit_.pairs = examples_.size();
    if (examples_.size() < kLeastPairs) {
      add_note(fmt::format(
          "no model: {} pairs whose batches were also measured alone; at least {} are needed",
          examples_.size(), kLeastPairs));
      return fit_;
    }
    fit_.learned_uses_utilization = table_.has_utilization();
    if (!table_.has_utilization()) {
      add_note("no linear model: not every model's utilisation was measured");
    }
    const Chosen chosen = draw(order_, options_.train_fraction);
    GPULET_TRY(std::vector<Fitted> models, fit_all(chosen, &fit_.note));
    for (const Fitted& model : models) {
      const std::vector<double> errors = errors_of(model, examples_, chosen);
      fit_.errors.push_back({.kind = model.kind,
                             .p50 = percentile(errors, 50).value(),
                             .p90 = percentile(errors, 90).value(),
                             .p95 = percentile(errors, 95).value(),
                             .unseen_model_p90 = {}});
      if (model.kind == InterferenceKind::linear) fit_.linear = model.linear;
    }
    if (Status status = hold_out_each_model(); !status.ok()) return status;
    Result<Fitted> learned = fit_learned(examples_, Chosen(examples_.size(), true),
                                         fit_.learned_uses_utilization, options_.seed);
    if (!learned.ok()) return learned.status();
    fit_.learned = FittedTrees(*std::move(learned.value().trees));
    return fit_;
  }

 private:
  void add_note(const std::string& note) { fit_.note += (fit_.note.empty() ? "" : "; ") + note; }

  // Fits every kind that the profile supports to the chosen examples.
  Result<std::vector<Fitted>> fit_all(const Chosen& chosen, std::string* note) const {
    std::vector<Fitted> models(1);  // none
    if (table_.has_utilization()) {
      if (std::optional<Fitted> linear = fit_linear(examples_, chosen)) {
        models.push_back(*std::move(linear));
      } else if (note != nullptr) {
        *note += "no linear model: the pairs' utilisations depend on each other";
      }
    }
    GPULET_TRY(Fitted learned,
               fit_learned(examples_, chosen, fit_.learned_uses_utilization, options_.seed));
    models.push_back(std::move(learned));
    models.push_back(keep_measured(profile_, table_, examples_, chosen));
    if (options_.fit_inss != nullptr)
      models.push_back(fit_drawn(options_.fit_inss, profile_, examples_, order_, chosen));
    return models;
  }

  // Estimates the errors for a model without pairs by leaving out each model in turn.
  Status hold_out_each_model() {
    std::set<std::string_view> names;
    for (const Example& example : examples_) {
      names.insert(example.pair->model);
      names.insert(example.pair->other_model);
    }
    for (const std::string_view name : names) {
      Chosen chosen;
      for (const Example& example : examples_) {
        chosen.push_back(example.pair->model != name && example.pair->other_model != name);
      }
      const auto left = std::count(chosen.begin(), chosen.end(), true);
      if (left < static_cast<std::ptrdiff_t>(kLeastPairs)) continue;
      GPULET_TRY(std::vector<Fitted> models, fit_all(chosen, nullptr));
      for (const Fitted& model : models) {
        for (HeldOutErrors& errors : fit_.errors) {
          if (errors.kind != model.kind) continue;
          errors.unseen_model_p90.emplace(
              name, percentile(errors_of(model, examples_, chosen), 90).value());
        }
      }
    }
    return {};
  }

  const Profile& profile_;
  const FitOptions options_;
  const SoloTraitsTable table_;
  const Examples examples_;
  const Order order_;
  InterferenceFit fit_;
};

}  // namespace

Result<InterferenceFit> fit_interference(const Profile& profile, const FitOptions& options) {
  if (!(options.train_fraction > 0 && options.train_fraction < 1)) {
    return Status(
        StatusCode::invalid,
        fmt::format("train fraction {:f}: must be above 0 and below 1; write for example 0.7",
                    options.train_fraction));
  }
  return Fitting(profile, options).run();
}

}  // namespace gpulet::profile

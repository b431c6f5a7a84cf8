#include "gpulet/profile/interference.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "gpulet/profile/fit.h"
#include "profile/fitted.h"
#include "profile/solo_traits.h"

namespace gpulet::profile {
namespace {

// Indexed by InterferenceKind.
constexpr std::array<std::string_view, 5> kKindNames{"none", "linear", "learned", "measured",
                                                     "inss"};

// Cells of a profile whose answers are remembered: their squares take at most 8 MB.
constexpr std::size_t kMostRemembered = 1024;

double log_ratio(double a, double b) { return std::abs(std::log2(a) - std::log2(b)); }

double distance(const PairSample& pair, const CoRunner& self, const CoRunner& other) {
  return log_ratio(pair.batch, self.batch) + log_ratio(pair.share.percent, self.share.percent) +
         log_ratio(pair.other_batch, other.batch) +
         log_ratio(pair.other_share.percent, other.share.percent);
}

Status no_fit(const Profile& profile, InterferenceKind kind) {
  std::string why = "holds no fit of the " + std::string(to_string(kind)) + " interference model";
  if (profile.interference && !profile.interference->note.empty()) {
    why += " (" + profile.interference->note + ")";
  }
  return {StatusCode::not_found,
          "profile " + profile.name + ": " + why +
              "; import it with measured pairs (`gpulet profile import --interference`, and "
              "--utilization for linear), or plan with interference none"};
}

Status no_pair(const Profile& profile) {
  return {StatusCode::not_found,
          "profile " + profile.name +
              ": holds no measured pair of its models; import it with "
              "`gpulet profile import --interference`, or plan with interference none"};
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
                "interference model \"" + std::string(text) +
                    "\" is unknown; write none, linear, learned, measured or inss");
}

double measured_slowdown(const Profile& profile, const CoRunner& self, const CoRunner& other) {
  const ModelProfile* alone = profile.find(self.model);
  if (alone == nullptr) return 1;
  double nearest = std::numeric_limits<double>::infinity();
  double slowdown = 1;
  for (const PairSample& pair : profile.pairs) {
    if (pair.model != self.model || pair.other_model != other.model) continue;
    const double away = distance(pair, self, other);
    if (!(away < nearest)) continue;
    const std::optional<double> latency_ms = alone->latency.latency_ms(pair.batch, pair.share);
    if (!latency_ms) continue;
    nearest = away;
    slowdown = pair.latency_ms / *latency_ms;
  }
  return std::max(slowdown, 1.0);
}

struct InterferenceModel::Predictor {
  explicit Predictor(const Profile& profile) : table(profile) {
    const std::size_t cells = table.cells();
    if (cells <= kMostRemembered) remembered = std::vector<std::atomic<double>>(cells * cells);
  }

  // The fitted model's answer, from memory where both are measured cells of a profile of usual
  // size. Every thread finds the same answer, so it does not matter who stores it.
  [[nodiscard]] double at(const MeasuredBatch& self, const MeasuredBatch& other) const {
    const std::uint32_t row = self.above ? self.batch->cell_above : self.batch->cell_below;
    const std::uint32_t column = other.above ? other.batch->cell_above : other.batch->cell_below;
    if (remembered.empty() || row == BatchTraits::kUnknown || column == BatchTraits::kUnknown) {
      return fitted.slowdown(self, other);
    }
    std::atomic<double>& place = remembered[row * table.cells() + column];
    const double known = place.load(std::memory_order_relaxed);
    if (known != 0) return known;
    const double slowdown = fitted.slowdown(self, other);
    place.store(slowdown, std::memory_order_relaxed);
    return slowdown;
  }

  SoloTraitsTable table;
  Fitted fitted;
  // By cell of self, then of other; 0: not asked yet. Empty for large profiles.
  mutable std::vector<std::atomic<double>> remembered;
};

Result<InterferenceModel> InterferenceModel::create(const Profile& profile, InterferenceKind kind) {
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
      if (!fit || !fit->learned) return no_fit(profile, kind);
      fitted.trees = fit->learned;
      fitted.utilization = fit->learned_uses_utilization;
      break;
    case InterferenceKind::measured:
      fitted.pairs.emplace(profile.pairs, profile, predictor->table);
      if (fitted.pairs->size() == 0) return no_pair(profile);
      break;
    case InterferenceKind::inss:
      fitted.inss = fit_inss(profile, fit ? fit->seed : FitOptions{}.seed);
      if (!fitted.inss->knows_neighbours()) return no_pair(profile);
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

Result<InterferenceSet> interference_of(const ProfileSet& profiles, InterferenceKind kind) {
  InterferenceSet set;
  if (kind == InterferenceKind::none) return set;
  for (const auto& [type, profile] : profiles) {
    Result<InterferenceModel> model = InterferenceModel::create(profile, kind);
    if (!model.ok()) return model.status();
    set.emplace(type, std::move(model).value());
  }
  return set;
}

}  // namespace gpulet::profile

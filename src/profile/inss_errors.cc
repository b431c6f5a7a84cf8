#include "gpulet/profile/inss_errors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "profile/pair_draw.h"
#include "profile/percentile.h"

namespace gpulet::profile {
namespace {

ErrorSummary summary_of(std::vector<double> errors) {
  if (errors.empty()) return {};
  std::sort(errors.begin(), errors.end());
  return {.count = errors.size(),
          .p50 = percentile(errors, 0.5),
          .p90 = percentile(errors, 0.9),
          .worst = errors.back()};
}

ErrorSummary beside_errors(const InssModel& model, const Profile& profile) {
  const auto fitted = model.fitted_pairs();
  std::vector<double> errors;
  for (const PairSample& pair : profile.pairs) {
    if (!pair_slowdown(profile, pair)) continue;
    if (std::find(fitted.begin(), fitted.end(), pair) != fitted.end()) continue;
    const std::array others{CoRunner{pair.other_model, pair.other_batch, pair.other_share}};
    const auto predicted_ms = model.latency_ms(pair.model, pair.batch, pair.share, others);
    if (predicted_ms) errors.push_back(std::abs(*predicted_ms / pair.latency_ms - 1));
  }
  return summary_of(std::move(errors));
}

}  // namespace

InssErrors held_out_errors(const InssModel& model, const Profile& profile) {
  InssErrors errors;
  std::vector<double> alone;
  std::vector<double> batches;
  std::vector<double> shares;
  std::vector<double> both;
  for (const auto& [name, known] : profile.models) {
    const auto fitted = model.fitted_alone(name);
    const auto any = [&fitted](const auto& is) {
      return std::any_of(fitted.begin(), fitted.end(), is);
    };
    std::vector<double> own;
    for (const LatencySample& sample : known.latency.samples()) {
      if (any([&](const auto& f) { return f.batch == sample.batch && f.share == sample.share; })) {
        continue;
      }
      const auto predicted_ms = model.latency_ms(name, sample.batch, sample.share);
      if (!predicted_ms) continue;
      own.push_back(std::abs(*predicted_ms / sample.latency_ms - 1));
      const bool same_share = any([&](const auto& f) { return f.share == sample.share; });
      const bool same_batch = any([&](const auto& f) { return f.batch == sample.batch; });
      (same_share ? batches : same_batch ? shares : both).push_back(own.back());
    }
    alone.insert(alone.end(), own.begin(), own.end());
    errors.models.emplace(name, summary_of(std::move(own)));
  }
  errors.alone = summary_of(std::move(alone));
  errors.batches = summary_of(std::move(batches));
  errors.shares = summary_of(std::move(shares));
  errors.both = summary_of(std::move(both));
  errors.beside = beside_errors(model, profile);
  return errors;
}

}  // namespace gpulet::profile

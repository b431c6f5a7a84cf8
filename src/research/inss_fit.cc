// Fits the analytical model of InSS to a profile.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "profile/fitting.h"
#include "profile/interference_models.h"
#include "research/inss_model.h"

namespace gpulet::research {

using namespace profile;  // NOLINT(google-build-using-namespace)

namespace {

// Selects `count` of the ascending values, nearest to an even spread over their logarithms,
// including the smallest and the largest. All where there are no more than `count`.
template <typename Value, typename Number>
std::vector<Value> spread(const std::vector<Value>& values, std::size_t count,
                          const Number& number) {
  if (values.size() <= count) return values;
  const double least = std::log(number(values.front()));
  const double most = std::log(number(values.back()));
  std::vector<Value> chosen;
  std::size_t from = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double target =
        std::lerp(least, most, static_cast<double>(i) / static_cast<double>(count - 1));
    const std::size_t end =
        values.size() - (count - 1 - i);  // leaves values for the remaining ones
    std::size_t best = from;
    for (std::size_t at = from; at < end; ++at) {
      const auto away = [&](std::size_t k) {
        return std::abs(std::log(number(values[k])) - target);
      };
      if (away(at) < away(best)) best = at;
    }
    chosen.push_back(values[best]);
    from = best + 1;
  }
  return chosen;
}

// Four sizes, and four batches at each of them.
std::vector<LatencySample> choose_alone(const LatencyTable& table) {
  std::map<Share, std::vector<LatencySample>> by_share;  // batches ascending
  for (const LatencySample& sample : table.samples()) by_share[sample.share].push_back(sample);
  std::vector<Share> shares;
  shares.reserve(by_share.size());
  for (const auto& [share, samples] : by_share) shares.push_back(share);
  std::vector<LatencySample> chosen;
  for (const Share share : spread(shares, kInssShares, [](Share s) { return s.percent; })) {
    for (const LatencySample& sample :
         spread(by_share[share], kInssBatches, [](const LatencySample& s) { return s.batch; })) {
      chosen.push_back(sample);
    }
  }
  return chosen;
}

// intercept + slope * x.
struct Line {
  double intercept = 0;
  double slope = 0;
};

// With `relative`, errors are relative to the targets.
std::optional<Line> fit_line(const std::vector<double>& x, const std::vector<double>& targets,
                             bool relative) {
  std::vector<double> rows;
  std::vector<double> right;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double scale = relative ? 1 / targets[i] : 1;
    rows.push_back(scale);
    rows.push_back(scale * x[i]);
    right.push_back(scale * targets[i]);
  }
  const auto weights = least_squares(rows, 2, right);
  if (!weights) return std::nullopt;
  return Line{.intercept = (*weights)[0], .slope = (*weights)[1]};
}

// The part of a latency that no larger share shortens: the constant c of c + v / share at the
// smallest batch. 0 where that was measured at one size only. The line through all sizes is the
// more robust one; the line through the two largest is needed where work already bounds the
// smallest size.
double scheduling_of(const std::vector<LatencySample>& alone, double transfer_ms) {
  std::vector<double> inverse_shares;  // descending
  std::vector<double> latencies_ms;
  double least_ms = std::numeric_limits<double>::infinity();
  const auto by_batch = [](auto& a, auto& b) { return a.batch < b.batch; };
  const std::uint32_t smallest = std::min_element(alone.begin(), alone.end(), by_batch)->batch;
  for (const LatencySample& sample : alone) {
    const double latency_ms = sample.latency_ms - transfer_ms * sample.batch;
    least_ms = std::min(least_ms, latency_ms);
    if (sample.batch != smallest) continue;
    inverse_shares.push_back(1 / sample.share.fraction());
    latencies_ms.push_back(latency_ms);
  }
  double scheduling_ms = 0;
  for (const std::size_t sizes : {inverse_shares.size(), std::size_t{2}}) {
    const auto last = [sizes](const std::vector<double>& values) {
      return std::vector<double>(values.end() - static_cast<std::ptrdiff_t>(sizes), values.end());
    };
    if (inverse_shares.size() < 2) break;
    const auto line = fit_line(last(inverse_shares), last(latencies_ms), true);
    if (line) scheduling_ms = std::max(scheduling_ms, line->intercept);
  }
  return std::min(scheduling_ms, least_ms);
}

// One pair in the least-squares problem of co-location: the slowdown per unit of each unknown, and
// its target.
struct Equation {
  std::uint32_t model = 0;
  double by_launches = 0;  // per unit of int among two models
  double by_cache = 0;     // per unit of the model's alpha_cache
  double excess = 0;
  double weight = 0;
};

}  // namespace

class InssFitting {
 public:
  InssFitting(const Profile& profile, std::span<const PairSample* const> drawn)
      : profile_(profile) {
    for (const auto& [name, known] : profile_.models) {
      all_counted_ = all_counted_ && known.kernels.has_value();
      all_used_ = all_used_ && !known.utilization.empty();
      all_moved_ = all_moved_ && profile_.pcie_gbps && known.input_bytes && known.output_bytes;
    }
    for (const auto& [name, known] : profile_.models) {
      model_.numbers_.emplace(name, static_cast<std::uint32_t>(model_.served_.size()));
      model_.served_.push_back(alone(known));
    }
    choose_pairs(drawn);
    fit_neighbours();
    take_notes();
  }

  InssModel take() { return std::move(model_); }

 private:
  [[nodiscard]] InssModel::ServedModel alone(const ModelProfile& known) const {
    InssModel::ServedModel served;
    served.alone = choose_alone(known.latency);
    InssCoefficients& fitted = served.coefficients;
    if (all_moved_) fitted.transfer_ms = transfer_of(known, served.alone);
    fitted.scheduling_ms = scheduling_of(served.alone, fitted.transfer_ms);
    fitted.launches = all_counted_ ? *known.kernels : fitted.scheduling_ms;
    std::vector<RunningTime::Sample> samples;
    std::vector<double> shares;
    std::vector<double> used;
    const UtilizationTable utilization(known.utilization);
    for (const LatencySample& sample : served.alone) {
      const double share = sample.share.fraction();
      samples.push_back({.batch = static_cast<double>(sample.batch),
                         .share = share,
                         .latency_ms = sample.latency_ms - fitted.transfer_ms * sample.batch});
      shares.push_back(share);
      used.push_back(utilization.at(sample.batch, sample.share).l2);
    }
    served.running = RunningTime(fitted.scheduling_ms, samples);
    if (!all_used_) {
      fitted.l2_constant = 1;  // alpha_cache is then the cost of any neighbour
    } else if (const auto line = fit_line(shares, used, false)) {
      fitted.l2_slope = line->slope;
      fitted.l2_constant = line->intercept;
    } else {
      for (const double l2 : used) fitted.l2_constant += l2 / static_cast<double>(used.size());
    }
    return served;
  }

  // At most half of any latency, whatever the profile says about bytes and bandwidth.
  [[nodiscard]] double transfer_of(const ModelProfile& known,
                                   const std::vector<LatencySample>& alone) const {
    constexpr double kBytesPerMsAtOneGbPerS = 1e6;
    double transfer_ms =
        (*known.input_bytes + *known.output_bytes) / (*profile_.pcie_gbps * kBytesPerMsAtOneGbPerS);
    for (const LatencySample& sample : alone) {
      transfer_ms = std::min(transfer_ms, sample.latency_ms / sample.batch / 2);
    }
    return transfer_ms;
  }

  // Divides the fraction of running time in the latency (0: launches alone, 1: work alone) into
  // five bins. Takes the first drawn pair of each bin, and other pairs for empty bins: pairs of one
  // kind would not identify both kinds of interference.
  void choose_pairs(std::span<const PairSample* const> drawn) {
    std::vector<std::set<std::size_t>> taken(model_.served_.size());
    std::vector<const PairSample*> others;
    for (const PairSample* const pair : drawn) {
      const std::uint32_t number = model_.numbers_.find(pair->model)->second;
      const InssModel::Parts parts =
          InssModel::parts(model_.served_[number], pair->batch, pair->share.fraction());
      const auto bin = static_cast<std::size_t>(parts.running_ms / parts.alone_ms * kInssPairs);
      if (taken[number].insert(std::min(bin, kInssPairs - 1)).second) {
        model_.pairs_.push_back(*pair);
      } else {
        others.push_back(pair);
      }
    }
    for (const PairSample* const pair : others) {
      std::set<std::size_t>& own = taken[model_.numbers_.find(pair->model)->second];
      if (own.size() == kInssPairs) continue;
      own.insert(kInssPairs + own.size());
      model_.pairs_.push_back(*pair);
    }
  }

  [[nodiscard]] Equation equation_of(const PairSample& pair) const {
    const std::uint32_t number = model_.numbers_.find(pair.model)->second;
    const InssModel::ServedModel& self = model_.served_[number];
    const InssCoefficients& other = *model_.find(pair.other_model);
    const InssModel::Parts parts = InssModel::parts(self, pair.batch, pair.share.fraction());
    const double l2 = other.l2(pair.other_share.fraction());
    const double slowdown = *pair_slowdown(profile_, pair);
    return {.model = number,
            .by_launches = self.coefficients.launches / parts.alone_ms,
            .by_cache = parts.running_ms * l2 / parts.alone_ms,
            .excess = slowdown - 1,
            .weight = 1 / (slowdown * slowdown)};
  }

  // Non-negative least squares of the relative error, by coordinate descent: there are few
  // unknowns, and the problem is convex.
  void fit_neighbours() {
    std::vector<Equation> equations;
    for (const PairSample& pair : model_.pairs_) equations.push_back(equation_of(pair));
    std::vector<double> caches(model_.served_.size());
    std::vector<bool> paired(model_.served_.size());
    for (const Equation& equation : equations) paired[equation.model] = true;
    constexpr int kRounds = 200;
    for (int round = 0; round < kRounds; ++round) {
      model_.alpha_s_ = best(equations, [&](const Equation& e) {
        return std::pair(e.by_launches, e.excess - caches[e.model] * e.by_cache);
      });
      for (std::uint32_t model = 0; model < caches.size(); ++model) {
        if (!paired[model]) continue;
        caches[model] = best(equations, [&](const Equation& e) {
          return std::pair(e.model == model ? e.by_cache : 0,
                           e.excess - model_.alpha_s_ * e.by_launches);
        });
      }
    }
    const double common = best(equations, [&](const Equation& e) {
      return std::pair(e.by_cache, e.excess - model_.alpha_s_ * e.by_launches);
    });
    for (std::uint32_t model = 0; model < caches.size(); ++model) {
      model_.served_[model].coefficients.alpha_cache = paired[model] ? caches[model] : common;
      all_paired_ = all_paired_ && paired[model];
    }
  }

  // The x >= 0 that minimises the sum of weight * (factor * x - target)^2.
  template <typename FactorAndTarget>
  static double best(const std::vector<Equation>& equations, const FactorAndTarget& ask) {
    double numerator = 0;
    double denominator = 0;
    for (const Equation& equation : equations) {
      const auto [factor, target] = ask(equation);
      numerator += equation.weight * factor * target;
      denominator += equation.weight * factor * factor;
    }
    const double least = numerator / denominator;
    return std::isfinite(least) ? std::max(least, 0.0) : 0;
  }

  void take_notes() {
    const auto add = [this](const char* note) {
      model_.note_ += (model_.note_.empty() ? "" : "; ") + std::string(note);
    };
    if (!all_moved_) add("bytes or bandwidth unknown: transfer counted as running");
    if (!all_counted_) add("kernels not counted: scheduling is the part that no share shortens");
    if (model_.pairs_.empty()) {
      add("no pairs: neighbours cost nothing");
      return;
    }
    if (!all_used_) add("utilisation unknown: every neighbour's L2 counted as 1");
    if (!all_paired_) add("models without pairs of their own: alpha_cache common to the others");
  }

  const Profile& profile_;
  InssModel model_;
  bool all_counted_ = true;
  bool all_used_ = true;
  bool all_moved_ = true;
  bool all_paired_ = true;
};

InssModel fit_inss(const Profile& profile, std::uint64_t seed) {
  return fit_inss_to(profile, drawn_pairs(profile, seed));
}

InssModel fit_inss_to(const Profile& profile, std::span<const PairSample* const> drawn) {
  return InssFitting(profile, drawn).take();
}

}  // namespace gpulet::research

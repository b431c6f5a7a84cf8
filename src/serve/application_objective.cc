#include "gpulet/serve/application_objective.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace gpulet::serve {
namespace {

using config::ApplicationConfig;
using config::ApplicationNode;
using config::ModelCall;

constexpr std::uint32_t kModerateBatch = 4;
// A request that just missed a batch waits for it to end, then runs.
constexpr double kLeastRounds = 2;

const std::string* model_of(const ApplicationNode& node) {
  const auto* call = std::get_if<ModelCall>(&node.work);
  return call == nullptr ? nullptr : &call->model;
}

const ServedModel& find(const std::vector<ServedModel>& models, const std::string& name) {
  return *std::find_if(models.begin(), models.end(),
                       [&name](const ServedModel& model) { return model.name == name; });
}

// 0 where nothing that was measured answers.
double need_ms(const profile::LatencyTable& latency, std::uint32_t max_batch) {
  std::set<int> sizes;
  for (const profile::LatencySample& sample : latency.samples()) sizes.insert(sample.share.percent);
  const Share middle{*std::next(sizes.begin(), static_cast<std::ptrdiff_t>(sizes.size() / 2))};
  const std::uint32_t batch = std::min({kModerateBatch, max_batch, latency.largest_batch(middle)});
  return latency.latency_ms(batch, middle).value_or(0);
}

double least_ms(const profile::LatencyTable& latency) {
  return latency.latency_ms(1, latency.samples().back().share).value_or(0);
}

std::vector<const profile::Profile*> profiles_of(const ApplicationConfig& application,
                                                 const profile::ProfileSet& profiles) {
  std::vector<const profile::Profile*> measured;
  for (const auto& [name, profile] : profiles) {
    const bool all = std::all_of(application.nodes.begin(), application.nodes.end(),
                                 [&profile = profile](const ApplicationNode& node) {
                                   const std::string* model = model_of(node);
                                   return model == nullptr || profile.find(*model) != nullptr;
                                 });
    if (all) measured.push_back(&profile);
  }
  return measured;
}

class Splitting {
 public:
  Splitting(const ApplicationConfig& application, std::vector<double> needs_ms)
      : application_(application), needs_ms_(std::move(needs_ms)) {
    successors_.resize(application.nodes.size());
    for (std::size_t i = 0; i < application.nodes.size(); ++i) {
      for (const config::TensorSource& source : application.nodes[i].inputs) {
        if (source.node) successors_[*source.node].push_back(i);
      }
    }
  }

  [[nodiscard]] std::vector<Stage> stages() const {
    const std::size_t count = application_.nodes.size();
    std::vector<double> start(count, 0);
    std::vector<double> end(count, 0);
    for (std::size_t i = 0; i < count; ++i) {  // each after those that it waits for
      for (const config::TensorSource& source : application_.nodes[i].inputs) {
        if (source.node) start[i] = std::max(start[i], end[*source.node]);
      }
      end[i] = start[i] + share_of(i, std::max(0.0, application_.slo_ms - start[i]));
    }
    std::vector<Stage> stages(count);
    for (std::size_t i = 0; i < count; ++i) {
      double next = application_.slo_ms;  // what nobody behind it needs is its own
      for (const std::size_t successor : successors_[i]) next = std::min(next, start[successor]);
      stages[i] = {from_ms(start[i]), from_ms(next - start[i])};
    }
    return stages;
  }

 private:
  [[nodiscard]] bool is_step(std::size_t node) const {
    return model_of(application_.nodes[node]) == nullptr;
  }

  // What of the time left, from the start of that node to the end of the whole, is the node's.
  [[nodiscard]] double share_of(std::size_t node, double left_ms) const {
    const double allowance = to_ms(kStepAllowance);
    // Milliseconds for each of need, lowered until the path that asks most fits.
    double stretch = std::numeric_limits<double>::infinity();
    for (std::size_t round = 0; round <= application_.nodes.size(); ++round) {
      const Path path = longest_from(node, stretch);
      const double steps_ms = static_cast<double>(path.steps) * allowance;
      if (path.need_ms <= 0) {
        return std::min(allowance, left_ms / static_cast<double>(path.steps));
      }
      const double fits = std::max(0.0, left_ms - steps_ms) / path.need_ms;
      if (!(fits < stretch)) break;
      stretch = fits;
    }
    if (is_step(node)) return std::min(allowance, left_ms);
    return std::min(stretch * needs_ms_[node], left_ms);
  }

  struct Path {
    double need_ms = 0;
    std::size_t steps = 0;
  };
  // The path from the node on that takes longest where a millisecond of need gets so many.
  [[nodiscard]] Path longest_from(std::size_t node, double stretch) const {
    const auto longer = [stretch](const Path& a, const Path& b) {
      if (std::isinf(stretch)) return a.need_ms > b.need_ms;
      const double allowance = to_ms(kStepAllowance);
      return a.need_ms * stretch + static_cast<double>(a.steps) * allowance >
             b.need_ms * stretch + static_cast<double>(b.steps) * allowance;
    };
    std::vector<Path> from(application_.nodes.size());
    for (std::size_t i = application_.nodes.size(); i-- > node;) {
      for (const std::size_t successor : successors_[i]) {
        if (longer(from[successor], from[i])) from[i] = from[successor];
      }
      from[i].need_ms += needs_ms_[i];
      if (is_step(i)) ++from[i].steps;
    }
    return from[node];
  }

  const ApplicationConfig& application_;
  std::vector<double> needs_ms_;  // beside the nodes; 0: a step
  std::vector<std::vector<std::size_t>> successors_;
};

// Whether some device alone can serve one request at a time within every budget.
std::string first_unmet(const ApplicationConfig& application, const std::vector<Stage>& stages,
                        const std::vector<const profile::Profile*>& profiles) {
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const std::string* model = model_of(application.nodes[i]);
    if (model == nullptr) continue;
    double least = std::numeric_limits<double>::infinity();
    for (const profile::Profile* profile : profiles)
      least = std::min(least, kLeastRounds * least_ms(profile->find(*model)->latency));
    const double budget = to_ms(stages[i].budget);
    if (least <= budget) continue;
    return "node " + application.nodes[i].name + " (model " + *model + ") gets " +
           std::to_string(std::lround(budget)) + " of the " +
           std::to_string(std::lround(application.slo_ms)) + " ms and needs " +
           std::to_string(std::lround(std::ceil(least))) + "; give the application a larger slo_ms";
  }
  return {};
}

}  // namespace

ObjectiveSplit split_objective(const ApplicationConfig& application,
                               const std::vector<ServedModel>& models,
                               const profile::ProfileSet& profiles) {
  const std::vector<const profile::Profile*> measured = profiles_of(application, profiles);
  std::vector<double> needs_ms(application.nodes.size(), 0);
  for (std::size_t i = 0; i < needs_ms.size(); ++i) {
    const std::string* model = model_of(application.nodes[i]);
    if (model == nullptr) continue;
    if (measured.empty()) needs_ms[i] = 1;  // nothing is known: all alike
    for (const profile::Profile* profile : measured) {
      needs_ms[i] = std::max(
          needs_ms[i], need_ms(profile->find(*model)->latency, find(models, *model).max_batch));
    }
  }
  ObjectiveSplit split;
  split.stages = Splitting(application, std::move(needs_ms)).stages();
  split.unmet = measured.empty() ? "no profile has measured all of its models; measure them with "
                                   "gpulet profile run"
                                 : first_unmet(application, split.stages, measured);
  return split;
}

}  // namespace gpulet::serve

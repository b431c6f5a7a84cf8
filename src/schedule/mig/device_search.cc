#include "schedule/mig/device_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

namespace gpulet::schedule::mig {
namespace {

// The unmet need of the service beside the instances that the mix has already.
double unmet_beside(const DeploymentContext& context, const InstanceMix& mix, std::uint32_t service,
                    double unmet) {
  for (const UnplacedInstance& instance : mix.instances()) {
    if (instance.service == service)
      unmet = context.unmet_after(service, unmet, context.rate(instance));
  }
  return unmet;
}

}  // namespace

RatedMix fill(const DeploymentContext& context, const LayoutShape& shape,
              std::span<const std::uint32_t> services, const std::vector<double>& unmet,
              const std::vector<double>& worth) {
  RatedMix rated;
  for (const std::uint32_t profile : shape.profiles) {
    double most = 0;
    std::uint32_t chosen = 0;
    for (const std::uint32_t service : services) {
      const double rate = context.rate(service, profile);
      if (unmet[service] <= 0 || worth[service] * rate <= most) continue;
      const double still_unmet = unmet_beside(context, rated.mix, service, unmet[service]);
      const double gain = worth[service] * std::min(rate, still_unmet);
      if (gain <= most) continue;
      most = gain;
      chosen = service;
    }
    if (most <= 0) continue;
    rated.mix.add({profile, chosen});
    rated.score += most;
  }
  return rated;
}

namespace {

// Scores that differ by less are equal.
constexpr double kSameScore = 1e-9;

std::vector<std::uint32_t> draw_services(const std::vector<double>& unmet, std::size_t count,
                                         Random& random) {
  std::vector<std::uint32_t> drawn;
  for (std::uint32_t service = 0; service < unmet.size(); ++service) {
    if (unmet[service] > 0) drawn.push_back(service);
  }
  count = std::min(count, drawn.size());
  for (std::size_t at = 0; at < count; ++at)
    std::swap(drawn[at], drawn[at + random.below(drawn.size() - at)]);
  drawn.resize(count);
  return drawn;
}

bool same_mix(const RatedMix& one, const RatedMix& other) {
  return one.mix.size == other.mix.size &&
         std::equal(one.mix.instances().begin(), one.mix.instances().end(),
                    other.mix.instances().begin());
}

void shuffle(std::vector<RatedMix>& found, Random& random) {
  for (std::size_t left = found.size(); left > 1; --left)
    std::swap(found[left - 1], found[random.below(left)]);
}

}  // namespace

std::vector<RatedMix> candidates(const DeploymentContext& context, const std::vector<double>& unmet,
                                 const std::vector<double>& worth, std::size_t services,
                                 std::size_t most, Random& random) {
  const std::vector<std::uint32_t> drawn = draw_services(unmet, services, random);
  std::vector<RatedMix> found;
  const auto consider = [&](std::span<const std::uint32_t> chosen) {
    for (const LayoutShape& shape : context.shapes()) {
      const RatedMix rated = fill(context, shape, chosen, unmet, worth);
      if (rated.mix.size > 0) found.push_back(rated);
    }
  };
  if (drawn.size() > 2) consider(drawn);
  for (std::size_t one = 0; one < drawn.size(); ++one) {
    consider(std::span(drawn).subspan(one, 1));
    for (std::size_t other = 0; other < one; ++other) {
      const std::uint32_t pair[] = {drawn[one], drawn[other]};
      consider(pair);
    }
  }
  shuffle(found, random);
  std::stable_sort(found.begin(), found.end(), [](const RatedMix& one, const RatedMix& other) {
    return one.score > other.score + kSameScore;
  });
  std::vector<RatedMix> best;
  for (const RatedMix& rated : found) {
    if (best.size() == most) break;
    const bool known = std::any_of(best.begin(), best.end(),
                                   [&](const RatedMix& other) { return same_mix(rated, other); });
    if (!known) best.push_back(rated);
  }
  return best;
}

namespace {

// Tries mixes of up to two services. Every mix also includes all services that a single device
// would satisfy: two of these no longer use up a device (appendix A.1).
RatedMix best_mixture(const DeploymentContext& context, const std::vector<double>& unmet,
                      const std::vector<double>& worth) {
  std::vector<std::uint32_t> others, almost_satisfied;
  for (std::uint32_t service = 0; service < context.services(); ++service) {
    if (unmet[service] <= 0) continue;
    const bool almost = unmet[service] <= context.device_rate(service);
    (almost ? almost_satisfied : others).push_back(service);
  }
  RatedMix best;
  const auto consider = [&](const std::vector<std::uint32_t>& services) {
    for (const LayoutShape& shape : context.shapes()) {
      const RatedMix rated = fill(context, shape, services, unmet, worth);
      if (rated.score > best.score) best = rated;
    }
  };
  std::vector<std::uint32_t> mixed = almost_satisfied;
  consider(mixed);
  for (std::size_t one = 0; one < others.size(); ++one) {
    mixed.push_back(others[one]);
    consider(mixed);
    for (std::size_t other = 0; other < one; ++other) {
      mixed.push_back(others[other]);
      consider(mixed);
      mixed.pop_back();
    }
    mixed.pop_back();
  }
  return best;
}

}  // namespace

std::vector<InstanceMix> greedy_mixes(const DeploymentContext& context) {
  std::vector<InstanceMix> devices;
  std::vector<double> unmet = context.needs();
  std::vector<double> worth(context.services(), 0);
  while (true) {
    // (1 - completion) * utility, of one request per second.
    for (std::size_t service = 0; service < worth.size(); ++service) {
      const double need = context.need(service);
      worth[service] = need > 0 ? unmet[service] / need / need : 0;
    }
    const RatedMix best = best_mixture(context, unmet, worth);
    if (best.mix.size == 0) return devices;
    context.serve(best.mix, unmet);
    devices.push_back(best.mix);
  }
}

Deployment greedy(const DeploymentTask& task) {
  const DeploymentContext context(task);
  return context.place(greedy_mixes(context));
}

namespace {

// Rollouts use the devices whose score is at most this far below the best.
constexpr double kScoreMargin = 0.03;
// The exploration constant of UCT, in devices.
constexpr double kExploration = 0.3;
// The number of levels into which the unmet need of less than a device is quantised.
constexpr double kLevels = 4;
constexpr std::size_t kNoChild = std::numeric_limits<std::size_t>::max();

struct Edge {
  InstanceMix mix;
  std::size_t child = kNoChild;
  std::uint32_t visits = 0;
  double devices = 0;  // sum over visits: the length of the whole path
};

struct Node {
  std::vector<Edge> edges;
  std::uint32_t visits = 0;
};

class TreeSearch {
 public:
  TreeSearch(const DeploymentContext& context, const Prices& prices,
             const TreeSearchOptions& options, Random& random)
      : context_(context),
        prices_(prices),
        options_(options),
        random_(random),
        worth_(prices.per_request) {
    // Services whose requests have the price 0 must be served too.
    const Prices by_slices = prices_by_slices(context);
    for (std::size_t service = 0; service < worth_.size(); ++service)
      worth_[service] = std::max(worth_[service], by_slices.per_request[service] / 1000);
  }

  std::vector<InstanceMix> run(const std::vector<double>& unmet) {
    nodes_.push_back(node_for(unmet));
    std::vector<InstanceMix> best;
    double fewest = std::numeric_limits<double>::infinity();
    for (std::uint32_t rollout = 0; rollout < options_.rollouts; ++rollout) {
      path_.clear();
      edges_.clear();
      std::vector<double> left = unmet;
      descend(left);
      roll_out(left);
      const double devices = length();
      for (Edge* const edge : traversed()) {
        ++edge->visits;
        edge->devices += devices;
      }
      if (devices >= fewest) continue;
      fewest = devices;
      best = path_;
    }
    return best;
  }

 private:
  Node node_for(const std::vector<double>& left) {
    Node node;
    for (const RatedMix& rated :
         candidates(context_, left, worth_, options_.services, options_.children, random_))
      node.edges.push_back({rated.mix, kNoChild, 0, 0});
    return node;
  }

  // Follows the most promising edges to the first untried one, and adds its node.
  void descend(std::vector<double>& left) {
    std::size_t at = 0;
    while (!nodes_[at].edges.empty()) {
      ++nodes_[at].visits;
      const std::size_t chosen = promising(nodes_[at]);
      const InstanceMix mix = nodes_[at].edges[chosen].mix;
      edges_.emplace_back(at, chosen);
      path_.push_back(mix);
      context_.serve(mix, left);
      const std::size_t child = nodes_[at].edges[chosen].child;
      if (child == kNoChild) {
        nodes_[at].edges[chosen].child = nodes_.size();
        nodes_.push_back(node_for(left));
        return;
      }
      at = child;
    }
  }

  [[nodiscard]] static std::size_t promising(const Node& node) {
    std::size_t chosen = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t at = 0; at < node.edges.size(); ++at) {
      const Edge& edge = node.edges[at];
      if (edge.visits == 0) return at;
      const double expected = edge.devices / edge.visits -
                              kExploration * std::sqrt(std::log(node.visits) / edge.visits);
      if (expected >= least) continue;
      least = expected;
      chosen = at;
    }
    return chosen;
  }

  void roll_out(std::vector<double>& left) {
    while (std::any_of(left.begin(), left.end(), [](double unmet) { return unmet > 0; })) {
      std::vector<InstanceMix>& pool = cache_[state_key(left)];
      if (pool.empty()) pool = good_devices(left);
      const InstanceMix& mix = pool[random_.below(pool.size())];
      path_.push_back(mix);
      context_.serve(mix, left);
    }
  }

  std::vector<InstanceMix> good_devices(const std::vector<double>& left) {
    std::vector<InstanceMix> good;
    const std::vector<RatedMix> found =
        candidates(context_, left, worth_, options_.services, options_.children, random_);
    for (const RatedMix& rated : found) {
      if (rated.score >= found.front().score - kScoreMargin) good.push_back(rated.mix);
    }
    return good;
  }

  // A hash of the quantised unmet needs: the same for similar states.
  [[nodiscard]] std::uint64_t state_key(const std::vector<double>& left) const {
    std::uint64_t key = 0xcbf29ce484222325ULL;
    for (std::size_t service = 0; service < left.size(); ++service) {
      double level = 0;
      if (left[service] > 0) {
        level =
            std::min(kLevels, std::floor(kLevels * left[service] / context_.device_rate(service))) +
            1;
      }
      key = (key ^ static_cast<std::uint64_t>(level)) * 0x100000001b3ULL;
    }
    return key;
  }

  // Counts the last device by its used fraction.
  [[nodiscard]] double length() const {
    if (path_.empty()) return 0;
    return static_cast<double>(path_.size() - 1) + price_of(path_.back(), prices_);
  }

  [[nodiscard]] std::vector<Edge*> traversed() {
    std::vector<Edge*> edges;
    for (const auto& [node, edge] : edges_) edges.push_back(&nodes_[node].edges[edge]);
    return edges;
  }

  const DeploymentContext& context_;
  const Prices& prices_;
  const TreeSearchOptions& options_;
  Random& random_;
  std::vector<double> worth_;
  std::vector<Node> nodes_;
  std::unordered_map<std::uint64_t, std::vector<InstanceMix>> cache_;  // by state_key()
  std::vector<InstanceMix> path_;  // the devices of this rollout
  std::vector<std::pair<std::size_t, std::size_t>>
      edges_;  // node and edge: the part of the path in the tree
};

}  // namespace

std::vector<InstanceMix> search_tree(const DeploymentContext& context, const Prices& prices,
                                     const std::vector<double>& unmet,
                                     const TreeSearchOptions& options, Random& random) {
  return TreeSearch(context, prices, options, random).run(unmet);
}

}  // namespace gpulet::schedule::mig

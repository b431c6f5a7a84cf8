#include "mig/tree_search.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <unordered_map>

#include "mig/candidates.h"

namespace gpulet::mig {
namespace {

// Of the good devices remembered, those that far below the best are left out.
constexpr double kNearlyAsGood = 0.03;
// How much a seldom visited child is favoured, in devices.
constexpr double kCuriosity = 0.3;
// A service that lacks less than a device is told apart from others by so many steps.
constexpr double kSteps = 4;
constexpr std::size_t kUnknown = std::numeric_limits<std::size_t>::max();

struct Edge {
  Mix mix;
  std::size_t child = kUnknown;
  std::uint32_t visits = 0;
  double devices = 0;  // sum over visits, of all the way
};

struct Node {
  std::vector<Edge> edges;
  std::uint32_t visits = 0;
};

class TreeSearch {
 public:
  TreeSearch(const Problem& problem, const Prices& prices, const TreeSearchOptions& options,
             Random& random)
      : problem_(problem),
        prices_(prices),
        options_(options),
        random_(random),
        worth_(prices.of_request) {
    // Requests that are for nothing at these prices must be served too.
    const Prices by_slices = prices_by_slices(problem);
    for (std::size_t service = 0; service < worth_.size(); ++service)
      worth_[service] = std::max(worth_[service], by_slices.of_request[service] / 1000);
  }

  std::vector<Mix> run(const std::vector<double>& rest) {
    nodes_.push_back(node_for(rest));
    std::vector<Mix> best;
    double fewest = std::numeric_limits<double>::infinity();
    for (std::uint32_t rollout = 0; rollout < options_.rollouts; ++rollout) {
      path_.clear();
      edges_.clear();
      std::vector<double> left = rest;
      descend(left);
      go_to_the_end(left);
      const double devices = length();
      for (Edge* const edge : walked()) {
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
    for (const Filled& filled :
         candidates(problem_, left, worth_, options_.services, options_.children, random_))
      node.edges.push_back({filled.mix, kUnknown, 0, 0});
    return node;
  }

  // Along the most promising edges to one that was not tried yet, whose node is added.
  void descend(std::vector<double>& left) {
    std::size_t at = 0;
    while (!nodes_[at].edges.empty()) {
      ++nodes_[at].visits;
      const std::size_t chosen = promising(nodes_[at]);
      const Mix mix = nodes_[at].edges[chosen].mix;
      edges_.emplace_back(at, chosen);
      path_.push_back(mix);
      problem_.serve(mix, left);
      const std::size_t child = nodes_[at].edges[chosen].child;
      if (child == kUnknown) {
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
      const double hoped =
          edge.devices / edge.visits - kCuriosity * std::sqrt(std::log(node.visits) / edge.visits);
      if (hoped >= least) continue;
      least = hoped;
      chosen = at;
    }
    return chosen;
  }

  void go_to_the_end(std::vector<double>& left) {
    while (std::any_of(left.begin(), left.end(), [](double rest) { return rest > 0; })) {
      std::vector<Mix>& pool = remembered_[kind_of(left)];
      if (pool.empty()) pool = good_devices(left);
      const Mix& mix = pool[random_.below(pool.size())];
      path_.push_back(mix);
      problem_.serve(mix, left);
    }
  }

  std::vector<Mix> good_devices(const std::vector<double>& left) {
    std::vector<Mix> good;
    const std::vector<Filled> found =
        candidates(problem_, left, worth_, options_.services, options_.children, random_);
    for (const Filled& filled : found) {
      if (filled.score >= found.front().score - kNearlyAsGood) good.push_back(filled.mix);
    }
    return good;
  }

  // States in which each service lacks about as much.
  [[nodiscard]] std::uint64_t kind_of(const std::vector<double>& left) const {
    std::uint64_t kind = 0xcbf29ce484222325ULL;
    for (std::size_t service = 0; service < left.size(); ++service) {
      double step = 0;
      if (left[service] > 0) {
        step = std::min(kSteps,
                        std::floor(kSteps * left[service] / problem_.rate_of_device(service))) +
               1;
      }
      kind = (kind ^ static_cast<std::uint64_t>(step)) * 0x100000001b3ULL;
    }
    return kind;
  }

  // The last device counts as far as it is used.
  [[nodiscard]] double length() const {
    if (path_.empty()) return 0;
    return static_cast<double>(path_.size() - 1) + price_of(path_.back(), prices_);
  }

  [[nodiscard]] std::vector<Edge*> walked() {
    std::vector<Edge*> edges;
    for (const auto& [node, edge] : edges_) edges.push_back(&nodes_[node].edges[edge]);
    return edges;
  }

  const Problem& problem_;
  const Prices& prices_;
  const TreeSearchOptions& options_;
  Random& random_;
  std::vector<double> worth_;
  std::vector<Node> nodes_;
  std::unordered_map<std::uint64_t, std::vector<Mix>> remembered_;
  std::vector<Mix> path_;                                   // of this rollout
  std::vector<std::pair<std::size_t, std::size_t>> edges_;  // the part of it in the tree
};

}  // namespace

double price_of(const Mix& mix, const Prices& prices) {
  double price = 0;
  for (const Slot& slot : mix.slots()) price += prices.of_profile[slot.profile];
  return price;
}

std::vector<Mix> search_tree(const Problem& problem, const Prices& prices,
                             const std::vector<double>& rest, const TreeSearchOptions& options,
                             Random& random) {
  return TreeSearch(problem, prices, options, random).run(rest);
}

}  // namespace gpulet::mig

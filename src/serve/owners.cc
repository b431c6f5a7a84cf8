#include "serve/owners.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <unordered_map>

namespace gpulet::serve {
namespace {

// The load of a group without requests: such groups are spread as well.
constexpr double kLeastLoad = 1;

double load_of(const OwnerGroup& group) { return group.rate + kLeastLoad; }

class DisjointSets {
 public:
  explicit DisjointSets(std::size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }
  [[nodiscard]] std::size_t find(std::size_t one) {
    while (parent_[one] != one) one = parent_[one] = parent_[parent_[one]];
    return one;
  }
  // The smaller index represents both.
  void join(std::size_t one, std::size_t other) {
    const std::size_t a = find(one);
    const std::size_t b = find(other);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<std::size_t> parent_;
};

// The owner of most of the group's rate.
std::string owner_of(const OwnerGroup& group, const std::vector<OwnedPart>& parts) {
  std::map<std::string, double> rates;
  for (const std::size_t part : group.parts)
    rates[parts[part].owner] += parts[part].rate + kLeastLoad;
  const auto most = std::max_element(
      rates.begin(), rates.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most->first;
}

class OwnerAssignment {
 public:
  OwnerAssignment(const std::vector<OwnerGroup>& groups,
                  const std::vector<OwnerCandidate>& candidates)
      : groups_(groups), candidates_(candidates), owner_(groups.size()), load_(candidates.size()) {
    find_reach();
    keep();
    place();
  }

  // Returns whether a group was moved.
  bool move() {
    const auto more = [this](std::size_t a, std::size_t b) { return load_[a] < load_[b]; };
    std::vector<std::size_t> all(candidates_.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    const std::size_t from = *std::max_element(all.begin(), all.end(), more);
    const double mean =
        std::accumulate(load_.begin(), load_.end(), 0.0) / static_cast<double>(candidates_.size());
    if (load_[from] <= kMostImbalance * mean) return false;
    std::sort(all.begin(), all.end(), [&](std::size_t a, std::size_t b) {
      return load_[a] != load_[b] ? load_[a] < load_[b] : a < b;
    });
    for (const std::size_t to : all) {
      if (!candidates_[to].takes_more) continue;
      if (const auto group = largest_to_move(from, to)) {
        give(*group, to);
        return true;
      }
    }
    return false;
  }

  [[nodiscard]] std::vector<std::string> owners() const {
    std::vector<std::string> owners;
    for (const auto& candidate : owner_) owners.push_back(candidates_[*candidate].member);
    return owners;
  }

 private:
  [[nodiscard]] bool may_own(std::size_t candidate, const OwnerGroup& group) const {
    if (candidate == 0) return true;
    return !group.fixed && (reaches_all_[candidate] || reaches(candidate, group.nodes));
  }

  [[nodiscard]] bool reaches(std::size_t candidate, const std::set<std::string>& nodes) const {
    const std::set<std::string>& reached = candidates_[candidate].nodes;
    return std::includes(reached.begin(), reached.end(), nodes.begin(), nodes.end());
  }

  // Most members reach every node: their groups need no further look.
  void find_reach() {
    std::set<std::string> all;
    for (const OwnerGroup& group : groups_) all.insert(group.nodes.begin(), group.nodes.end());
    for (std::size_t one = 0; one < candidates_.size(); ++one)
      reaches_all_.push_back(reaches(one, all));
  }

  void give(std::size_t group, std::size_t candidate) {
    if (owner_[group]) load_[*owner_[group]] -= load_of(groups_[group]);
    owner_[group] = candidate;
    load_[candidate] += load_of(groups_[group]);
  }

  void keep() {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      for (std::size_t one = 0; one < candidates_.size(); ++one) {
        if (candidates_[one].member == groups_[i].owner && may_own(one, groups_[i])) give(i, one);
      }
    }
  }

  // The largest first, each to the candidate with the least load.
  void place() {
    std::vector<std::size_t> left;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      if (!owner_[i]) left.push_back(i);
    }
    std::stable_sort(left.begin(), left.end(), [this](std::size_t a, std::size_t b) {
      return groups_[a].rate > groups_[b].rate;
    });
    for (const std::size_t group : left) {
      std::size_t least = 0;
      for (std::size_t one = 1; one < candidates_.size(); ++one) {
        if (candidates_[one].takes_more && may_own(one, groups_[group]) &&
            load_[one] < load_[least])
          least = one;
      }
      give(group, least);
    }
  }

  // The largest group whose move lowers the higher of the two loads.
  [[nodiscard]] std::optional<std::size_t> largest_to_move(std::size_t from, std::size_t to) const {
    std::optional<std::size_t> largest;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const bool helps = owner_[i] == from && load_[to] + load_of(groups_[i]) < load_[from];
      if (!helps || !may_own(to, groups_[i])) continue;
      if (!largest || groups_[i].rate > groups_[*largest].rate) largest = i;
    }
    return largest;
  }

  const std::vector<OwnerGroup>& groups_;
  const std::vector<OwnerCandidate>& candidates_;
  std::vector<std::optional<std::size_t>> owner_;  // indices of candidates
  std::vector<double> load_;                       // by candidate
  std::vector<bool> reaches_all_;                  // by candidate
};

}  // namespace

std::vector<OwnerGroup> group_parts(const std::vector<OwnedPart>& parts) {
  DisjointSets sets(parts.size());
  std::unordered_map<std::string_view, std::size_t> first_with;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (const std::string& model : parts[i].models) {
      const auto [known, is_new] = first_with.try_emplace(model, i);
      if (!is_new) sets.join(known->second, i);
    }
  }
  std::vector<OwnerGroup> groups;
  std::unordered_map<std::size_t, std::size_t> group_of;  // by representative
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto [at, is_new] = group_of.try_emplace(sets.find(i), groups.size());
    if (is_new) groups.emplace_back();
    OwnerGroup& group = groups[at->second];
    group.parts.push_back(i);
    group.nodes.insert(parts[i].node);
    group.rate += parts[i].rate;
    group.fixed = group.fixed || parts[i].fixed;
  }
  for (OwnerGroup& group : groups) group.owner = owner_of(group, parts);
  return groups;
}

std::vector<std::string> assign_owners(const std::vector<OwnerGroup>& groups,
                                       const std::vector<OwnerCandidate>& candidates,
                                       std::size_t most_moves) {
  OwnerAssignment assignment(groups, candidates);
  while (most_moves > 0 && assignment.move()) --most_moves;
  return assignment.owners();
}

}  // namespace gpulet::serve

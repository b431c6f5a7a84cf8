#include "serve/cluster/owners.h"

#include <algorithm>
#include <cmath>
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
    if (candidate == 0) return !group.divided;
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
    for (const std::size_t group : left)
      give(group, least_loaded(groups_[group], true)
                      .value_or(least_loaded(groups_[group], false).value_or(0)));
  }

  // Of the candidates that may own the group. `takes_more`: and to which groups may be moved.
  [[nodiscard]] std::optional<std::size_t> least_loaded(const OwnerGroup& group,
                                                        bool takes_more) const {
    std::optional<std::size_t> least;
    for (std::size_t one = 0; one < candidates_.size(); ++one) {
      if ((takes_more && !candidates_[one].takes_more) || !may_own(one, group)) continue;
      if (!least || load_[one] < load_[*least]) least = one;
    }
    return least;
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

// One component in several pieces.
class Division {
 public:
  // `owners`: those that may keep parts.
  Division(const OwnerGroup& group, const std::vector<OwnedPart>& parts,
           const std::set<std::string>& owners, std::size_t pieces)
      : parts_(parts), mean_rate_(group.rate / static_cast<double>(pieces)), pieces_(pieces) {
    keep(group, owners);
    for (const std::size_t part : loose_) add(part, best_piece_for(part));
  }

  [[nodiscard]] std::vector<OwnerGroup> groups() const {
    std::vector<OwnerGroup> groups;
    for (const Piece& piece : pieces_) {
      if (piece.parts.empty()) continue;
      OwnerGroup& group = groups.emplace_back();
      group.parts = piece.parts;
      std::sort(group.parts.begin(), group.parts.end());
      for (const std::size_t part : group.parts) group.nodes.insert(parts_[part].node);
      group.rate = piece.rate;
      group.owner = piece.owner;
      group.divided = true;
    }
    return groups;
  }

 private:
  struct Piece {
    std::string owner;  // empty: of no candidate yet
    std::vector<std::size_t> parts;
    std::set<std::string_view> models;
    double rate = 0;
  };

  void add(std::size_t part, Piece& piece) {
    piece.parts.push_back(part);
    piece.models.insert(parts_[part].models.begin(), parts_[part].models.end());
    piece.rate += parts_[part].rate;
  }

  // The present owners with the highest rates keep their parts, up to the balance.
  void keep(const OwnerGroup& group, const std::set<std::string>& owners) {
    std::map<std::string, double> rates;
    for (const std::size_t part : group.parts) {
      if (owners.contains(parts_[part].owner)) rates[parts_[part].owner] += parts_[part].rate;
    }
    std::vector<std::string> keeping;
    for (const auto& [owner, rate] : rates) keeping.push_back(owner);
    std::stable_sort(keeping.begin(), keeping.end(),
                     [&rates](const auto& a, const auto& b) { return rates.at(a) > rates.at(b); });
    keeping.resize(std::min(keeping.size(), pieces_.size()));
    for (std::size_t i = 0; i < keeping.size(); ++i) pieces_[i].owner = keeping[i];
    for (const std::size_t part : group.parts) {
      const auto own = std::find(keeping.begin(), keeping.end(), parts_[part].owner);
      Piece* const piece = own == keeping.end()
                               ? nullptr
                               : &pieces_[static_cast<std::size_t>(own - keeping.begin())];
      if (piece != nullptr && fits(part, *piece)) {
        add(part, *piece);
      } else {
        loose_.push_back(part);
      }
    }
  }

  [[nodiscard]] bool fits(std::size_t part, const Piece& piece) const {
    return piece.parts.empty() || piece.rate + parts_[part].rate <= kMostImbalance * mean_rate_;
  }

  // One with the same models, so that few models are divided; otherwise the one with the least
  // rate.
  [[nodiscard]] Piece& best_piece_for(std::size_t part) {
    Piece* best = nullptr;
    std::size_t most_shared = 0;
    for (Piece& piece : pieces_) {
      const std::vector<std::string>& models = parts_[part].models;
      const auto shared = static_cast<std::size_t>(std::count_if(
          models.begin(), models.end(),
          [&piece](const std::string& model) { return piece.models.contains(model); }));
      if (!fits(part, piece) || piece.rate >= mean_rate_) continue;
      if (best == nullptr || shared > most_shared ||
          (shared == most_shared && piece.rate < best->rate)) {
        best = &piece;
        most_shared = shared;
      }
    }
    if (best != nullptr) return *best;
    return *std::min_element(pieces_.begin(), pieces_.end(),
                             [](const Piece& a, const Piece& b) { return a.rate < b.rate; });
  }

  const std::vector<OwnedPart>& parts_;
  const double mean_rate_;
  std::vector<Piece> pieces_;
  std::vector<std::size_t> loose_;  // parts of no piece yet
};

}  // namespace

std::vector<OwnerGroup> divide_groups(std::vector<OwnerGroup> groups,
                                      const std::vector<OwnedPart>& parts,
                                      const std::vector<OwnerCandidate>& candidates,
                                      double max_rate) {
  std::vector<OwnerGroup> divided;
  for (OwnerGroup& group : groups) {
    std::set<std::string> able;
    for (const OwnerCandidate& one : candidates) {
      if (!one.member.empty() &&
          std::includes(one.nodes.begin(), one.nodes.end(), group.nodes.begin(), group.nodes.end()))
        able.insert(one.member);
    }
    std::set<std::string> owners;
    for (const std::size_t part : group.parts) {
      if (able.contains(parts[part].owner)) owners.insert(parts[part].owner);
    }
    const bool is_divided = owners.size() > 1;
    const std::size_t most = std::min(able.size(), group.parts.size() / kLeastPieceParts);
    if (group.fixed || group.rate <= (is_divided ? max_rate / 2 : max_rate) || most < 2) {
      divided.push_back(std::move(group));
      continue;
    }
    const auto wanted = static_cast<std::size_t>(
        std::min(std::ceil(group.rate / max_rate), static_cast<double>(most)));
    for (OwnerGroup& piece :
         Division(group, parts, able, std::max<std::size_t>(wanted, 2)).groups())
      divided.push_back(std::move(piece));
  }
  return divided;
}

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

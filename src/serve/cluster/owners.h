// The choice of owners: which member of the cluster queues the requests of which models and sends
// the batches of which gpulets.
//
// Ownership is decided by groups: the connected components of models and gpulets. One frontend can
// queue so many requests per second only, so a component with a higher rate is divided into several
// groups; the frontends then divide the requests of its models. Larger batches form where a model
// has one owner, so smaller components stay whole. Groups stay where they are as long as the load
// is balanced: a move costs a refused batch or two. Pure functions.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "gpulet/core/ids.h"

namespace gpulet::serve {

// A gpulet with routes.
struct OwnedPart {
  GpuletId gpulet;
  std::string node;
  std::vector<std::string> models;
  double rate = 0;      // planned requests per second
  std::string owner{};  // now; empty: the leader
  bool fixed = false;   // only the leader can own it
};

struct OwnerGroup {
  std::vector<std::size_t> parts;  // indices, ascending
  std::set<std::string> nodes;
  double rate = 0;
  std::string owner;  // of most of the rate
  bool fixed = false;
  // A piece of a component. The leader owns none: it knows the routes of all gpulets, so it would
  // send batches to those of other owners.
  bool divided = false;
};

// The components, by their first part.
[[nodiscard]] std::vector<OwnerGroup> group_parts(const std::vector<OwnedPart>& parts);

struct OwnerCandidate {
  std::string member;           // empty: the leader
  std::set<std::string> nodes;  // whose backends it reaches; the leader reaches all
  bool takes_more = true;       // groups may be moved to it
};

// Divides the groups above `max_rate`: into one piece for each `max_rate` of their rate, with at
// least kLeastPieceParts parts each, and no more pieces than candidates besides the leader that
// reach all nodes of the group. A group that is divided already stays so until its rate is below
// half of `max_rate`, and parts stay with their owners as far as the pieces are balanced.
inline constexpr std::size_t kLeastPieceParts = 2;
[[nodiscard]] std::vector<OwnerGroup> divide_groups(std::vector<OwnerGroup> groups,
                                                    const std::vector<OwnedPart>& parts,
                                                    const std::vector<OwnerCandidate>& candidates,
                                                    double max_rate);

// The owner of each group. `candidates`: the leader first, then the others by name. A group keeps
// an owner that is a candidate and reaches its nodes; others go to the candidate with the least
// load. Then at most `most_moves` groups move from the candidate with the highest load to the one
// with the lowest, while the highest is above kMostImbalance times the mean.
inline constexpr double kMostImbalance = 1.25;
[[nodiscard]] std::vector<std::string> assign_owners(const std::vector<OwnerGroup>& groups,
                                                     const std::vector<OwnerCandidate>& candidates,
                                                     std::size_t most_moves);

}  // namespace gpulet::serve

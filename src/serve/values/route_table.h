// RouteTable: which frontends of the cluster serve the requests for a model: this one, or other
// members.
//
// Every gpulet has an owner, the one member that sends its batches (docs/cluster.md). The leader
// serves the models without another owner. A *divided* model has gpulets of several owners, which
// take turns according to their weights. A frontend that stands alone leads. Pure; one thread at a
// time.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gpulet/protocol/messages.h"

namespace gpulet::serve {

class RouteTable {
 public:
  // By model, without models of the leader. No list is empty; the first member has the most weight.
  using Owners = std::unordered_map<std::string, std::vector<OwnerShare>>;

  // `member`: this frontend's name in its cluster; empty: it is alone.
  RouteTable(bool leads, std::string member) : leads_(leads), member_(std::move(member)) {}

  // ---- what is known

  // This frontend leads from now on.
  void lead() {
    leads_ = true;
    leader_.clear();
  }
  // `member` leads; empty: none, or none that is known.
  void follow(std::string member) {
    leads_ = false;
    leader_ = std::move(member);
  }
  void set_owners(Owners owners) {
    owners_ = std::move(owners);
    turns_.clear();
  }
  // This frontend owns gpulets of these models without leading.
  void set_owned(std::unordered_set<std::string> models) { owned_ = std::move(models); }

  [[nodiscard]] bool leads() const { return leads_; }
  // Empty: this frontend leads, or no leader is known.
  [[nodiscard]] const std::string& leader() const { return leader_; }
  [[nodiscard]] const Owners& owners() const { return owners_; }

  // ---- where requests go

  // This frontend serves all models.
  [[nodiscard]] bool all_here() const { return leads_ && owners_.empty(); }
  // This frontend serves the model, or some of its requests.
  [[nodiscard]] bool here(const std::string& model) const {
    if (all_here()) return true;
    return leads_ ? !owners_.contains(model) : owned_.contains(model);
  }
  [[nodiscard]] bool divided(const std::string& model) const {
    const auto owners = owners_.find(model);
    return owners != owners_.end() && owners->second.size() > 1;
  }
  // The member that serves the model, or most of its requests. Empty: this one, or none that is
  // known.
  [[nodiscard]] const std::string& member_for(const std::string& model) const {
    const auto owners = owners_.find(model);
    return owners == owners_.end() ? leader_ : as_target(owners->second.front().member);
  }
  // The same for the next request. Owners of a divided model take turns.
  [[nodiscard]] const std::string& next_member_for(const std::string& model);
  // Whether the member serves the model, or some of its requests.
  [[nodiscard]] bool serves(const std::string& member, const std::string& model) const;

 private:
  [[nodiscard]] const std::string& as_target(const std::string& member) const {
    return member == member_ ? none_ : member;
  }

  bool leads_;
  const std::string member_;
  const std::string none_;
  std::string leader_;
  Owners owners_;
  // Of divided models: how much each owner is behind its part, in the order of `owners_`.
  std::unordered_map<std::string, std::vector<double>> turns_;
  std::unordered_set<std::string> owned_;
};

}  // namespace gpulet::serve

// RouteTable: which frontend of the cluster serves the requests for a model: this one, or another
// member.
//
// Every gpulet has an owner, the one member that sends its batches (docs/cluster.md). The leader
// serves the models without another owner. A frontend that stands alone leads. Pure; one thread at
// a time.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace gpulet::serve {

class RouteTable {
 public:
  // Members by model, without models of the leader.
  using Owners = std::unordered_map<std::string, std::string>;

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
  void set_owners(Owners owners) { owners_ = std::move(owners); }
  // This frontend owns gpulets of these models without leading.
  void set_owned(std::unordered_set<std::string> models) { owned_ = std::move(models); }

  [[nodiscard]] bool leads() const { return leads_; }
  // Empty: this frontend leads, or no leader is known.
  [[nodiscard]] const std::string& leader() const { return leader_; }
  [[nodiscard]] const Owners& owners() const { return owners_; }

  // ---- where requests go

  // This frontend serves all models.
  [[nodiscard]] bool all_here() const { return leads_ && owners_.empty(); }
  // This frontend serves the model.
  [[nodiscard]] bool here(const std::string& model) const {
    if (all_here()) return true;
    return leads_ ? member_for(model).empty() : owned_.contains(model);
  }
  // The member that serves the model. Empty: this one, or none that is known.
  [[nodiscard]] const std::string& member_for(const std::string& model) const {
    const auto owner = owners_.find(model);
    if (owner == owners_.end()) return leader_;
    return owner->second == member_ ? none_ : owner->second;
  }

 private:
  bool leads_;
  const std::string member_;
  const std::string none_;
  std::string leader_;
  Owners owners_;
  std::unordered_set<std::string> owned_;
};

}  // namespace gpulet::serve

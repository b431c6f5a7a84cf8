#include "serve/values/route_table.h"

#include <algorithm>

namespace gpulet::serve {

// Smooth weighted round robin: the owner that is furthest behind its part has the turn.
const std::string& RouteTable::next_member_for(const std::string& model) {
  if (!divided(model)) return member_for(model);
  const std::vector<OwnerShare>& owners = owners_.at(model);
  std::vector<double>& behind = turns_.try_emplace(model, owners.size(), 0.0).first->second;
  double total = 0;
  for (std::size_t i = 0; i < owners.size(); ++i) {
    behind[i] += owners[i].weight;
    total += owners[i].weight;
  }
  const auto most = std::max_element(behind.begin(), behind.end());
  *most -= total;
  return as_target(owners[static_cast<std::size_t>(most - behind.begin())].member);
}

bool RouteTable::serves(const std::string& member, const std::string& model) const {
  const auto owners = owners_.find(model);
  if (owners == owners_.end()) return member == leader_;
  return std::any_of(owners->second.begin(), owners->second.end(),
                     [&member](const OwnerShare& one) { return one.member == member; });
}

}  // namespace gpulet::serve

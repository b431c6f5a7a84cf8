#include "serve/cluster/ownership.h"

#include <algorithm>
#include <utility>

namespace gpulet::serve {
namespace {

// A member whose connection ended has so long to connect again.
constexpr Duration kPatience = std::chrono::milliseconds(300);
// A member that is connected when this frontend is elected has so long to report.
constexpr Duration kFirstReport = std::chrono::seconds(3);
// Groups move to balance the loads at most this often, and at most so many at once.
constexpr Duration kBetweenMoves = std::chrono::seconds(1);
constexpr std::size_t kMostMoves = 8;
// Without any change, owners are chosen again this often: a backend may have missed a SetOwner.
constexpr Duration kBetweenChecks = std::chrono::seconds(10);

}  // namespace

void Ownership::start_over() {
  members_.clear();
  sent_.clear();
  status_.clear();
  figures_.clear();
}

void Ownership::on_won(Time now) {
  start_over();
  for (const std::string& member : connected_) {
    Member& awaited = members_[member];
    awaited.since = now;
    awaited.awaited_until = now + kFirstReport;
  }
  changed_ = true;
}

void Ownership::on_lost() {
  start_over();
  routes_.set_owners({});
}

void Ownership::on_connected(const std::string& member) {
  connected_.insert(member);
  sent_.erase(member);  // it may have restarted
  if (const auto known = members_.find(member); known != members_.end())
    known->second.lost_at.reset();
  changed_ = true;
}

void Ownership::on_disconnected(const std::string& member, Time now) {
  connected_.erase(member);
  sent_.erase(member);
  if (const auto known = members_.find(member); known != members_.end())
    known->second.lost_at = now;
}

void Ownership::on_report(const std::string& member, const OwnerReport& report, Time now) {
  const auto [at, is_new] = members_.try_emplace(member);
  Member& known = at->second;
  if (is_new || known.awaited_until) {
    known.since = now;
    known.awaited_until.reset();
    changed_ = true;
  }
  std::set<std::string> nodes(report.nodes.begin(), report.nodes.end());
  changed_ = changed_ || known.draining != report.draining || known.nodes != nodes;
  known.draining = report.draining;
  known.nodes = std::move(nodes);
  // Only the end of its connection shows that a member is gone.
  if (!connected_.contains(member) && !known.lost_at) known.lost_at = now;
}

// ---- the choice

bool Ownership::is_fixed(const GpuletRoute& route) const {
  if (route.service != schedule::Service::rounds || route.processes > 1) return true;
  const auto backend = backends_.backends().find(route.backend);
  if (backend == backends_.backends().end() || backend->second.level < kLevelOfOwners) return true;
  return std::any_of(route.slots.begin(), route.slots.end(), [this](const SlotSpec& slot) {
    const NamedModel* const known = models_.find(models_.name_of(slot.model));
    return known == nullptr || known->next || known->current.index != slot.model;
  });
}

std::vector<OwnedPart> Ownership::parts() const {
  std::vector<OwnedPart> parts;
  for (const GpuletRoute& route : deployment_.in_force().routes()) {
    OwnedPart part{route.gpulet, {}, {}};
    const GpuletRecord* const gpulet = backends_.find(route.gpulet);
    if (gpulet != nullptr) {
      part.node = gpulet->device.node;
      part.owner = gpulet->owner;
    }
    for (const SlotSpec& slot : route.slots) {
      part.models.push_back(models_.name_of(slot.model));
      part.rate += slot.rate;
    }
    part.fixed = gpulet == nullptr || is_fixed(route);
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<OwnerCandidate> Ownership::candidates(Time now) const {
  std::vector<OwnerCandidate> candidates(1);  // the leader
  std::set<std::string> all_nodes;
  for (const auto& [id, backend] : backends_.backends()) all_nodes.insert(backend.node);
  for (const auto& [name, member] : members_) {
    if (member.draining) continue;
    const bool takes_more =
        !member.lost_at && !member.awaited_until && now - member.since >= options_.owner_settling;
    candidates.push_back({name, member.awaited_until ? all_nodes : member.nodes, takes_more});
  }
  return candidates;
}

Time Ownership::given_up_at(const Member& member) {
  const Time lost = member.lost_at ? *member.lost_at + kPatience : kNever;
  return std::min(lost, member.awaited_until.value_or(kNever));
}

bool Ownership::settle(bool may_move, Time now, FrontendEffects& effects) {
  const std::size_t gone = std::erase_if(members_, [&](const auto& one) {
    if (now < given_up_at(one.second)) return false;
    figures_.forget_member(one.first);
    return true;
  });
  changed_ = changed_ || gone > 0 || revision_ != deployment_.in_force().routes_revision();
  if (!changed_ && now < next_choice_) return false;
  figures_.keep_only([this](const std::string& model) { return models_.find(model) != nullptr; },
                     [this](GpuletId id) { return backends_.find(id) != nullptr; });

  const std::vector<OwnedPart> parts = this->parts();
  const std::vector<OwnerCandidate> candidates = this->candidates(now);
  const std::vector<OwnerGroup> groups =
      divide_groups(group_parts(parts), parts, candidates, options_.max_group_rate);
  const std::vector<std::string> owners =
      assign_owners(groups, candidates, may_move ? kMostMoves : 0);
  if (changed_ || owners != owners_) send_routes(groups, owners, effects);
  const bool steady = owners == owners_ && may_move &&
                      std::all_of(candidates.begin(), candidates.end(),
                                  [](const OwnerCandidate& one) { return one.takes_more; });
  next_choice_ = now + (steady ? kBetweenChecks : kBetweenMoves);
  changed_ = false;
  revision_ = deployment_.in_force().routes_revision();
  owners_ = owners;
  order_owners(parts, groups, owners, effects);

  status_.clear();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    OwnerStatus& owner = status_[owners[i]];
    owner.member = owners[i];
    ++owner.groups;
    owner.gpulets += groups[i].parts.size();
    owner.rate += groups[i].rate;
  }
  RouteTable::Owners table = owners_by_model(groups, owners);
  if (table == routes_.owners()) return false;
  routes_.set_owners(std::move(table));
  return true;
}

RouteTable::Owners Ownership::owners_by_model(const std::vector<OwnerGroup>& groups,
                                              const std::vector<std::string>& owners) const {
  std::unordered_map<std::string, std::map<std::string, double>> weights;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (owners[i].empty()) continue;
    for (const std::size_t part : groups[i].parts) {
      for (const SlotSpec& slot : deployment_.in_force().routes()[part].slots)
        weights[models_.name_of(slot.model)][owners[i]] += slot.rate;
    }
  }
  RouteTable::Owners table;
  for (const auto& [model, by_member] : weights) {
    std::vector<OwnerShare>& shares = table[model];
    for (const auto& [member, weight] : by_member) shares.push_back({member, weight});
    std::stable_sort(shares.begin(), shares.end(),
                     [](const OwnerShare& a, const OwnerShare& b) { return a.weight > b.weight; });
  }
  return table;
}

void Ownership::order_owners(const std::vector<OwnedPart>& parts,
                             const std::vector<OwnerGroup>& groups,
                             const std::vector<std::string>& owners, FrontendEffects& effects) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (const std::size_t part : groups[i].parts) {
      const GpuletId id = parts[part].gpulet;
      const GpuletRecord* const gpulet = backends_.find(id);
      if (gpulet == nullptr || gpulet->owner == owners[i] || !backends_.commanded(gpulet->backend))
        continue;
      effects.emplace_back(SendToBackend{
          gpulet->backend, SetOwner{id, owners[i], backends_.term_for(gpulet->backend)}});
      backends_.set_owner(id, owners[i]);
    }
  }
}

Route Ownership::route_for(const GpuletRoute& route) const {
  Route told{route.gpulet, route.duty_cycle, {}};
  for (const SlotSpec& slot : route.slots) {
    const ServedModel& model = models_.served(slot.model);
    told.slots.push_back({model.name, version_of(model), slot.execution, slot.rate});
  }
  return told;
}

void Ownership::send_routes(const std::vector<OwnerGroup>& groups,
                            const std::vector<std::string>& owners, FrontendEffects& effects) {
  // All nodes whose gpulets are known: an owner must drop what an earlier leader gave it there.
  std::map<std::string, NodesRoutes> wanted;
  for (const auto& [name, member] : members_) {
    if (!connected_.contains(name) || member.awaited_until) continue;
    NodesRoutes& nodes = wanted[name];
    for (const auto& [id, backend] : backends_.backends()) {
      if (backend.commanded) nodes[backend.node];
    }
  }
  const std::vector<GpuletRoute>& routes = deployment_.in_force().routes();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const auto owner = wanted.find(owners[i]);
    if (owner == wanted.end()) continue;
    for (const std::size_t part : groups[i].parts) {
      const GpuletRecord* const gpulet = backends_.find(routes[part].gpulet);
      owner->second[gpulet->device.node].push_back(route_for(routes[part]));
    }
  }
  for (auto& [member, nodes] : wanted) {
    NodesRoutes& sent = sent_[member];
    SetRoutes message{backends_.term(), {}};
    for (const auto& [node, of_node] : nodes) {
      const auto before = sent.find(node);
      if (before == sent.end() || before->second != of_node)
        message.nodes.push_back({node, of_node});
    }
    sent = std::move(nodes);
    if (!message.nodes.empty()) effects.emplace_back(SendToPeer{member, std::move(message)});
  }
}

Time Ownership::next_wake() const {
  if (!routes_.leads()) return kNever;
  Time wake = next_choice_;
  for (const auto& [name, member] : members_) wake = std::min(wake, given_up_at(member));
  return wake;
}

std::vector<OwnerStatus> Ownership::status() const {
  std::vector<OwnerStatus> all;
  for (const auto& [member, status] : status_) all.push_back(status);
  return all;
}

}  // namespace gpulet::serve

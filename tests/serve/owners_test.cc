#include "serve/cluster/owners.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace gpulet::serve::owners_test {
namespace {

OwnedPart part(std::uint64_t id, std::vector<std::string> models, double rate,
               std::string owner = {}) {
  return {GpuletId{id}, "n0", std::move(models), rate, std::move(owner), false};
}

OwnerGroup group(double rate, std::string owner = {}) {
  OwnerGroup made;
  made.nodes = {"n0"};
  made.rate = rate;
  made.owner = std::move(owner);
  return made;
}

// The leader and members f1 and f2, which reach n0.
std::vector<OwnerCandidate> three() {
  return {{"", {}, true}, {"f1", {"n0"}, true}, {"f2", {"n0"}, true}};
}

TEST(Owners, ModelsThatShareAGpuletAreOneGroup) {
  const auto groups = group_parts({part(1, {"a", "b"}, 10), part(2, {"c"}, 20),
                                   part(3, {"b", "d"}, 30, "f1"), part(4, {"e"}, 0)});
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[0].parts, (std::vector<std::size_t>{0, 2}));
  EXPECT_EQ(groups[0].rate, 40);
  EXPECT_EQ(groups[0].owner, "f1") << "the owner of most of its rate";
  EXPECT_EQ(groups[1].parts, std::vector<std::size_t>{1});
  EXPECT_EQ(groups[2].parts, std::vector<std::size_t>{3});
}

TEST(Owners, AGroupIsFixedIfAPartIs) {
  OwnedPart fixed = part(2, {"a"}, 1);
  fixed.fixed = true;
  const auto groups = group_parts({part(1, {"a"}, 1, "f1"), fixed});
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_TRUE(groups[0].fixed);
  EXPECT_EQ(assign_owners(groups, three(), 0), std::vector<std::string>{""});
}

TEST(Owners, AGroupStaysWithAnOwnerThatReachesItsNodes) {
  EXPECT_EQ(assign_owners({group(10, "f1"), group(5, "f2")}, three(), 0),
            (std::vector<std::string>{"f1", "f2"}));
  std::vector<OwnerCandidate> cut = three();
  cut[1].nodes = {"n1"};
  EXPECT_NE(assign_owners({group(10, "f1")}, cut, 0)[0], "f1");
}

TEST(Owners, GroupsOfAMemberThatIsGoneGoToTheOthersByLoad) {
  const auto owners = assign_owners(
      {group(50, "f1"), group(60, ""), group(40, "gone"), group(10, "gone")}, three(), 0);
  EXPECT_EQ(owners, (std::vector<std::string>{"f1", "", "f2", "f2"}));
}

TEST(Owners, LoadMovesToAMemberThatJoined) {
  std::vector<OwnerGroup> groups(6, group(10));
  const auto owners = assign_owners(groups, three(), 8);
  std::map<std::string, int> count;
  for (const std::string& owner : owners) ++count[owner];
  EXPECT_EQ(count, (std::map<std::string, int>{{"", 2}, {"f1", 2}, {"f2", 2}}));
  std::vector<OwnerCandidate> joining = three();
  joining[2].takes_more = false;
  const auto early = assign_owners(groups, joining, 8);
  EXPECT_EQ(std::count(early.begin(), early.end(), "f2"), 0);
}

TEST(Owners, ABalancedClusterMovesNothing) {
  const std::vector<OwnerGroup> groups = {group(10), group(12, "f1"), group(9, "f2")};
  EXPECT_EQ(assign_owners(groups, three(), 8), (std::vector<std::string>{"", "f1", "f2"}));
}

// ---- divided groups

std::vector<OwnerGroup> divided(const std::vector<OwnedPart>& parts, double max_rate,
                                const std::vector<OwnerCandidate>& candidates = three()) {
  return divide_groups(group_parts(parts), parts, candidates, max_rate);
}

std::vector<OwnedPart> hot_model(std::size_t gpulets, double rate) {
  std::vector<OwnedPart> parts;
  for (std::size_t i = 0; i < gpulets; ++i) parts.push_back(part(i + 1, {"hot"}, rate));
  return parts;
}

// The parts as they are once the owners were told.
std::vector<OwnedPart> owned_as(std::vector<OwnedPart> parts, const std::vector<OwnerGroup>& groups,
                                const std::vector<std::string>& owners) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (const std::size_t one : groups[i].parts) parts[one].owner = owners[i];
  }
  return parts;
}

TEST(DividedGroups, AHotModelGetsSeveralOwners) {
  const std::vector<OwnedPart> parts = hot_model(4, 100);
  const auto groups = divided(parts, 250);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].rate, 200);
  EXPECT_TRUE(groups[0].divided);
  auto owners = assign_owners(groups, three(), 0);
  std::sort(owners.begin(), owners.end());
  EXPECT_EQ(owners, (std::vector<std::string>{"f1", "f2"})) << "not the leader";
}

TEST(DividedGroups, AGroupStaysWholeBelowTheRateOrWithoutTwoOtherMembers) {
  EXPECT_EQ(divided(hot_model(4, 100), 400).size(), 1U);
  EXPECT_EQ(divided(hot_model(3, 100), 100).size(), 1U) << "too few gpulets";
  std::vector<OwnerCandidate> one_other = three();
  one_other.pop_back();
  EXPECT_EQ(divided(hot_model(4, 100), 100, one_other).size(), 1U);
  std::vector<OwnerCandidate> cut = three();
  cut[1].nodes = {"n1"};
  EXPECT_EQ(divided(hot_model(4, 100), 100, cut).size(), 1U);
  std::vector<OwnedPart> fixed = hot_model(4, 100);
  fixed[2].fixed = true;
  EXPECT_EQ(divided(fixed, 100).size(), 1U);
}

TEST(DividedGroups, PiecesStayWithTheirOwnersUntilTheRateIsBelowHalf) {
  std::vector<OwnedPart> parts = hot_model(6, 100);
  const auto before = divided(parts, 300);
  ASSERT_EQ(before.size(), 2U);
  parts = owned_as(parts, before, assign_owners(before, three(), 0));
  for (OwnedPart& one : parts) one.rate = 60;
  const auto after = divided(parts, 300);
  ASSERT_EQ(after.size(), 2U);
  for (const OwnerGroup& group : after) {
    for (const std::size_t one : group.parts) EXPECT_EQ(parts[one].owner, group.owner);
  }
  for (OwnedPart& one : parts) one.rate = 20;
  EXPECT_EQ(divided(parts, 300).size(), 1U);
}

TEST(DividedGroups, FewModelsAreDivided) {
  // Two models that share one gpulet: each piece gets the gpulets of one of them.
  const std::vector<OwnedPart> parts = {part(1, {"a"}, 100), part(2, {"b"}, 100),
                                        part(3, {"a", "b"}, 50), part(4, {"b"}, 100),
                                        part(5, {"a"}, 100)};
  const auto groups = divided(parts, 300);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[0].parts, (std::vector<std::size_t>{0, 2, 4}));
  EXPECT_EQ(groups[1].parts, (std::vector<std::size_t>{1, 3}));
}

RC_GTEST_PROP(DividedGroups, PiecesAreAPartitionThatTheLeaderDoesNotOwn, ()) {
  const auto rates = *rc::gen::container<std::vector<int>>(*rc::gen::inRange<std::size_t>(1, 16),
                                                           rc::gen::inRange(0, 100));
  std::vector<OwnedPart> parts;
  for (const int rate : rates) {
    std::vector<std::string> models = {*rc::gen::elementOf(std::vector<std::string>{"a", "b"})};
    if (*rc::gen::inRange(0, 4) == 0) models.emplace_back("c");
    parts.push_back(part(parts.size() + 1, models, rate,
                         *rc::gen::elementOf(std::vector<std::string>{"", "f1", "f2", "gone"})));
    parts.back().fixed = *rc::gen::inRange(0, 20) == 0;
  }
  std::vector<OwnerCandidate> candidates = three();
  candidates[2].takes_more = *rc::gen::arbitrary<bool>();
  const double max_rate = *rc::gen::inRange(1, 300);
  const auto groups = divided(parts, max_rate, candidates);
  std::multiset<std::size_t> seen;
  std::map<std::string, std::set<bool>> divided_of;  // by model
  const auto owners = assign_owners(groups, candidates, groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    seen.insert(groups[i].parts.begin(), groups[i].parts.end());
    RC_ASSERT(!groups[i].parts.empty());
    RC_ASSERT(!(groups[i].divided && owners[i].empty()));
    for (const std::size_t one : groups[i].parts) {
      for (const std::string& model : parts[one].models)
        divided_of[model].insert(groups[i].divided);
    }
  }
  RC_ASSERT(seen.size() == parts.size());
  RC_ASSERT(std::set<std::size_t>(seen.begin(), seen.end()).size() == parts.size());
  for (const auto& [model, kinds] : divided_of) RC_ASSERT(kinds.size() == 1U);
  // Another choice for the same load moves nothing.
  const std::vector<OwnedPart> told = owned_as(parts, groups, owners);
  const auto again = divided(told, max_rate, candidates);
  RC_ASSERT(owned_as(told, again, assign_owners(again, candidates, 0)).size() == parts.size());
}

// Without owners to keep, and with as many moves as wanted: no load is far above the best.
RC_GTEST_PROP(Owners, TheHighestLoadIsBoundedAndGroupsAreWithCandidatesThatReachThem, ()) {
  const auto rates = *rc::gen::container<std::vector<int>>(*rc::gen::inRange<std::size_t>(1, 12),
                                                           rc::gen::inRange(0, 100));
  std::vector<OwnerGroup> groups;
  for (const int rate : rates) {
    OwnerGroup made = group(rate, *rc::gen::elementOf(std::vector<std::string>{"", "f1", "gone"}));
    made.fixed = *rc::gen::inRange(0, 8) == 0;
    if (*rc::gen::inRange(0, 4) == 0) made.nodes.insert("n1");
    groups.push_back(made);
  }
  std::vector<OwnerCandidate> candidates = three();
  if (*rc::gen::arbitrary<bool>()) candidates[1].nodes.insert("n1");
  const auto owners = assign_owners(groups, candidates, groups.size());
  RC_ASSERT(owners.size() == groups.size());
  RC_ASSERT(assign_owners(groups, candidates, groups.size()) == owners);
  std::map<std::string, double> load;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    load[owners[i]] += groups[i].rate + 1;
    if (owners[i].empty()) continue;
    RC_ASSERT(!groups[i].fixed);
    const auto candidate = std::find_if(candidates.begin(), candidates.end(),
                                        [&](const auto& one) { return one.member == owners[i]; });
    RC_ASSERT(candidate != candidates.end());
    RC_ASSERT(std::includes(candidate->nodes.begin(), candidate->nodes.end(),
                            groups[i].nodes.begin(), groups[i].nodes.end()));
  }
  // What one group of the highest could still be moved would not lower the higher of two loads.
  const auto highest = std::max_element(
      load.begin(), load.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const double sum = std::accumulate(load.begin(), load.end(), 0.0,
                                     [](double all, const auto& one) { return all + one.second; });
  if (highest->second <= kMostImbalance * sum / 3) return;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (owners[i] != highest->first || groups[i].fixed) continue;
    for (const OwnerCandidate& to : candidates) {
      const bool reaches =
          to.member.empty() || std::includes(to.nodes.begin(), to.nodes.end(),
                                             groups[i].nodes.begin(), groups[i].nodes.end());
      if (to.member == highest->first || !reaches) continue;
      RC_ASSERT(load[to.member] + groups[i].rate + 1 >= highest->second);
    }
  }
}

}  // namespace
}  // namespace gpulet::serve::owners_test

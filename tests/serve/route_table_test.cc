#include "serve/values/route_table.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <map>

namespace gpulet::serve::route_table_test {
namespace {

TEST(RouteTable, AFrontendAloneServesAll) {
  RouteTable routes(true, {});
  EXPECT_TRUE(routes.all_here());
  EXPECT_TRUE(routes.here("a"));
  EXPECT_FALSE(routes.divided("a"));
  EXPECT_EQ(routes.next_member_for("a"), "");
}

TEST(RouteTable, OthersServeWhatTheyOwnAndTheLeaderTheRest) {
  RouteTable routes(false, "f1");
  routes.follow("f0");
  routes.set_owners({{"a", {{"f1", 1}}}, {"b", {{"f2", 1}}}});
  routes.set_owned({"a"});
  EXPECT_TRUE(routes.here("a"));
  EXPECT_EQ(routes.member_for("a"), "") << "this one";
  EXPECT_EQ(routes.member_for("b"), "f2");
  EXPECT_EQ(routes.member_for("c"), "f0");
  EXPECT_TRUE(routes.serves("f0", "c"));
  EXPECT_FALSE(routes.serves("f0", "b"));
  routes.lead();
  EXPECT_FALSE(routes.here("b"));
  EXPECT_TRUE(routes.here("c"));
}

TEST(RouteTable, OwnersOfADividedModelTakeTurns) {
  RouteTable routes(false, "f1");
  routes.follow("f0");
  routes.set_owners({{"a", {{"f2", 3}, {"f1", 1}}}});
  routes.set_owned({"a"});
  EXPECT_TRUE(routes.divided("a"));
  EXPECT_TRUE(routes.here("a"));
  EXPECT_TRUE(routes.serves("f1", "a"));
  std::map<std::string, int> turns;
  for (int i = 0; i < 40; ++i) ++turns[routes.next_member_for("a")];
  EXPECT_EQ(turns, (std::map<std::string, int>{{"", 10}, {"f2", 30}}));
}

// At any time, each owner has had its part of the requests, but for fewer than one for each owner.
RC_GTEST_PROP(RouteTable, TurnsFollowTheWeightsAtAnyTime, ()) {
  std::vector<OwnerShare> owners;
  double total = 0;
  const int count = *rc::gen::inRange(2, 6);
  for (int i = 0; i < count; ++i) {
    owners.push_back({"f" + std::to_string(i + 1), *rc::gen::inRange(1, 50) / 7.0});
    total += owners.back().weight;
  }
  RouteTable routes(true, "f0");
  routes.set_owners({{"a", owners}});
  std::map<std::string, int> turns;
  for (int n = 1; n <= 200; ++n) {
    ++turns[routes.next_member_for("a")];
    for (const OwnerShare& one : owners)
      RC_ASSERT(std::abs(turns[one.member] - n * one.weight / total) < count);
  }
}

}  // namespace
}  // namespace gpulet::serve::route_table_test

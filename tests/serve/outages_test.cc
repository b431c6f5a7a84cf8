#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <vector>

#include "serve/deploy/serving_plan.h"
#include "tests/support/serve/frontend_parts.h"

namespace gpulet::serve::outages_test {
namespace {

using std::chrono::seconds;
using testing::at_ms;
using testing::FrontendParts;

PlannedOutage outage(std::uint64_t until, const std::vector<std::uint64_t>& dark) {
  PlannedOutage made;
  made.device = {"n0", 0};
  for (const std::uint64_t id : dark) made.dark.push_back(GpuletId{id});
  made.models = {"a"};
  made.until = GpuletId{until};
  return made;
}

// A registry with one backend and these gpulets.
struct Registry {
  explicit Registry(const std::vector<std::uint64_t>& ids) {
    backends.join(BackendId{1}, {"n0", {FrontendParts::device("n0", 0)}, {}}, at_ms(0));
    for (const std::uint64_t id : ids) {
      CreateGpulet create;
      create.id = GpuletId{id};
      create.size = Share{50};
      backends.add_gpulet(create, {"n0", 0}, {}, at_ms(0));
    }
  }
  BackendRegistry backends;
};

TEST(Outages, AnOutageThatBeginsReplacesItsEstimate) {
  Outages outages;
  PlannedOutage estimate = outage(5, {1, 2});
  estimate.expected = seconds(3);
  outages.expect({estimate, outage(6, {3})});
  outages.begin(outage(5, {1}));
  ASSERT_EQ(outages.all().size(), 2U);
  EXPECT_TRUE(outages.all()[0].begun);
  EXPECT_EQ(outages.all()[0].dark, std::vector{GpuletId{1}});
  EXPECT_FALSE(outages.all()[0].expected);
  EXPECT_FALSE(outages.all()[1].begun);
}

TEST(Outages, OneThatWasNotExpectedBeginsAsWell) {
  Outages outages;
  outages.begin(outage(5, {1}));
  ASSERT_EQ(outages.all().size(), 1U);
  EXPECT_TRUE(outages.all()[0].begun);
}

TEST(Outages, WithoutAGpuletThatEndsThereIsNone) {
  Outages outages;
  outages.begin(outage(5, {}));
  EXPECT_TRUE(outages.all().empty());
}

TEST(Outages, AnOutageEndsWithTheGpuletThatServesAgain) {
  Outages outages;
  outages.expect({outage(5, {1}), outage(6, {2})});
  outages.end(GpuletId{1});
  EXPECT_EQ(outages.all().size(), 2U) << "that one is dark";
  outages.end(GpuletId{5});
  ASSERT_EQ(outages.all().size(), 1U);
  EXPECT_EQ(outages.all()[0].until, GpuletId{6});
}

TEST(Outages, NewExpectationsReplaceTheOldOnes) {
  Outages outages;
  outages.expect({outage(5, {1})});
  outages.expect({outage(6, {2})});
  ASSERT_EQ(outages.all().size(), 1U);
  EXPECT_EQ(outages.all()[0].until, GpuletId{6});
  outages.clear();
  EXPECT_TRUE(outages.all().empty());
}

TEST(Outages, OnlyThoseThatBeganAndWillEndAreKept) {
  Registry registry({5, 6});
  Outages outages;
  outages.expect({outage(5, {1}), outage(6, {2}), outage(7, {3})});
  outages.begin(outage(5, {1}));
  outages.begin(outage(7, {3}));
  outages.drop_others(registry.backends);
  ASSERT_EQ(outages.all().size(), 1U) << "6 did not begin, and 7 does not exist";
  EXPECT_EQ(outages.all()[0].until, GpuletId{5});
}

// Each outage is known once, from its expectation or beginning to its end.
RC_GTEST_PROP(OutagesProperty, EachIsKnownOnceUntilItEnds, ()) {
  Outages outages;
  std::map<GpuletId, bool> begun;  // by `until`
  const int steps = *rc::gen::inRange(1, 40);
  for (int step = 0; step < steps; ++step) {
    const auto until = *rc::gen::inRange<std::uint64_t>(1, 6);
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
        outages.expect({outage(until, {until + 10})});
        begun = {{GpuletId{until}, false}};
        break;
      case 1:
        outages.end(GpuletId{until});
        begun.erase(GpuletId{until});
        break;
      default:
        outages.begin(outage(until, {until + 10}));
        begun[GpuletId{until}] = true;
        break;
    }
    RC_ASSERT(outages.all().size() == begun.size());
    for (const PlannedOutage& one : outages.all()) RC_ASSERT(begun.at(one.until) == one.begun);
  }
}

}  // namespace
}  // namespace gpulet::serve::outages_test

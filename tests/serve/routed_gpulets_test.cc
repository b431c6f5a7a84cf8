#include "serve/dispatch/routed_gpulets.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <vector>

#include "tests/support/serve/dispatch_parts.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::routed_gpulets_test {
namespace {

using std::chrono::milliseconds;
using testing::at;
using testing::byte_model;
using testing::byte_request;
using testing::DispatchParts;
using testing::even_route;

std::vector<ServedModel> two_models() { return {byte_model("a", 100, 0), byte_model("b", 100, 0)}; }

// Sends one request of the model to the gpulet.
Batch send_one(DispatchParts& parts, std::uint64_t gpulet, ModelIndex model, int ms) {
  parts.push(model, byte_request(1, at(ms), at(ms + 1000)));
  return parts.send(gpulet, model, 1, at(ms));
}

TEST(RoutedGpulets, NothingIsKnownOfOneWithoutARoute) {
  DispatchParts parts(two_models());
  EXPECT_EQ(parts.gpulets.find(GpuletId{1}), nullptr);
  EXPECT_EQ(parts.gpulets.in_flight(GpuletId{1}), 0U);
  EXPECT_TRUE(parts.gpulets.execution(GpuletId{1}, 0).empty());
  EXPECT_EQ(parts.gpulets.statistics(GpuletId{1}).batches, 0U);
  EXPECT_EQ(parts.gpulets.pace(GpuletId{1}, at(0)), 0);
}

TEST(RoutedGpulets, ARouteTellsWhatTheGpuletServes) {
  DispatchParts parts(two_models());
  GpuletRoute route = even_route(1, {1});
  route.slots[0].execution = {milliseconds(3), milliseconds(8), milliseconds(5)};
  parts.gpulets.set_routes({route}, at(5));
  const RoutedGpulet& gpulet = parts.gpulet(1);
  EXPECT_EQ(gpulet.backend, BackendId{1});
  EXPECT_EQ(gpulet.longest, milliseconds(8));
  EXPECT_TRUE(gpulet.ready);
  EXPECT_EQ(parts.gpulets.execution(GpuletId{1}, 1), route.slots[0].execution);
  EXPECT_TRUE(parts.gpulets.execution(GpuletId{1}, 0).empty());
  EXPECT_EQ(parts.take_touched(), std::vector<ModelIndex>{1});
}

TEST(RoutedGpulets, WithoutARouteOneFinishesWhatItHolds) {
  DispatchParts parts(two_models());
  parts.gpulets.set_routes({even_route(1, {0}), even_route(2, {0})}, at(0));
  const Batch batch = send_one(parts, 1, 0, 0);
  parts.gpulets.set_routes({}, at(1));
  EXPECT_EQ(parts.gpulets.find(GpuletId{2}), nullptr) << "it holds nothing";
  ASSERT_NE(parts.gpulets.find(GpuletId{1}), nullptr);
  EXPECT_EQ(parts.gpulets.in_flight(GpuletId{1}), 1U);
  EXPECT_FALSE(parts.slots.has_slot(0));
  EXPECT_EQ(parts.finish(batch.id, true, at(10)).requests.size(), 1U);
  EXPECT_EQ(parts.gpulets.find(GpuletId{1}), nullptr);
}

TEST(RoutedGpulets, ReadinessAndLoadOutliveAChangeOfRoutes) {
  DispatchParts parts(two_models());
  parts.gpulets.set_routes({even_route(1, {0})}, at(0));
  const Batch batch = send_one(parts, 1, 0, 0);
  parts.slots.change_ready(parts.gpulet(1), false);
  parts.gpulets.set_routes({even_route(1, {0, 1})}, at(1));
  EXPECT_FALSE(parts.gpulet(1).ready);
  EXPECT_EQ(parts.gpulet(1).in_flight, 1U);
  EXPECT_FALSE(parts.slots.has_ready_slot(1));
  EXPECT_EQ(parts.finish(batch.id, true, at(10)).model, 0U);
  EXPECT_EQ(parts.gpulet(1).in_flight, 0U);
}

TEST(RoutedGpulets, ARemovedOneLeavesItsModelsToTheOthers) {
  DispatchParts parts(two_models());
  parts.gpulets.set_routes({even_route(1, {0, 1}), even_route(2, {0})}, at(0));
  EXPECT_EQ(parts.take_touched().size(), 2U);
  parts.gpulets.remove(GpuletId{1});
  EXPECT_EQ(parts.gpulets.find(GpuletId{1}), nullptr);
  ASSERT_EQ(parts.slots.of(0).size(), 1U);
  EXPECT_EQ(parts.slots.of(0)[0].id, GpuletId{2});
  EXPECT_FALSE(parts.slots.has_slot(1));
  EXPECT_EQ(parts.take_touched(), (std::vector<ModelIndex>{0, 1}));
  parts.gpulets.remove(GpuletId{1});
  EXPECT_TRUE(parts.take_touched().empty());
}

TEST(RoutedGpulets, AnEndedBatchMakesRoomAndMovesThePredictedEnd) {
  DispatchParts parts(two_models());
  parts.gpulets.set_routes({even_route(1, {0})}, at(0));
  const Batch first = send_one(parts, 1, 0, 0);
  const Batch second = send_one(parts, 1, 0, 0);
  EXPECT_FALSE(parts.gpulet(1).has_room());
  EXPECT_EQ(parts.gpulet(1).busy_until, at(20));
  parts.take_touched();
  EXPECT_EQ(parts.finish(first.id, true, at(14)).gpulet, GpuletId{1});
  EXPECT_TRUE(parts.gpulet(1).has_room());
  EXPECT_EQ(parts.gpulet(1).busy_until, at(24));
  EXPECT_EQ(parts.take_touched(), std::vector<ModelIndex>{0});
  EXPECT_EQ(parts.finish(second.id, true, at(24)).gpulet, GpuletId{1});
  EXPECT_EQ(parts.gpulet(1).busy_until, at(24));
}

TEST(RoutedGpulets, OneThatTakesTurnsComesDueItself) {
  DispatchParts parts(two_models());
  parts.gpulets.set_routes({even_route(1, {0, 1})}, at(0));
  const Batch batch = send_one(parts, 1, 0, 0);
  parts.take_touched();
  EXPECT_FALSE(parts.agenda.take_gpulet());
  EXPECT_EQ(parts.finish(batch.id, true, at(10)).gpulet, GpuletId{1});
  EXPECT_TRUE(parts.take_touched().empty());
  EXPECT_EQ(parts.agenda.take_gpulet(), GpuletId{1});
}

TEST(RoutedGpulets, AReservationEndsWithTheLastBatchAndTouchesAllModels) {
  DispatchParts parts(two_models());
  parts.gpulets.set_routes({even_route(1, {0, 1})}, at(0));
  const Batch first = send_one(parts, 1, 0, 0);
  const Batch second = send_one(parts, 1, 1, 0);
  parts.gpulet(1).reserved = true;
  EXPECT_EQ(parts.finish(first.id, true, at(10)).gpulet, GpuletId{1});
  EXPECT_TRUE(parts.gpulet(1).reserved);
  EXPECT_FALSE(parts.gpulet(1).has_room());
  parts.take_touched();
  EXPECT_EQ(parts.finish(second.id, true, at(20)).gpulet, GpuletId{1});
  EXPECT_FALSE(parts.gpulet(1).reserved);
  EXPECT_EQ(parts.take_touched(), (std::vector<ModelIndex>{0, 1}));
}

TEST(RoutedGpulets, StatisticsCountWhatAGpuletRan) {
  DispatchParts parts(two_models());
  parts.gpulets.set_routes({even_route(1, {0})}, at(0));
  const Batch batch = send_one(parts, 1, 0, 0);
  const BatchInFlight held = parts.finish(batch.id, true, at(20));
  parts.gpulets.ran(parts.gpulet(1), held, milliseconds(20), at(20));
  const GpuletStatistics statistics = parts.gpulets.statistics(GpuletId{1});
  EXPECT_EQ(statistics.batches, 1U);
  EXPECT_EQ(statistics.requests, 1U);
  EXPECT_EQ(statistics.planned, 4U);
  EXPECT_EQ(statistics.executed, milliseconds(20));
}

// A gpulet holds as many batches as are in flight for it, and is kept exactly as long as it has a
// route or holds one.
RC_GTEST_PROP(RoutedGpuletsProperty, EachIsKeptWhileItHasARouteOrABatch, ()) {
  constexpr std::uint64_t kGpulets = 3;
  DispatchParts parts(two_models());
  std::map<GpuletId, bool> routed;
  int now = 0;
  const int steps = *rc::gen::inRange(1, 60);
  for (int step = 0; step < steps; ++step) {
    now += *rc::gen::inRange(0, 10);
    const GpuletId id{*rc::gen::inRange<std::uint64_t>(1, kGpulets + 1)};
    switch (*rc::gen::inRange(0, 4)) {
      case 0: {
        std::vector<GpuletRoute> routes;
        for (std::uint64_t one = 1; one <= kGpulets; ++one) {
          const int kind = *rc::gen::inRange(0, 3);
          routed[GpuletId{one}] = kind > 0;
          if (kind == 1) routes.push_back(even_route(one, {0}));
          if (kind == 2) routes.push_back(even_route(one, {0, 1}));
        }
        parts.gpulets.set_routes(routes, at(now));
        break;
      }
      case 1:
        if (!parts.batches.empty()) {
          const BatchInFlight ended = parts.finish(parts.batches.all().begin()->first,
                                                   *rc::gen::arbitrary<bool>(), at(now));
          RC_ASSERT(ended.requests.size() == 1U);
        }
        break;
      default:
        if (routed[id] && parts.gpulet(id.value).has_room()) send_one(parts, id.value, 0, now);
        break;
    }
    for (const auto& [one, has_route] : routed) {
      const std::size_t held = parts.batches.held_by(one).size();
      RC_ASSERT(parts.gpulets.in_flight(one) == held);
      const RoutedGpulet* const gpulet = parts.gpulets.find(one);
      RC_ASSERT((gpulet != nullptr) == (has_route || held > 0));
      if (gpulet == nullptr) continue;
      RC_ASSERT(gpulet->expected == milliseconds(10) * static_cast<std::int64_t>(held));
      RC_ASSERT(gpulet->slots.empty() == !has_route);
    }
  }
}

}  // namespace
}  // namespace gpulet::serve::routed_gpulets_test

#include "serve/dispatch/serving_slots.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/serve/dispatch_parts.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::serving_slots_test {
namespace {

using std::chrono::milliseconds;
using testing::at;
using testing::byte_model;
using testing::byte_request;
using testing::DispatchParts;
using testing::even_route;

std::vector<ServedModel> two_models() { return {byte_model("a", 100, 0), byte_model("b", 100, 0)}; }

GpuletRoute instance(std::uint64_t id, ModelIndex model) {
  GpuletRoute route = even_route(id, {model});
  route.service = schedule::Service::by_need;
  route.slots[0].execution.resize(1);
  return route;
}

// The indices of the slots in the order.
std::vector<std::size_t> slots_in(const SlotOrder& order) {
  std::vector<std::size_t> slots;
  for (const auto& [time, slot] : order) slots.push_back(slot);
  return slots;
}

TEST(ServingSlots, AModelHasTheSlotsOfTheRoutesByGpulet) {
  DispatchParts parts(two_models());
  EXPECT_FALSE(parts.slots.has_slot(0));
  parts.gpulets.set_routes({even_route(7, {0}), even_route(3, {0, 1})}, at(0));
  ASSERT_EQ(parts.slots.of(0).size(), 2U);
  EXPECT_EQ(parts.slots.of(0)[0].id, GpuletId{3});
  EXPECT_EQ(parts.slots.of(0)[1].id, GpuletId{7});
  EXPECT_EQ(parts.slots.of(1).size(), 1U);
  parts.gpulets.set_routes({even_route(7, {0})}, at(1));
  EXPECT_EQ(parts.slots.of(0).size(), 1U);
  EXPECT_FALSE(parts.slots.has_slot(1));
}

TEST(ServingSlots, AnUnreadyGpuletServesNothingNow) {
  DispatchParts parts(two_models());
  parts.gpulets.set_routes({even_route(1, {0}), even_route(2, {0})}, at(0));
  parts.slots.change_ready(parts.gpulet(1), false);
  EXPECT_TRUE(parts.slots.has_ready_slot(0));
  parts.slots.change_ready(parts.gpulet(2), false);
  EXPECT_FALSE(parts.slots.has_ready_slot(0));
  EXPECT_TRUE(parts.slots.has_slot(0));
  parts.slots.change_ready(parts.gpulet(1), true);
  EXPECT_TRUE(parts.slots.has_ready_slot(0));
}

TEST(ServingSlots, OnlyInstancesMeansNoGpuletWithRounds) {
  DispatchParts parts(two_models());
  EXPECT_FALSE(parts.slots.only_instances(0)) << "it has no slot at all";
  parts.gpulets.set_routes({instance(1, 0)}, at(0));
  EXPECT_TRUE(parts.slots.only_instances(0));
  parts.gpulets.set_routes({instance(1, 0), even_route(2, {0})}, at(0));
  EXPECT_FALSE(parts.slots.only_instances(0));
}

TEST(ServingSlots, ABacklogIsMoreThanTheReadySlotsHold) {
  DispatchParts parts(two_models());
  parts.gpulets.set_routes({even_route(1, {0}), even_route(2, {0})}, at(0));
  for (std::uint64_t tag = 1; tag <= 8; ++tag) parts.push(0, byte_request(tag, at(0), at(100)));
  EXPECT_FALSE(parts.slots.backlogged(0));
  parts.slots.change_ready(parts.gpulet(1), false);
  EXPECT_TRUE(parts.slots.backlogged(0));
  parts.slots.change_ready(parts.gpulet(1), false);
  parts.slots.change_ready(parts.gpulet(1), true);
  EXPECT_FALSE(parts.slots.backlogged(0)) << "each change counts once";
  parts.push(0, byte_request(9, at(0), at(100)));
  EXPECT_TRUE(parts.slots.backlogged(0));
}

TEST(ServingSlots, ASlotYieldsWhereItIsAheadOfItsPartAndTheOthersHaveRoom) {
  DispatchParts parts(two_models());
  std::vector<GpuletRoute> routes = {even_route(1, {0}), even_route(2, {0})};
  for (GpuletRoute& route : routes) route.slots[0].rate = 100;
  parts.gpulets.set_routes(routes, at(0));
  const ServingSlot first = parts.slot(1, 0);
  EXPECT_FALSE(parts.slots.yields(*first.slot));
  parts.slots.take(first, 4, at(0));
  EXPECT_TRUE(parts.slots.yields(*first.slot));
  EXPECT_FALSE(parts.slots.yields(*parts.slot(2, 0).slot));
  for (std::uint64_t tag = 1; tag <= 9; ++tag) parts.push(0, byte_request(tag, at(0), at(100)));
  EXPECT_FALSE(parts.slots.yields(*first.slot)) << "the others have no room";
}

TEST(ServingSlots, ADeadlineIsReachableAfterTheBatchesInFlight) {
  DispatchParts parts(two_models());
  parts.gpulets.set_routes({even_route(1, {0}), instance(2, 1)}, at(0));
  const ServingSlot one = parts.slot(1, 0);
  const Time idle = parts.slots.reachable_deadline(*one.gpulet, *one.slot, at(50));
  EXPECT_GE(idle, at(60)) << "a batch takes 10 ms, and there is an allowance";
  one.gpulet->hold(milliseconds(30), at(50));
  EXPECT_EQ(parts.slots.reachable_deadline(*one.gpulet, *one.slot, at(50)),
            idle + milliseconds(30));
  const ServingSlot other = parts.slot(2, 1);
  EXPECT_EQ(parts.slots.reachable_deadline(*other.gpulet, *other.slot, at(50)), at(50))
      << "an instance may become idle";
}

TEST(ServingSlots, WithABacklogTheFullBatchDecidesWhatIsReachable) {
  DispatchParts parts(two_models());
  GpuletRoute route = even_route(1, {0});
  route.slots[0].execution = {milliseconds(10), milliseconds(20)};
  parts.gpulets.set_routes({route}, at(0));
  const ServingSlot one = parts.slot(1, 0);
  for (std::uint64_t tag = 1; tag <= 2; ++tag) parts.push(0, byte_request(tag, at(0), at(100)));
  const Time before = parts.slots.reachable_deadline(*one.gpulet, *one.slot, at(0));
  parts.push(0, byte_request(3, at(0), at(100)));
  EXPECT_GE(parts.slots.reachable_deadline(*one.gpulet, *one.slot, at(0)),
            before + milliseconds(10));
}

TEST(ServingSlots, ArrivalsListTheModelAndTouchIt) {
  DispatchParts parts(two_models());
  EXPECT_TRUE(parts.take_touched().empty());
  parts.push(1, byte_request(1, at(0), at(100)));
  EXPECT_EQ(parts.take_touched(), std::vector<ModelIndex>{1});
  EXPECT_EQ(parts.queues.unlist([](ModelIndex) { return true; }), std::vector<ModelIndex>{1});
}

TEST(ServingSlots, TurnsGoToTheSlotThatWasServedLongestAgo) {
  DispatchParts parts(two_models());
  parts.gpulets.set_routes({even_route(1, {0, 1})}, at(0));
  RoutedGpulet& gpulet = parts.gpulet(1);
  EXPECT_TRUE(slots_in(gpulet.turns).empty()) << "nothing waits";
  parts.push(0, byte_request(1, at(0), at(100)));
  parts.push(1, byte_request(2, at(0), at(90)));
  EXPECT_EQ(slots_in(gpulet.turns), (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(slots_in(gpulet.latest_starts), (std::vector<std::size_t>{1, 0}));
  parts.slots.take(parts.slot(1, 0), 1, at(5));
  EXPECT_EQ(slots_in(gpulet.turns), (std::vector<std::size_t>{1, 0}));
  EXPECT_TRUE(parts.queues.remove(1, ClientId{1}, 2));
  parts.slots.reorder(1);
  EXPECT_EQ(slots_in(gpulet.turns), std::vector<std::size_t>{0});
}

TEST(ServingSlots, ProcessesOfOneInstanceStartInTurnsAtEqualDistances) {
  DispatchParts parts(two_models());
  std::vector<GpuletRoute> routes;
  for (std::uint64_t id = 1; id <= 2; ++id) {
    GpuletRoute route = even_route(id, {0});
    route.duty_cycle = milliseconds(20);
    route.processes = 2;
    route.instance = 1;
    routes.push_back(route);
  }
  parts.gpulets.set_routes(routes, at(0));
  parts.gpulet(1).busy_until = at(50);
  EXPECT_EQ(parts.slots.first_free_first(0)[0].id, GpuletId{2});
  parts.slots.take(parts.slot(1, 0), 1, at(100));
  EXPECT_EQ(parts.slot(1, 0).slot->turn, at(120));
  EXPECT_EQ(parts.slot(2, 0).slot->turn, at(110));
}

TEST(ServingSlots, WithoutProcessesInTurnTheOrderIsThatOfTheGpulets) {
  DispatchParts parts(two_models());
  parts.gpulets.set_routes({even_route(1, {0}), even_route(2, {0})}, at(0));
  parts.gpulet(1).busy_until = at(50);
  EXPECT_EQ(parts.slots.first_free_first(0)[0].id, GpuletId{1});
}

// The room for requests is that of the ready gpulets with rounds, whatever routes and readiness do.
RC_GTEST_PROP(ServingSlotsProperty, TheRoomIsThatOfTheReadySlots, ()) {
  constexpr std::uint64_t kGpulets = 3;
  constexpr ModelIndex kModels = 2;
  DispatchParts parts(two_models());
  const int steps = *rc::gen::inRange(1, 30);
  for (int step = 0; step < steps; ++step) {
    const auto id = *rc::gen::inRange<std::uint64_t>(1, kGpulets + 1);
    switch (*rc::gen::inRange(0, 3)) {
      case 0: {
        std::vector<GpuletRoute> routes;
        for (std::uint64_t one = 1; one <= kGpulets; ++one) {
          switch (*rc::gen::inRange(0, 4)) {
            case 0:
              routes.push_back(even_route(one, {0, 1}));
              break;
            case 1:
              routes.push_back(even_route(one, {1}));
              break;
            case 2:
              routes.push_back(instance(one, 0));
              break;
            default:
              break;
          }
        }
        parts.gpulets.set_routes(routes, at(step));
        break;
      }
      case 1:
        parts.gpulets.remove(GpuletId{id});
        break;
      default:
        if (RoutedGpulet* const gpulet = parts.gpulets.find(GpuletId{id}))
          parts.slots.change_ready(*gpulet, *rc::gen::arbitrary<bool>());
        break;
    }
    for (ModelIndex model = 0; model < kModels; ++model) {
      std::size_t room = 0;
      bool any_ready = false;
      for (const ServingSlot& one : parts.slots.of(model)) {
        RC_ASSERT(one.gpulet == parts.gpulets.find(one.id));
        any_ready = any_ready || one.gpulet->ready;
        if (one.gpulet->ready && one.gpulet->has_rounds()) room += one.slot->execution.size();
      }
      RC_ASSERT(parts.slots.has_ready_slot(model) == any_ready);
      for (std::uint64_t tag = 1; tag <= room; ++tag)
        parts.push(model, byte_request(tag, at(0), at(100)));
      RC_ASSERT(!parts.slots.backlogged(model));
      parts.push(model, byte_request(room + 1, at(0), at(100)));
      RC_ASSERT(parts.slots.backlogged(model));
      RC_ASSERT(parts.queues.take_all(model).size() == room + 1);
      parts.slots.reorder(model);
    }
  }
}

}  // namespace
}  // namespace gpulet::serve::serving_slots_test

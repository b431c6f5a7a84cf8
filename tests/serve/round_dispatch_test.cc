#include "serve/dispatch/round_dispatch.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "tests/support/serve/dispatch_parts.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::round_dispatch_test {
namespace {

using std::chrono::milliseconds;
using testing::at;
using testing::byte_model;
using testing::byte_request;
using testing::DispatchParts;
using testing::even_route;

// A batch of n takes 10 + n ms; the duty cycle is 20 ms.
GpuletRoute route(std::uint64_t id, const std::vector<ModelIndex>& models) {
  GpuletRoute made = even_route(id, models);
  made.duty_cycle = milliseconds(20);
  for (SlotSpec& slot : made.slots) {
    for (std::size_t n = 1; n <= slot.execution.size(); ++n)
      slot.execution[n - 1] = milliseconds(10 + static_cast<int>(n));
  }
  return made;
}

struct Rounds {
  explicit Rounds(const std::vector<GpuletRoute>& routes) {
    parts.gpulets.set_routes(routes, at(0));
  }
  void arrive(ModelIndex model, int count, int deadline_ms = 1000) {
    for (int i = 0; i < count; ++i) parts.push(model, byte_request(++tag, at(0), at(deadline_ms)));
  }
  // Whether gpulet 1 takes a batch of the model.
  bool pump(ModelIndex model, int ms) {
    wake = kNever;
    return parts.rounds.pump(parts.slot(1, model), at(ms), wake, out);
  }
  bool pump_in_turn(int ms) {
    return parts.rounds.pump_in_turn(GpuletId{1}, parts.gpulet(1), at(ms), out);
  }
  [[nodiscard]] const Batch& last() const { return out.batches.back().batch; }

  DispatchParts parts{{byte_model("a", 100, 0), byte_model("b", 100, 0)}};
  DispatchOutput out;
  Time wake = kNever;
  std::uint64_t tag = 0;
};

TEST(RoundDispatch, AnIdleGpuletTakesWhatWaits) {
  Rounds rounds({route(1, {0})});
  EXPECT_FALSE(rounds.pump(0, 50)) << "nothing waits";
  EXPECT_EQ(rounds.wake, kNever);
  rounds.arrive(0, 2);
  EXPECT_TRUE(rounds.pump(0, 50));
  EXPECT_EQ(rounds.last().count, 2U);
}

TEST(RoundDispatch, TheNextBatchWaitsForItsTurnOrUntilItIsFull) {
  Rounds rounds({route(1, {0})});
  rounds.arrive(0, 1);
  EXPECT_TRUE(rounds.pump(0, 50));
  rounds.arrive(0, 1);
  EXPECT_FALSE(rounds.pump(0, 52));
  EXPECT_EQ(rounds.wake, at(70));
  rounds.arrive(0, 3);
  EXPECT_TRUE(rounds.pump(0, 53)) << "it is full";
  EXPECT_EQ(rounds.last().count, 4U);
  rounds.arrive(0, 4);
  EXPECT_FALSE(rounds.pump(0, 53)) << "two batches are in flight";
}

TEST(RoundDispatch, AGpuletThatTakesNoBatchGetsNone) {
  Rounds rounds({route(1, {0})});
  rounds.arrive(0, 4);
  rounds.parts.slots.change_ready(rounds.parts.gpulet(1), false);
  EXPECT_FALSE(rounds.pump(0, 50));
  rounds.parts.slots.change_ready(rounds.parts.gpulet(1), true);
  rounds.parts.gpulet(1).reserved = true;
  EXPECT_FALSE(rounds.pump(0, 50));
}

TEST(RoundDispatch, AnInstanceHasNoRounds) {
  GpuletRoute instance = even_route(1, {0});
  instance.service = schedule::Service::by_need;
  Rounds rounds({instance});
  rounds.arrive(0, 4);
  EXPECT_FALSE(rounds.pump(0, 50));
}

TEST(RoundDispatch, WhatCannotBeInTimeIsNotSent) {
  Rounds rounds({route(1, {0})});
  rounds.arrive(0, 1, 55);
  EXPECT_FALSE(rounds.pump(0, 50));
  rounds.arrive(0, 1, 100);
  EXPECT_TRUE(rounds.pump(0, 50));
  EXPECT_EQ(rounds.last().count, 1U);
  EXPECT_EQ(rounds.parts.queues.queued(0), 1U);
}

TEST(RoundDispatch, ModelsOfOneGpuletTakeTurns) {
  Rounds rounds({route(1, {0, 1})});
  rounds.arrive(0, 1);
  rounds.arrive(1, 1);
  EXPECT_TRUE(rounds.pump_in_turn(50));
  EXPECT_EQ(rounds.last().model, "a");
  rounds.arrive(0, 4);
  EXPECT_FALSE(rounds.pump_in_turn(50)) << "bound as late as possible";
  const Time wake = rounds.parts.agenda.next_wake();
  EXPECT_GT(wake, at(50));
  EXPECT_LT(wake, at(61)) << "before the one in flight ends";
  DispatchOutput later;
  EXPECT_TRUE(rounds.parts.rounds.pump_in_turn(GpuletId{1}, rounds.parts.gpulet(1), wake, later));
  ASSERT_EQ(later.batches.size(), 1U);
  EXPECT_EQ(later.batches[0].batch.model, "b");
}

TEST(RoundDispatch, ForAGpuletWithTurnsAnyOfItsModelsMayBeNext) {
  Rounds rounds({route(1, {0, 1})});
  rounds.arrive(1, 1);
  EXPECT_TRUE(rounds.pump(0, 50));
  EXPECT_EQ(rounds.last().model, "b");
}

TEST(RoundDispatch, ABatchIsAsLargeAsItsMostUrgentRequestAllows) {
  Rounds rounds({route(1, {0, 1})});
  rounds.arrive(0, 1, 64);  // a batch of 3 ends at 63 ms, one of 4 at 64 ms; and the allowance
  rounds.arrive(0, 3, 1000);
  EXPECT_TRUE(rounds.pump_in_turn(50));
  EXPECT_LT(rounds.last().count, 4U);
  EXPECT_GE(rounds.last().count, 1U);
}

// A gpulet never takes more than it has room for, nor a batch that is larger than planned, and a
// next try that it asks for is in the future.
RC_GTEST_PROP(RoundDispatchProperty, BatchesKeepTheirBounds, ()) {
  const bool shared = *rc::gen::arbitrary<bool>();
  Rounds rounds({shared ? route(1, {0, 1}) : route(1, {0})});
  std::size_t sent = 0;
  int now = 0;
  const int steps = *rc::gen::inRange(1, 60);
  for (int step = 0; step < steps; ++step) {
    now += *rc::gen::inRange(0, 15);
    if (*rc::gen::inRange(0, 3) == 0 && !rounds.parts.batches.empty()) {
      const BatchId first = rounds.parts.batches.held_by(GpuletId{1})[0];
      sent += rounds.parts.finish(first, true, at(now)).requests.size();
    } else {
      rounds.arrive(shared ? *rc::gen::inRange<ModelIndex>(0, 2) : 0, *rc::gen::inRange(0, 4),
                    now + *rc::gen::inRange(1, 100));
    }
    rounds.out.batches.clear();
    while (rounds.pump(0, now)) {
    }
    RC_ASSERT(rounds.wake > at(now));
    RC_ASSERT(rounds.parts.gpulet(1).in_flight <= kBatchesInFlight);
    for (const BatchToSend& one : rounds.out.batches) {
      RC_ASSERT(one.batch.count >= 1U);
      RC_ASSERT(one.batch.count <= 4U);
      const BatchInFlight& held = *rounds.parts.batches.find(one.batch.id);
      for (const Request& request : held.requests)
        RC_ASSERT(request.deadline >= at(now) + held.expected);
    }
    std::size_t in_flight = 0;
    for (const auto& [id, batch] : rounds.parts.batches.all()) in_flight += batch.requests.size();
    RC_ASSERT(sent + in_flight + rounds.parts.queues.queued(0) + rounds.parts.queues.queued(1) ==
              rounds.tag);
  }
}

}  // namespace
}  // namespace gpulet::serve::round_dispatch_test

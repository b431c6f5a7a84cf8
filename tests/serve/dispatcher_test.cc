#include "serve/dispatch/dispatcher.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "tests/support/serve/dispatched.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::dispatcher_test {
namespace {

using std::chrono::milliseconds;
using testing::at;
using testing::byte_model;
using testing::byte_request;
using testing::echo;

// A gpulet whose batch of n takes 4 + 2 n ms.
GpuletRoute route(std::uint64_t gpulet, std::vector<ModelIndex> models, std::size_t batch = 4,
                  int duty_cycle_ms = 20) {
  GpuletRoute made{GpuletId{gpulet}, BackendId{1}, milliseconds(duty_cycle_ms), {}};
  for (const ModelIndex index : models) {
    SlotSpec slot{index, {}};
    for (std::size_t n = 1; n <= batch; ++n) {
      slot.execution.emplace_back(milliseconds(4 + 2 * static_cast<int>(n)));
    }
    made.slots.push_back(slot);
  }
  return made;
}

Request request(std::uint64_t tag, Time arrived, int slo_ms = 100) {
  return byte_request(tag, arrived, arrived + milliseconds(slo_ms));
}

class DispatcherTest : public ::testing::Test {
 protected:
  DispatchOutput pump(int ms) {
    DispatchOutput out;
    dispatcher_.pump(at(ms), out);
    return out;
  }
  DispatchOutput arrive(std::uint64_t tag, int ms, int slo_ms = 100) {
    DispatchOutput out;
    dispatcher_.enqueue(0, request(tag, at(ms), slo_ms), at(ms), out);
    return out;
  }

  Dispatcher dispatcher_{{byte_model("a", 100, 0), byte_model("b", 100, 0)}, 8, BatchId{1}};
};

TEST_F(DispatcherTest, IdleGpuletServesTheFirstRequestAtOnce) {
  dispatcher_.set_routes({route(1, {0})}, at(0));
  arrive(1, 50);
  const DispatchOutput out = pump(50);
  ASSERT_EQ(out.batches.size(), 1U);
  EXPECT_EQ(out.batches[0].batch.count, 1U);
  EXPECT_EQ(out.batches[0].batch.gpulet, GpuletId{1});
}

TEST_F(DispatcherTest, TheNextBatchGathersUntilItsTurn) {
  dispatcher_.set_routes({route(1, {0})}, at(0));
  arrive(1, 50);
  ASSERT_EQ(pump(50).batches.size(), 1U);
  arrive(2, 52);
  arrive(3, 60);
  EXPECT_TRUE(pump(60).batches.empty());
  EXPECT_EQ(dispatcher_.next_wake(), at(70));
  const DispatchOutput out = pump(70);
  ASSERT_EQ(out.batches.size(), 1U);
  EXPECT_EQ(out.batches[0].batch.count, 2U);
}

// Gpulet 1 is planned for a tenth of model 0 beside model 1; gpulet 2 has the rest to itself.
TEST_F(DispatcherTest, AModelLeavesASharedGpuletToItsNeighboursBeyondItsPart) {
  GpuletRoute shared = route(1, {0, 1}, 1);
  GpuletRoute own = route(2, {0}, 4, 1);
  shared.slots[0].rate = 10;
  own.slots[0].rate = 90;
  dispatcher_.set_routes({shared, own}, at(0));
  std::map<GpuletId, std::uint32_t> served;
  std::uint64_t tag = 1;
  for (int ms = 0; ms < 4000; ms += 10) {
    DispatchOutput out;
    dispatcher_.enqueue(0, request(tag++, at(ms)), at(ms), out);
    dispatcher_.enqueue(1, request(tag++, at(ms)), at(ms), out);
    dispatcher_.pump(at(ms), out);
    while (!out.batches.empty()) {
      DispatchOutput next;
      for (const BatchToSend& sent : out.batches) {
        if (sent.batch.model == "a") served[sent.batch.gpulet] += sent.batch.count;
        dispatcher_.completed(echo(sent.batch), at(ms + 6), next);
      }
      dispatcher_.pump(at(ms + 6), next);
      out = std::move(next);
    }
  }
  const double all = served[GpuletId{1}] + served[GpuletId{2}];
  EXPECT_EQ(all, 400);
  EXPECT_NEAR(served[GpuletId{1}] / all, 0.1, 0.02);
}

// Two full gpulets: what waits beyond one batch is late for the next full batch.
TEST_F(DispatcherTest, DropsForFullBatchesWhereMoreWaitsThanTheNextOneHolds) {
  dispatcher_.set_routes({route(1, {0}, 4), route(2, {0}, 4)}, at(0));
  dispatcher_.set_ready(GpuletId{2}, false, at(0));
  for (std::uint64_t tag = 1; tag <= 8; ++tag) arrive(tag, 0);  // two batches in flight
  ASSERT_EQ(pump(0).batches.size(), 2U);
  dispatcher_.set_ready(GpuletId{2}, true, at(0));
  dispatcher_.set_ready(GpuletId{1}, false, at(0));
  // A batch of 4 takes 12 ms, one of 1 takes 6 ms.
  DispatchOutput out;
  dispatcher_.enqueue(0, request(20, at(0), 8), at(0), out);
  for (std::uint64_t tag = 21; tag <= 24; ++tag)
    dispatcher_.enqueue(0, request(tag, at(0), 60), at(0), out);
  dispatcher_.pump(at(0), out);
  ASSERT_EQ(out.batches.size(), 1U);
  EXPECT_EQ(out.batches[0].batch.count, 4U) << "without the request that only a batch of 1 serves";
}

TEST_F(DispatcherTest, AtMostTwoBatchesAreInFlight) {
  dispatcher_.set_routes({route(1, {0}, 1)}, at(0));
  for (std::uint64_t i = 0; i < 5; ++i) arrive(i, 50);
  const DispatchOutput first = pump(50);
  EXPECT_EQ(first.batches.size(), 2U);
  DispatchOutput out;
  dispatcher_.completed(echo(first.batches[0].batch), at(56), out);
  dispatcher_.pump(at(56), out);
  EXPECT_EQ(out.answers.size(), 1U);
  EXPECT_EQ(out.batches.size(), 1U);
}

TEST_F(DispatcherTest, EachAnswerGoesToItsClient) {
  dispatcher_.set_routes({route(1, {0})}, at(0));
  for (std::uint64_t i = 0; i < 4; ++i) arrive(i + 10, 50);
  const DispatchOutput sent = pump(50);
  ASSERT_EQ(sent.batches.size(), 1U);
  DispatchOutput out;
  dispatcher_.completed(echo(sent.batches[0].batch), at(62), out);
  ASSERT_EQ(out.answers.size(), 4U);
  for (const Answer& answer : out.answers) {
    ASSERT_TRUE(answer.status.ok());
    EXPECT_EQ(std::to_integer<std::uint64_t>(answer.outputs.at(0).view()[0]), answer.request.tag);
  }
}

TEST_F(DispatcherTest, AnAnswerIsLateAfterItsObjective) {
  dispatcher_.set_routes({route(1, {0})}, at(0));
  for (const int after_ms : {0, 1}) {
    const int arrived_ms = 50 + 200 * after_ms;
    Request one = request(1, at(arrived_ms), 1000);
    one.late_after = at(arrived_ms + 100);
    DispatchOutput out;
    dispatcher_.enqueue(0, std::move(one), at(arrived_ms), out);
    const DispatchOutput sent = pump(arrived_ms);
    ASSERT_EQ(sent.batches.size(), 1U);
    dispatcher_.completed(echo(sent.batches[0].batch), at(arrived_ms + 100 + after_ms), out);
    ASSERT_EQ(out.answers.size(), 1U);
    EXPECT_EQ(dispatcher_.records().counters(0).late, after_ms == 0 ? 0U : 1U);
  }
}

TEST_F(DispatcherTest, ARequestThatCannotBeServedInTimeIsDroppedEarly) {
  dispatcher_.set_routes({route(1, {0})}, at(0));
  arrive(1, 50, 5);  // one request takes 6 ms
  const DispatchOutput out = pump(50);
  EXPECT_TRUE(out.batches.empty());
  ASSERT_EQ(out.answers.size(), 1U);
  EXPECT_EQ(out.answers[0].status.code(), StatusCode::too_late);
  EXPECT_EQ(dispatcher_.records().counters(0).dropped, 1U);
}

// Every batch of one takes 16 ms instead of 6.
TEST_F(DispatcherTest, ARequestIsDroppedIfItsGpuletIsAsSlowAsLately) {
  dispatcher_.set_routes({route(1, {0})}, at(0));
  int now = 50;
  for (std::uint64_t tag = 1; tag <= 50; ++tag, now += 50) {
    arrive(tag, now);
    const DispatchOutput sent = pump(now);
    ASSERT_EQ(sent.batches.size(), 1U);
    DispatchOutput out;
    dispatcher_.completed(echo(sent.batches[0].batch), at(now + 16), out);
  }
  arrive(51, now, 8);
  const DispatchOutput out = pump(now);
  ASSERT_EQ(out.answers.size(), 1U);
  EXPECT_EQ(out.answers[0].status.code(), StatusCode::too_late);
}

TEST_F(DispatcherTest, FullQueueRefusesWithOverloaded) {
  for (std::uint64_t i = 0; i < 8; ++i) EXPECT_TRUE(arrive(i, 50).answers.empty());
  const DispatchOutput out = arrive(9, 50);
  ASSERT_EQ(out.answers.size(), 1U);
  EXPECT_EQ(out.answers[0].status.code(), StatusCode::overloaded);
}

TEST_F(DispatcherTest, RequestsWithoutAGpuletWaitUntilTheirDeadline) {
  arrive(1, 50);
  EXPECT_TRUE(pump(149).answers.empty());
  EXPECT_LE(dispatcher_.next_wake(), at(151));
  const DispatchOutput out = pump(151);
  ASSERT_EQ(out.answers.size(), 1U);
  EXPECT_EQ(out.answers[0].status.code(), StatusCode::too_late);
}

TEST_F(DispatcherTest, AnotherGpuletServesTheRequestsOfALostOne) {
  dispatcher_.set_routes({route(1, {0})}, at(0));
  arrive(1, 50);
  ASSERT_EQ(pump(50).batches.size(), 1U);
  DispatchOutput out;
  dispatcher_.remove(GpuletId{1}, at(55), out);
  EXPECT_TRUE(out.answers.empty());
  dispatcher_.set_routes({route(2, {0})}, at(56));
  const DispatchOutput again = pump(56);
  ASSERT_EQ(again.batches.size(), 1U);
  EXPECT_EQ(again.batches[0].batch.gpulet, GpuletId{2});
}

TEST_F(DispatcherTest, ARequestIsGivenUpAfterSeveralLostProxies) {
  dispatcher_.set_routes({route(1, {0})}, at(0));
  arrive(1, 50, 1000);
  std::vector<Answer> answers;
  for (int i = 0; i < 10 && answers.empty(); ++i) {
    const int now = 50 + 30 * i;
    DispatchOutput out = pump(now);
    ASSERT_EQ(out.batches.size(), 1U);
    DispatchOutput after;
    dispatcher_.completed(
        {out.batches[0].batch.id, {StatusCode::unavailable, "the proxy died"}, {}, {}, {}},
        at(now + 5), after);
    answers = std::move(after.answers);
  }
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].status.code(), StatusCode::unavailable);
  EXPECT_EQ(answers[0].request.attempts, kMaxAttempts);
}

TEST_F(DispatcherTest, TheResultOfALostBatchIsIgnored) {
  dispatcher_.set_routes({route(1, {0})}, at(0));
  arrive(1, 50);
  const DispatchOutput sent = pump(50);
  DispatchOutput out;
  dispatcher_.remove(GpuletId{1}, at(55), out);
  dispatcher_.completed(echo(sent.batches[0].batch), at(56), out);
  EXPECT_TRUE(out.answers.empty());
}

TEST_F(DispatcherTest, TheRequestsOfALostBatchGetTheReasonWhyTheirModelIsClosed) {
  dispatcher_.set_routes({route(1, {0})}, at(0));
  arrive(1, 50, 1000);
  ASSERT_EQ(pump(50).batches.size(), 1U);
  DispatchOutput out;
  dispatcher_.versions().close(0, {StatusCode::not_found, "the model is unloaded"}, at(52), out);
  EXPECT_TRUE(out.answers.empty()) << "its batch is running";
  dispatcher_.remove(GpuletId{1}, at(55), out);
  ASSERT_EQ(out.answers.size(), 1U);
  EXPECT_EQ(out.answers[0].status.code(), StatusCode::not_found);
  EXPECT_EQ(out.answers[0].request.tag, 1U);
}

TEST_F(DispatcherTest, AResultOfTheWrongSizeFailsOnlyItsRequests) {
  dispatcher_.set_routes({route(1, {0})}, at(0));
  arrive(1, 50);
  const DispatchOutput sent = pump(50);
  DispatchOutput out;
  dispatcher_.completed(
      {sent.batches[0].batch.id, {}, Bytes::own(std::vector<std::byte>(3)), {}, {}}, at(56), out);
  ASSERT_EQ(out.answers.size(), 1U);
  EXPECT_EQ(out.answers[0].status.code(), StatusCode::internal);
}

// Eight of "a" wait, four to a batch of 12 ms, and one of "b" comes: it is next, though a full
// batch of "a" is there. It is bound only when the gpulet is about to be free, with all that came
// by then.
TEST_F(DispatcherTest, ModelsThatShareAGpuletTakeTurns) {
  dispatcher_.set_routes({route(1, {0, 1})}, at(0));
  DispatchOutput first;
  for (std::uint64_t i = 0; i < 8; ++i) dispatcher_.enqueue(0, request(i, at(50)), at(50), first);
  dispatcher_.pump(at(50), first);
  ASSERT_EQ(first.batches.size(), 1U);
  EXPECT_EQ(first.batches[0].batch.model, "a");
  EXPECT_EQ(first.batches[0].batch.count, 4U);

  DispatchOutput second;
  dispatcher_.enqueue(1, request(100, at(51)), at(51), second);
  dispatcher_.pump(at(51), second);
  EXPECT_TRUE(second.batches.empty());
  dispatcher_.enqueue(1, request(101, at(60)), at(60), second);
  EXPECT_GT(dispatcher_.next_wake(), at(61));
  EXPECT_LT(dispatcher_.next_wake(), at(62));
  dispatcher_.pump(at(62) - std::chrono::microseconds(100), second);
  ASSERT_EQ(second.batches.size(), 1U);
  EXPECT_EQ(second.batches[0].batch.model, "b");
  EXPECT_EQ(second.batches[0].batch.count, 2U);

  DispatchOutput third;
  dispatcher_.completed(echo(first.batches[0].batch), at(62), third);
  dispatcher_.completed(echo(second.batches[0].batch), at(70), third);
  dispatcher_.pump(at(70), third);
  ASSERT_EQ(third.batches.size(), 1U);
  EXPECT_EQ(third.batches[0].batch.model, "a");
}

TEST_F(DispatcherTest, AModelDoesNotWaitForIdleModelsOnItsGpulet) {
  dispatcher_.set_routes({route(1, {0, 1})}, at(0));
  arrive(1, 50);
  EXPECT_EQ(pump(50).batches.size(), 1U);
}

TEST_F(DispatcherTest, AGpuletWithoutARouteFinishesItsBatches) {
  dispatcher_.set_routes({route(1, {0})}, at(0));
  arrive(1, 50);
  const DispatchOutput sent = pump(50);
  dispatcher_.set_routes({route(2, {0})}, at(51));
  arrive(2, 52);
  const DispatchOutput next = pump(52);
  ASSERT_EQ(next.batches.size(), 1U);
  EXPECT_EQ(next.batches[0].batch.gpulet, GpuletId{2});
  DispatchOutput out;
  dispatcher_.completed(echo(sent.batches[0].batch), at(56), out);
  ASSERT_EQ(out.answers.size(), 1U);
  EXPECT_TRUE(out.answers[0].status.ok());
}

TEST_F(DispatcherTest, ARestartingGpuletTakesNothingUntilItIsReady) {
  dispatcher_.set_routes({route(1, {0})}, at(0));
  dispatcher_.set_ready(GpuletId{1}, false, at(10));
  arrive(1, 50);
  EXPECT_TRUE(pump(50).batches.empty());
  dispatcher_.set_ready(GpuletId{1}, true, at(60));
  EXPECT_EQ(pump(60).batches.size(), 1U);
}

// Twice what the gpulet can do (4 requests in 12 ms) for two seconds: the goodput must hold, with
// full batches, and what is answered is answered in time.
TEST_F(DispatcherTest, OverloadKeepsTheGoodput) {
  Dispatcher dispatcher{{byte_model("a", 100, 0)}, 1000, BatchId{1}};
  dispatcher.set_routes({route(1, {0}, 4, 12)}, at(0));
  std::map<Time, Batch> running;  // by end
  Time free = at(0);
  std::size_t good = 0;
  for (int tenth_ms = 0; tenth_ms < 20000; ++tenth_ms) {
    const Time now = Time(std::chrono::microseconds(100 * tenth_ms));
    DispatchOutput out;
    if (tenth_ms % 15 == 0) {
      dispatcher.enqueue(0, request(static_cast<std::uint64_t>(tenth_ms), now, 60), now, out);
    }
    while (!running.empty() && running.begin()->first <= now) {
      dispatcher.completed(echo(running.begin()->second), now, out);
      running.erase(running.begin());
    }
    dispatcher.pump(now, out);
    for (const BatchToSend& sent : out.batches) {
      free = std::max(free, now) + sent.batch.expected_duration;
      running.emplace(free, sent.batch);
    }
    for (const Answer& answer : out.answers) {
      if (answer.status.ok() && now <= answer.request.deadline) ++good;
    }
  }
  EXPECT_GE(good, 2000U / 12 * 4 * 95 / 100);
  EXPECT_EQ(dispatcher.records().counters(0).late, 0U);
}

// Whatever happens to gpulets and in whatever order, every request gets exactly one answer.
RC_GTEST_PROP(DispatcherProperty, EveryRequestIsAnsweredOnce, ()) {
  Dispatcher dispatcher{{byte_model("a", 100, 0), byte_model("b", 100, 0)}, 16, BatchId{1}};
  std::set<std::uint64_t> asked;
  std::multiset<std::uint64_t> answered;
  std::vector<Batch> running;
  int now = 0;
  std::uint64_t next_tag = 1;
  const auto take = [&](DispatchOutput out) {
    for (BatchToSend& sent : out.batches) running.push_back(std::move(sent.batch));
    for (const Answer& answer : out.answers) answered.insert(answer.request.tag);
  };
  const int steps = *rc::gen::inRange(1, 80);
  for (int step = 0; step < steps; ++step) {
    now += *rc::gen::inRange(0, 15);
    DispatchOutput out;
    switch (*rc::gen::inRange(0, 7)) {
      case 0:
      case 1: {
        const auto index = *rc::gen::inRange<ModelIndex>(0, 2);
        asked.insert(next_tag);
        dispatcher.enqueue(index, request(next_tag++, at(now), *rc::gen::inRange(1, 200)), at(now),
                           out);
        break;
      }
      case 2: {
        std::vector<GpuletRoute> routes;
        for (std::uint64_t id = 1; id <= 3; ++id) {
          if (*rc::gen::arbitrary<bool>())
            routes.push_back(route(
                id, id == 1 ? std::vector<ModelIndex>{0, 1} : std::vector<ModelIndex>{id - 2}));
        }
        dispatcher.set_routes(routes, at(now));
        break;
      }
      case 3:
        dispatcher.remove(GpuletId{*rc::gen::inRange<std::uint64_t>(1, 4)}, at(now), out);
        break;
      case 4:
        dispatcher.set_ready(GpuletId{*rc::gen::inRange<std::uint64_t>(1, 4)},
                             *rc::gen::arbitrary<bool>(), at(now));
        break;
      default:
        if (!running.empty()) {
          const auto which = *rc::gen::inRange<std::size_t>(0, running.size());
          BatchResult result = echo(running[which]);
          const auto code =
              *rc::gen::element(StatusCode::ok, StatusCode::too_late, StatusCode::unavailable,
                                StatusCode::overloaded, StatusCode::internal);
          if (code != StatusCode::ok) result.status = {code, "as the test says"};
          running.erase(running.begin() + static_cast<std::ptrdiff_t>(which));
          dispatcher.completed(result, at(now), out);
        }
        break;
    }
    dispatcher.pump(at(now), out);
    take(std::move(out));
  }
  // The end: nobody serves any more, and every deadline passes.
  DispatchOutput out;
  for (std::uint64_t id = 1; id <= 3; ++id) dispatcher.remove(GpuletId{id}, at(now), out);
  dispatcher.set_routes({}, at(now));
  dispatcher.pump(at(now + 1000), out);
  take(std::move(out));
  RC_ASSERT(dispatcher.idle());
  RC_ASSERT(answered.size() == asked.size());
  RC_ASSERT(std::set<std::uint64_t>(answered.begin(), answered.end()) == asked);
  const ModelCounters a = dispatcher.records().counters(0);
  const ModelCounters b = dispatcher.records().counters(1);
  RC_ASSERT(a.offered + b.offered == asked.size());
  RC_ASSERT(a.served + a.dropped + a.failed + b.served + b.dropped + b.failed == asked.size());
}

}  // namespace
}  // namespace gpulet::serve::dispatcher_test

// Requests whose deadline passes while their batch runs.
#include "serve/dispatch/deadlines.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <vector>

#include "serve/dispatch/dispatcher.h"
#include "tests/support/serve/dispatched.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::deadlines_test {
namespace {

using std::chrono::milliseconds;
using testing::at;
using testing::byte_model;
using testing::byte_request;
using testing::echo;
using testing::even_route;

Request request(std::uint64_t tag, int arrived_ms, int slo_ms, Duration grace) {
  Request made = byte_request(tag, at(arrived_ms), at(arrived_ms + slo_ms));
  made.grace = grace;
  return made;
}

class InFlightDeadlinesTest : public ::testing::Test {
 protected:
  InFlightDeadlinesTest() { dispatcher_.set_routes({even_route(1, {0})}, at(0)); }

  // Sends one batch of these at 50 ms.
  Batch send(std::vector<Request> requests) {
    DispatchOutput out;
    for (Request& one : requests) dispatcher_.enqueue(0, std::move(one), at(50), out);
    dispatcher_.pump(at(50), out);
    EXPECT_EQ(out.batches.size(), 1U);
    return out.batches.at(0).batch;
  }
  std::vector<Answer> pump(Time now) {
    DispatchOutput out;
    dispatcher_.pump(now, out);
    return std::move(out.answers);
  }
  std::vector<Answer> complete(const BatchResult& result, Time now) {
    DispatchOutput out;
    dispatcher_.completed(result, now, out);
    return std::move(out.answers);
  }

  Dispatcher dispatcher_{{byte_model("a", 100, 0)}, 100, BatchId{1}};
};

TEST_F(InFlightDeadlinesTest, OverdueRequestsAreAnsweredAndLateResultsDiscarded) {
  const Batch batch = send({request(1, 50, 100, {}), request(2, 50, 400, {})});
  EXPECT_TRUE(pump(at(150)).empty()) << "the deadline itself is in time";
  EXPECT_EQ(dispatcher_.next_wake(), at(150) + Duration(1));
  const std::vector<Answer> answers = pump(dispatcher_.next_wake());
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].request.tag, 1U);
  EXPECT_EQ(answers[0].status.code(), StatusCode::too_late);
  EXPECT_EQ(dispatcher_.gpulets().in_flight(GpuletId{1}), 1U) << "the gpulet still holds it";
  EXPECT_EQ(dispatcher_.next_wake(), at(450) + Duration(1)) << "the other one's";

  const std::vector<Answer> others = complete(echo(batch), at(200));
  ASSERT_EQ(others.size(), 1U);
  EXPECT_EQ(others[0].request.tag, 2U);
  ASSERT_TRUE(others[0].status.ok());
  EXPECT_EQ(std::to_integer<int>(others[0].outputs.at(0).view()[0]), 2);
  const ModelCounters& counters = dispatcher_.records().counters(0);
  EXPECT_EQ(counters.served, 1U);
  EXPECT_EQ(counters.dropped, 1U);
  EXPECT_EQ(counters.overdue, 1U);
  EXPECT_EQ(counters.discarded, 1U);
  EXPECT_EQ(counters.violations(), 1U);
  EXPECT_TRUE(dispatcher_.idle());
  EXPECT_EQ(dispatcher_.next_wake(), kNever);
}

TEST_F(InFlightDeadlinesTest, ObjectiveDeadlinesIncludeTheGracePeriod) {
  const Batch batch = send({request(1, 50, 100, milliseconds(20))});
  EXPECT_TRUE(pump(at(170)).empty());
  const std::vector<Answer> answers = complete(echo(batch), at(170));
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_TRUE(answers[0].status.ok());
  EXPECT_EQ(dispatcher_.records().counters(0).late, 1U);
  EXPECT_EQ(dispatcher_.records().counters(0).overdue, 0U);
}

TEST_F(InFlightDeadlinesTest, ALateResultBeforeTheNextPumpIsOverdue) {
  const Batch batch = send({request(1, 50, 100, milliseconds(20))});
  const std::vector<Answer> answers = complete(echo(batch), at(171));
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_EQ(answers[0].status.code(), StatusCode::too_late);
  EXPECT_EQ(dispatcher_.records().counters(0).discarded, 1U);
  EXPECT_TRUE(pump(at(1000)).empty());
}

TEST_F(InFlightDeadlinesTest, ClientDeadlinesHaveNoGracePeriod) {
  const Batch batch = send({request(1, 50, 100, Request::kNoLimit)});
  EXPECT_TRUE(pump(at(5000)).empty());
  EXPECT_EQ(complete(echo(batch), at(5000)).size(), 1U);
  EXPECT_EQ(dispatcher_.records().counters(0).late, 1U);
}

TEST_F(InFlightDeadlinesTest, OverdueRequestsAreNotAnsweredAgainWhenTheGpuletIsLost) {
  const Batch batch = send({request(1, 50, 100, {}), request(2, 50, 100, {})});
  EXPECT_EQ(pump(at(151)).size(), 2U);
  DispatchOutput out;
  dispatcher_.remove(GpuletId{1}, at(160), out);
  dispatcher_.pump(at(1000), out);
  EXPECT_TRUE(out.answers.empty());
  EXPECT_TRUE(complete(echo(batch), at(1000)).empty());
  EXPECT_TRUE(dispatcher_.idle());
}

TEST_F(InFlightDeadlinesTest, OverdueRequestsStayInFlightUntilTheGpuletAnswers) {
  Request one = request(1, 50, 100, {});
  one.permit = std::make_shared<const int>(1);
  const std::weak_ptr<const void> permit = one.permit;
  std::vector<Request> requests;
  requests.push_back(std::move(one));
  const Batch batch = send(std::move(requests));
  EXPECT_EQ(pump(at(200)).size(), 1U);
  EXPECT_FALSE(permit.expired());
  EXPECT_TRUE(complete(echo(batch), at(300)).empty());
  EXPECT_TRUE(permit.expired());
}

// Whatever happens to batches and gpulets, every request is answered exactly once, and at its
// deadline at the latest: within the nanosecond in which the dispatcher asks to be woken.
RC_GTEST_PROP(InFlightDeadlinesProperty, EveryRequestIsAnsweredOnceAndByItsDeadline, ()) {
  Dispatcher dispatcher{{byte_model("a", 100, 0), byte_model("b", 100, 0)}, 1000, BatchId{1}};
  std::map<std::uint64_t, Time> due;
  std::vector<Batch> running;
  std::uint64_t next_tag = 1;
  std::uint64_t discarded = 0;
  std::uint64_t answered = 0;
  const auto take = [&](DispatchOutput out, Time now) {
    for (BatchToSend& sent : out.batches) running.push_back(std::move(sent.batch));
    for (const Answer& answer : out.answers) {
      const auto found = due.find(answer.request.tag);
      RC_ASSERT(found != due.end());
      RC_ASSERT(now <= found->second + Duration(1));
      due.erase(found);
      ++answered;
    }
  };
  const auto wake_until = [&](Time time) {
    while (dispatcher.next_wake() <= time) {
      const Time now = dispatcher.next_wake();
      DispatchOutput out;
      dispatcher.pump(now, out);
      take(std::move(out), now);
      RC_ASSERT(dispatcher.next_wake() > now);
    }
  };
  const auto set_routes = [&](int ms) {
    std::vector<GpuletRoute> routes;
    for (std::uint64_t id = 1; id <= 2; ++id) {
      if (*rc::gen::inRange(0, 4) > 0) routes.push_back(even_route(id, {0, 1}));
    }
    dispatcher.set_routes(routes, at(ms));
  };
  int now = 0;
  dispatcher.set_routes({even_route(1, {0, 1}), even_route(2, {0})}, at(0));
  const int steps = *rc::gen::inRange(1, 100);
  for (int step = 0; step < steps; ++step) {
    now += *rc::gen::inRange(0, 30);
    wake_until(at(now));
    DispatchOutput out;
    switch (*rc::gen::inRange(0, 8)) {
      case 0:
        set_routes(now);
        break;
      case 1:
        dispatcher.remove(GpuletId{*rc::gen::inRange<std::uint64_t>(1, 3)}, at(now), out);
        break;
      case 2:
      case 3:
        if (!running.empty()) {
          const auto which = *rc::gen::inRange<std::size_t>(0, running.size());
          BatchResult result = echo(running[which]);
          const auto code = *rc::gen::element(StatusCode::ok, StatusCode::ok, StatusCode::too_late,
                                              StatusCode::unavailable, StatusCode::internal);
          if (code != StatusCode::ok) result.status = {code, "as the test says"};
          running.erase(running.begin() + static_cast<std::ptrdiff_t>(which));
          dispatcher.completed(result, at(now), out);
        }
        break;
      default: {
        Request one = request(next_tag, now, *rc::gen::inRange(1, 200),
                              milliseconds(*rc::gen::element(0, 20)));
        due.emplace(next_tag++, one.answer_by());
        dispatcher.enqueue(*rc::gen::inRange<ModelIndex>(0, 2), std::move(one), at(now), out);
        break;
      }
    }
    dispatcher.pump(at(now), out);
    take(std::move(out), at(now));
  }
  // Nothing more is heard of any gpulet, and every request is answered nevertheless.
  wake_until(at(now + 1000));
  RC_ASSERT(due.empty());
  RC_ASSERT(answered == next_tag - 1);
  RC_ASSERT(dispatcher.next_wake() == kNever);
  for (const Batch& batch : running) {
    DispatchOutput out;
    dispatcher.completed(echo(batch), at(now + 2000), out);
    RC_ASSERT(out.answers.empty());
  }
  for (const ModelIndex index : {0U, 1U})
    discarded += dispatcher.records().counters(index).discarded;
  RC_ASSERT(dispatcher.idle());
  RC_ASSERT(dispatcher.records().counters(0).offered + dispatcher.records().counters(1).offered ==
            answered);
  RC_ASSERT(discarded <= answered);
}

}  // namespace
}  // namespace gpulet::serve::deadlines_test

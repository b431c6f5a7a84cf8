#include "serve/dispatch/late_requests.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <vector>

#include "tests/support/serve/dispatch_parts.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::late_requests_test {
namespace {

using std::chrono::milliseconds;
using testing::at;
using testing::byte_model;
using testing::byte_request;
using testing::DispatchParts;
using testing::even_route;
using testing::tags_of;

std::vector<ServedModel> two_models() { return {byte_model("a", 100, 0), byte_model("b", 100, 0)}; }

DispatchOutput drop(DispatchParts& parts, ModelIndex model, int ms) {
  DispatchOutput out;
  parts.late.drop_hopeless(model, at(ms), out);
  return out;
}

TEST(LateRequests, WhatNoSlotCanServeInTimeIsDropped) {
  DispatchParts parts(two_models());
  parts.gpulets.set_routes({even_route(1, {0})}, at(0));
  parts.push(0, byte_request(1, at(0), at(9)));
  parts.push(0, byte_request(2, at(0), at(50)));
  const DispatchOutput out = drop(parts, 0, 0);
  EXPECT_EQ(tags_of(out.answers), std::vector<std::uint64_t>{1}) << "a batch takes 10 ms";
  EXPECT_EQ(out.answers[0].status.code(), StatusCode::too_late);
  EXPECT_EQ(parts.queues.queued(0), 1U);
  EXPECT_EQ(parts.records.counters(0).dropped, 1U);
  EXPECT_TRUE(drop(parts, 0, 0).answers.empty());
}

TEST(LateRequests, TheSlotThatIsFreeFirstDecides) {
  DispatchParts parts(two_models());
  parts.gpulets.set_routes({even_route(1, {0}), even_route(2, {0})}, at(0));
  parts.push(0, byte_request(1, at(0), at(50)));
  parts.gpulet(1).hold(milliseconds(100), at(0));
  EXPECT_TRUE(drop(parts, 0, 0).answers.empty());
  parts.slots.change_ready(parts.gpulet(2), false);
  EXPECT_EQ(drop(parts, 0, 0).answers.size(), 1U);
}

TEST(LateRequests, WithoutAReadyGpuletARequestWaitsUntilItsDeadline) {
  DispatchParts parts(two_models());
  parts.push(0, byte_request(1, at(0), at(50)));
  EXPECT_TRUE(drop(parts, 0, 50).answers.empty());
  const DispatchOutput out = drop(parts, 0, 51);
  ASSERT_EQ(out.answers.size(), 1U);
  EXPECT_EQ(out.answers[0].status.code(), StatusCode::too_late);
}

TEST(LateRequests, TheReasonOfAnAbsenceIsTheAnswer) {
  DispatchParts parts(two_models());
  parts.absence = {StatusCode::unavailable, "no backend"};
  parts.push(0, byte_request(1, at(0), at(50)));
  const DispatchOutput out = drop(parts, 0, 51);
  ASSERT_EQ(out.answers.size(), 1U);
  EXPECT_EQ(out.answers[0].status.code(), StatusCode::unavailable);
}

TEST(LateRequests, AGpuletThatTakesTurnsDropsForAllItsModels) {
  DispatchParts parts(two_models());
  parts.gpulets.set_routes({even_route(1, {0, 1})}, at(0));
  parts.push(0, byte_request(1, at(0), at(9)));
  parts.push(1, byte_request(2, at(0), at(8)));
  parts.push(1, byte_request(3, at(0), at(80)));
  DispatchOutput out;
  parts.late.drop_hopeless(parts.gpulet(1), at(0), out);
  EXPECT_EQ(tags_of(out.answers), (std::vector<std::uint64_t>{2, 1})) << "the most urgent first";
  EXPECT_EQ(parts.queues.queued(1), 1U);
  parts.late.drop_hopeless(parts.gpulet(1), at(0), out);
  EXPECT_EQ(out.answers.size(), 2U);
}

ServedModel with_timeout(TimeoutAction action) {
  ServedModel model = byte_model("a", 100, 0);
  model.queue.emplace();
  model.queue->default_policy.default_timeout = milliseconds(20);
  model.queue->default_policy.timeout_action = action;
  return model;
}

TEST(LateRequests, AQueueTimeoutAnswersWhereTheRulesRejectAndWakesForTheNext) {
  DispatchParts parts({with_timeout(TimeoutAction::reject)});
  parts.push(0, byte_request(1, at(0), at(1000)));
  parts.push(0, byte_request(2, at(10), at(1000)));
  DispatchOutput out;
  Time wake = at(500);
  parts.late.answer_timeouts(0, at(19), wake, out);
  EXPECT_TRUE(out.answers.empty());
  EXPECT_EQ(wake, at(20));
  wake = at(500);
  parts.late.answer_timeouts(0, at(20), wake, out);
  EXPECT_EQ(tags_of(out.answers), std::vector<std::uint64_t>{1});
  EXPECT_EQ(out.answers[0].status.code(), StatusCode::too_late);
  EXPECT_EQ(wake, at(30));
  wake = at(25);
  parts.late.answer_timeouts(0, at(24), wake, out);
  EXPECT_EQ(wake, at(25)) << "something else is due before";
}

TEST(LateRequests, ADelayedRequestIsNotAnswered) {
  DispatchParts parts({with_timeout(TimeoutAction::delay)});
  parts.push(0, byte_request(1, at(0), at(1000)));
  DispatchOutput out;
  Time wake = kNever;
  parts.late.answer_timeouts(0, at(100), wake, out);
  EXPECT_TRUE(out.answers.empty());
  EXPECT_EQ(wake, kNever);
  EXPECT_EQ(parts.queues.queued(0), 1U);
}

TEST(LateRequests, WithoutRulesThereIsNoTimeout) {
  DispatchParts parts(two_models());
  parts.push(0, byte_request(1, at(0), at(1000)));
  DispatchOutput out;
  Time wake = kNever;
  parts.late.answer_timeouts(0, at(100), wake, out);
  EXPECT_TRUE(out.answers.empty());
  EXPECT_EQ(wake, kNever);
}

// What stays can be served in time by some slot, and what was dropped by none.
RC_GTEST_PROP(LateRequestsProperty, ExactlyTheHopelessAreDropped, ()) {
  DispatchParts parts(two_models());
  parts.gpulets.set_routes({even_route(1, {0, 1}), even_route(2, {0})}, at(0));
  const int count = *rc::gen::inRange(1, 10);
  std::set<std::uint64_t> all;
  for (int i = 1; i <= count; ++i) {
    const auto tag = static_cast<std::uint64_t>(i);
    parts.push(0, byte_request(tag, at(0), at(*rc::gen::inRange(0, 60))));
    all.insert(tag);
  }
  for (const std::uint64_t id : {1U, 2U})
    parts.gpulet(id).hold(milliseconds(*rc::gen::inRange(0, 30)), at(0));
  Time reachable = kNever;
  for (const ServingSlot& one : parts.slots.of(0)) {
    reachable = std::min(reachable, parts.slots.reachable_deadline(*one.gpulet, *one.slot, at(0)));
  }
  const DispatchOutput out = drop(parts, 0, 0);
  for (const Answer& answer : out.answers) {
    RC_ASSERT(all.erase(answer.request.tag) == 1U);
    RC_ASSERT(answer.request.deadline < reachable);
  }
  for (const Request& request : parts.queues.take_all(0)) {
    RC_ASSERT(all.erase(request.tag) == 1U);
    RC_ASSERT(request.deadline >= reachable);
  }
  RC_ASSERT(all.empty());
}

}  // namespace
}  // namespace gpulet::serve::late_requests_test

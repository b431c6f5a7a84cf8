#include "serve/dispatch/retries.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/support/serve/dispatch_parts.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::retries_test {
namespace {

using testing::at;
using testing::byte_model;
using testing::byte_request;
using testing::DispatchParts;
using testing::even_route;
using testing::tags_of;

BatchResult result_of(BatchId id, StatusCode code, FailureCause cause) {
  BatchResult result;
  result.id = id;
  if (code != StatusCode::ok) result.status = {code, "why"};
  result.cause = cause;
  return result;
}

// Gpulet 1 serves models "a" and "b", gpulet 2 only "a".
struct Retrying {
  Retrying() { parts.gpulets.set_routes({even_route(1, {0, 1}), even_route(2, {0})}, at(0)); }

  // Sends a batch of requests with these tags to the gpulet.
  Batch send(std::uint64_t gpulet, ModelIndex model, const std::vector<std::uint64_t>& tags) {
    std::vector<Request> requests;
    for (const std::uint64_t tag : tags) requests.push_back(byte_request(tag, at(0), at(1000)));
    DispatchOutput sent;
    parts.sender.send(parts.slot(gpulet, model), std::move(requests), at(0), sent);
    return std::move(sent.batches.at(0).batch);
  }
  void lose(BatchId batch) {
    parts.retries.lose_process(result_of(batch, StatusCode::unavailable, FailureCause::model_crash),
                               at(10), out);
  }
  void put_back(BatchId batch, StatusCode code) {
    parts.retries.put_back(parts.finish(batch, false, at(10)), {code, "why"}, at(10), out);
  }
  Time pump(ModelIndex model, int ms) {
    Time wake = kNever;
    parts.retries.pump(model, at(ms), wake, out);
    return wake;
  }
  [[nodiscard]] batching::PendingRequests& waiting(ModelIndex model) {
    return parts.queues.of(model).requests;
  }
  [[nodiscard]] batching::DeadlineQueue& suspects(ModelIndex model) {
    return parts.queues.of(model).suspects;
  }

  DispatchParts parts{{byte_model("a", 100, 0), byte_model("b", 100, 0)}};
  DispatchOutput out;
};

TEST(Retries, ACrashOrAHangEndsAProcess) {
  const auto ended = [](StatusCode code, FailureCause cause) {
    return Retries::ended_process(result_of(BatchId{1}, code, cause));
  };
  EXPECT_TRUE(ended(StatusCode::internal, FailureCause::model_crash));
  EXPECT_TRUE(ended(StatusCode::timeout, FailureCause::hung));
  EXPECT_FALSE(ended(StatusCode::internal, FailureCause::unknown));
  EXPECT_FALSE(ended(StatusCode::invalid, FailureCause::input));
  EXPECT_FALSE(ended(StatusCode::ok, FailureCause::model_crash));
}

TEST(Retries, WithItsProcessAGpuletLosesAllItsBatches) {
  Retrying retrying;
  const Batch first = retrying.send(1, 0, {1, 2});
  retrying.send(1, 1, {3});
  const Batch other = retrying.send(2, 0, {4});
  retrying.lose(first.id);
  ASSERT_EQ(retrying.out.lost.size(), 1U);
  const ProcessLost& lost = retrying.out.lost[0];
  EXPECT_EQ(lost.gpulet, GpuletId{1});
  EXPECT_EQ(lost.models, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(lost.requests, 3U);
  EXPECT_EQ(lost.cause, FailureCause::model_crash);
  EXPECT_FALSE(retrying.parts.gpulet(1).ready);
  EXPECT_EQ(retrying.parts.gpulet(1).in_flight, 0U);
  EXPECT_EQ(retrying.parts.batches.all().size(), 1U);
  EXPECT_TRUE(retrying.parts.batches.contains(other.id));
  EXPECT_EQ(retrying.suspects(0).size(), 2U);
  EXPECT_EQ(retrying.suspects(1).size(), 1U);
  EXPECT_TRUE(retrying.out.answers.empty());
}

TEST(Retries, ARequestIsNotTriedAfterItsSecondCrash) {
  Retrying retrying;
  retrying.lose(retrying.send(1, 0, {1}).id);
  EXPECT_EQ(retrying.pump(0, 10), at(1000) + Duration(1));
  ASSERT_EQ(retrying.out.batches.size(), 1U);
  EXPECT_EQ(retrying.out.batches[0].batch.gpulet, GpuletId{2}) << "gpulet 1 is not ready";
  retrying.lose(retrying.out.batches[0].batch.id);
  ASSERT_EQ(retrying.out.answers.size(), 1U);
  EXPECT_EQ(retrying.out.answers[0].status.code(), StatusCode::internal);
  EXPECT_EQ(retrying.out.answers[0].request.crashes, kMostCrashes);
  EXPECT_TRUE(retrying.parts.queues.empty());
}

TEST(Retries, ABadInputMakesSuspectsButNoCrash) {
  Retrying retrying;
  const Batch batch = retrying.send(2, 0, {1, 2});
  retrying.parts.retries.isolate(retrying.parts.finish(batch.id, false, at(10)), at(10),
                                 retrying.out);
  ASSERT_EQ(retrying.suspects(0).size(), 2U);
  EXPECT_TRUE(retrying.out.lost.empty());
  for (const Request& request : retrying.suspects(0).take_due_before(kNever)) {
    EXPECT_EQ(request.crashes, 0U);
    EXPECT_EQ(request.attempts, 0U);
  }
}

TEST(Retries, WhatBecomesOfABatchDependsOnItsFailure) {
  struct Case {
    StatusCode code;
    bool waits;
    std::uint32_t attempts;
  };
  const Case cases[] = {
      {StatusCode::too_late, true, 0},    {StatusCode::overloaded, true, 0},
      {StatusCode::unavailable, true, 1}, {StatusCode::internal, false, 1},
      {StatusCode::invalid, false, 1},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(static_cast<int>(one.code));
    Retrying retrying;
    retrying.put_back(retrying.send(2, 0, {1}).id, one.code);
    std::vector<Request> waiting = retrying.waiting(0).take_all();
    ASSERT_EQ(waiting.size(), one.waits ? 1U : 0U);
    ASSERT_EQ(retrying.out.answers.size(), one.waits ? 0U : 1U);
    const Request& request = one.waits ? waiting[0] : retrying.out.answers[0].request;
    EXPECT_EQ(request.attempts, one.attempts);
    if (!one.waits) {
      EXPECT_EQ(retrying.out.answers[0].status.code(), one.code);
    }
  }
}

TEST(Retries, ARequestIsNotTriedAfterTooManyFailedBatches) {
  Retrying retrying;
  retrying.put_back(retrying.send(2, 0, {1}).id, StatusCode::unavailable);
  for (std::uint32_t attempt = 2; attempt <= kMaxAttempts; ++attempt) {
    EXPECT_TRUE(retrying.out.answers.empty());
    retrying.put_back(retrying.parts.send(2, 0, 1, at(10)).id, StatusCode::unavailable);
  }
  ASSERT_EQ(retrying.out.answers.size(), 1U);
  EXPECT_EQ(retrying.out.answers[0].status.code(), StatusCode::unavailable);
  EXPECT_EQ(retrying.out.answers[0].request.attempts, kMaxAttempts);
}

TEST(Retries, RequestsGoToTheHeirOrAreAnsweredWhereTheQueueIsClosed) {
  Retrying retrying;
  retrying.parts.queues.of(0).heir = 1;
  retrying.put_back(retrying.send(2, 0, {1}).id, StatusCode::unavailable);
  EXPECT_EQ(retrying.waiting(1).size(), 1U);
  retrying.lose(retrying.send(2, 0, {2}).id);
  EXPECT_EQ(retrying.suspects(1).size(), 1U);
  retrying.parts.queues.of(0).heir.reset();
  retrying.parts.queues.of(0).closed = {StatusCode::unavailable, "closed"};
  retrying.put_back(retrying.send(2, 0, {3}).id, StatusCode::overloaded);
  retrying.lose(retrying.send(2, 0, {4}).id);
  EXPECT_EQ(tags_of(retrying.out.answers), (std::vector<std::uint64_t>{3, 4}));
  for (const Answer& answer : retrying.out.answers)
    EXPECT_EQ(answer.status.code(), StatusCode::unavailable);
}

TEST(Retries, ASuspectWhoseBatchIsRefusedOrLostStaysASuspect) {
  Retrying retrying;
  retrying.lose(retrying.send(1, 0, {1}).id);
  for (const StatusCode code : {StatusCode::overloaded, StatusCode::unavailable}) {
    retrying.out.batches.clear();
    retrying.pump(0, 10);
    ASSERT_EQ(retrying.out.batches.size(), 1U);
    retrying.put_back(retrying.out.batches[0].batch.id, code);
    EXPECT_TRUE(retrying.waiting(0).empty());
    EXPECT_EQ(retrying.suspects(0).size(), 1U);
  }
}

TEST(Retries, AnsweredRequestsAreNotTriedAgain) {
  Retrying retrying;
  const Batch batch = retrying.send(2, 0, {1, 2});
  BatchInFlight held = retrying.parts.finish(batch.id, false, at(10));
  held.answered = {true, false};
  retrying.parts.retries.put_back(std::move(held), {StatusCode::unavailable, "why"}, at(10),
                                  retrying.out);
  EXPECT_EQ(tags_of(retrying.waiting(0).take_all()), std::vector<std::uint64_t>{2});
  EXPECT_TRUE(retrying.out.answers.empty());
}

TEST(Retries, ASuspectRunsAloneOnTheGpuletWithTheFewestModels) {
  Retrying retrying;
  for (const std::uint64_t tag : {1U, 2U})
    retrying.parts.push_suspect(0, byte_request(tag, at(0), at(1000)));
  const Batch running = retrying.send(2, 0, {9});
  retrying.pump(0, 1);
  EXPECT_TRUE(retrying.out.batches.empty()) << "gpulet 2 holds a batch";
  EXPECT_TRUE(retrying.parts.gpulet(2).reserved);
  EXPECT_FALSE(retrying.parts.gpulet(1).reserved);
  EXPECT_EQ(retrying.parts.finish(running.id, true, at(10)).requests.size(), 1U);
  retrying.pump(0, 10);
  ASSERT_EQ(retrying.out.batches.size(), 1U);
  EXPECT_EQ(retrying.out.batches[0].batch.gpulet, GpuletId{2});
  EXPECT_EQ(retrying.out.batches[0].batch.count, 1U);
  retrying.pump(0, 10);
  EXPECT_EQ(retrying.out.batches.size(), 1U) << "the other one waits for the first";
  EXPECT_FALSE(retrying.parts.gpulet(2).has_room());
}

TEST(Retries, ASuspectIsAnsweredWhereNoGpuletIsReadyByItsDeadline) {
  Retrying retrying;
  for (const std::uint64_t id : {1U, 2U})
    retrying.parts.slots.change_ready(retrying.parts.gpulet(id), false);
  retrying.parts.push_suspect(0, byte_request(1, at(0), at(50)));
  EXPECT_EQ(retrying.pump(0, 50), at(50) + Duration(1));
  EXPECT_TRUE(retrying.out.answers.empty());
  EXPECT_EQ(retrying.pump(0, 51), kNever);
  ASSERT_EQ(retrying.out.answers.size(), 1U);
  EXPECT_EQ(retrying.out.answers[0].status.code(), StatusCode::unavailable);
}

// A request of a batch that was not served is answered, or waits, or waits as a suspect.
RC_GTEST_PROP(RetriesProperty, EveryRequestIsInOnePlace, ()) {
  Retrying retrying;
  DispatchParts& parts = retrying.parts;
  std::uint64_t next_tag = 1;
  const int steps = *rc::gen::inRange(1, 40);
  for (int step = 0; step < steps; ++step) {
    const auto gpulet = *rc::gen::inRange<std::uint64_t>(1, 3);
    RoutedGpulet& chosen = parts.gpulet(gpulet);
    if (!chosen.ready) parts.slots.change_ready(chosen, true);
    switch (*rc::gen::inRange(0, 5)) {
      case 0:
        if (!parts.batches.held_by(GpuletId{gpulet}).empty())
          retrying.lose(parts.batches.held_by(GpuletId{gpulet})[0]);
        break;
      case 1:
        if (!parts.batches.held_by(GpuletId{gpulet}).empty()) {
          retrying.put_back(parts.batches.held_by(GpuletId{gpulet})[0],
                            *rc::gen::element(StatusCode::too_late, StatusCode::unavailable,
                                              StatusCode::internal));
        }
        break;
      case 2:
        retrying.pump(0, 10);
        break;
      case 3:
        if (chosen.has_room() && retrying.waiting(0).size() > 0) {
          const Batch sent = parts.send(gpulet, 0, 4, at(10));
          for (const Request& request : parts.batches.find(sent.id)->requests)
            RC_ASSERT(request.crashes == 0U);
        }
        break;
      default:
        if (chosen.has_room()) {
          retrying.send(gpulet, 0, {next_tag, next_tag + 1});
          next_tag += 2;
        }
        break;
    }
    std::multiset<std::uint64_t> seen;
    for (const Answer& answer : retrying.out.answers) seen.insert(answer.request.tag);
    for (const auto& [id, batch] : parts.batches.all()) {
      for (const Request& request : batch.requests) {
        seen.insert(request.tag);
        RC_ASSERT(request.crashes == 0U || batch.requests.size() == 1U);
      }
    }
    RC_ASSERT(seen.size() + parts.queues.queued(0) == next_tag - 1);
    RC_ASSERT(std::set<std::uint64_t>(seen.begin(), seen.end()).size() == seen.size());
  }
}

}  // namespace
}  // namespace gpulet::serve::retries_test

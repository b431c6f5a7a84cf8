#include "serve/dispatch/dispatch_records.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/serve/dispatch_parts.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::dispatch_records_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::at;
using testing::byte_model;
using testing::byte_request;
using testing::DispatchParts;
using testing::even_route;

DispatchRecords with_models(std::size_t count) {
  DispatchRecords records;
  for (ModelIndex model = 0; model < count; ++model) records.add(model);
  return records;
}

void answer(DispatchRecords& records, ModelIndex model, StatusCode code, int deadline_ms, int now) {
  const Request request = byte_request(1, at(0), at(deadline_ms));
  records.answered(model, request, code == StatusCode::ok ? Status() : Status(code, "why"), {},
                   at(now));
}

TEST(DispatchRecords, EachAnswerIsCountedAsWhatItWas) {
  DispatchRecords records = with_models(1);
  answer(records, 0, StatusCode::ok, 100, 100);
  answer(records, 0, StatusCode::ok, 100, 101);
  answer(records, 0, StatusCode::too_late, 100, 101);
  answer(records, 0, StatusCode::overloaded, 100, 5);
  answer(records, 0, StatusCode::internal, 100, 5);
  records.overdue(0);
  records.discarded(0);
  const ModelCounters& counters = records.counters(0);
  EXPECT_EQ(counters.served, 2U);
  EXPECT_EQ(counters.late, 1U);
  EXPECT_EQ(counters.dropped, 2U);
  EXPECT_EQ(counters.failed, 1U);
  EXPECT_EQ(counters.overdue, 1U);
  EXPECT_EQ(counters.discarded, 1U);
  EXPECT_EQ(records.latencies(0, at(101)).count(), 2U) << "of answers with a result alone";
}

TEST(DispatchRecords, RequestsThatAreHandedOnWereNotOfferedHere) {
  DispatchRecords records = with_models(1);
  for (int i = 0; i < 5; ++i) records.offered(0);
  records.handed_on(0, 2);
  records.cancelled(0, 3);
  EXPECT_EQ(records.counters(0).offered, 3U);
  EXPECT_EQ(records.counters(0).failed, 3U);
}

TEST(DispatchRecords, AnHeirContinuesTheFigures) {
  DispatchRecords records = with_models(3);
  records.offered(0);
  answer(records, 0, StatusCode::ok, 100, 50);
  EXPECT_EQ(records.succeed(0, 1), std::vector<ModelIndex>{0});
  EXPECT_EQ(records.counted_as(0), 1U);
  EXPECT_EQ(records.counters(1).offered, 1U);
  EXPECT_EQ(records.counters(1).served, 1U);
  EXPECT_EQ(records.latencies(1, at(50)).count(), 1U);
  EXPECT_EQ(records.counters(0).offered, 0U);
  answer(records, 0, StatusCode::ok, 100, 60);
  EXPECT_EQ(records.counters(1).served, 2U) << "a batch of the earlier version ended";
  EXPECT_EQ(records.succeed(1, 2), (std::vector<ModelIndex>{0, 1}));
  EXPECT_EQ(records.counted_as(0), 2U);
  EXPECT_EQ(records.before(2), (std::vector<ModelIndex>{0, 1}));
  EXPECT_TRUE(records.before(1).empty());
  EXPECT_EQ(records.counters(2).served, 2U);
}

TEST(DispatchRecords, AForgottenVersionIsNoneOfTheHeirsAnyMore) {
  DispatchRecords records = with_models(2);
  EXPECT_EQ(records.succeed(0, 1).size(), 1U);
  records.forget(0);
  EXPECT_TRUE(records.before(1).empty());
  records.add(0);
  records.offered(0);
  EXPECT_EQ(records.counted_as(0), 0U);
  EXPECT_EQ(records.counters(0).offered, 1U);
  EXPECT_EQ(records.counters(1).offered, 0U);
}

TEST(DispatchRecords, VersionsOfAForgottenHeirCountForThemselves) {
  DispatchRecords records = with_models(2);
  EXPECT_EQ(records.succeed(0, 1).size(), 1U);
  records.forget(1);
  EXPECT_EQ(records.counted_as(0), 0U);
  answer(records, 0, StatusCode::ok, 100, 60);
  EXPECT_EQ(records.counters(0).served, 1U);
}

TEST(DispatchRecords, ResponseTimesAreKeptForModelsWithAnInstance) {
  DispatchRecords records = with_models(1);
  EXPECT_FALSE(records.responses(0));
  EXPECT_EQ(records.take_period(0).answered(), 0U);
  records.keep_responses(0, seconds(1));
  ASSERT_TRUE(records.responses(0));
  records.responses(0)->record(milliseconds(5), Responses::Where::gpu, at(5));
  records.keep_responses(0, seconds(1));
  EXPECT_EQ(records.take_period(0).answered(), 1U) << "what was kept stays";
  EXPECT_EQ(records.take_period(0).answered(), 0U);
}

TEST(DispatchRecords, AnHeirContinuesTheResponseTimes) {
  DispatchRecords records = with_models(2);
  records.keep_responses(0, seconds(1));
  records.responses(0)->record(milliseconds(5), Responses::Where::gpu, at(5));
  EXPECT_EQ(records.succeed(0, 1).size(), 1U);
  EXPECT_EQ(records.take_period(1).answered(), 1U);
}

TEST(DispatchRecords, AnHeirWithAnInstanceKeepsResponseTimesThatItsModelNeverHad) {
  DispatchRecords records = with_models(2);
  records.keep_responses(1, seconds(1));
  EXPECT_EQ(records.succeed(0, 1).size(), 1U);
  EXPECT_TRUE(records.responses(1));
  EXPECT_TRUE(records.responses(0)) << "those of its heir";
}

TEST(Answers, CarryTheRequestWithoutItsInput) {
  DispatchParts parts({byte_model("a", 100, 0)});
  DispatchOutput out;
  parts.answers.serve(0, byte_request(3, at(0), at(100)), {Bytes::own({std::byte{9}})}, {}, at(20),
                      out);
  parts.answers.refuse(0, byte_request(4, at(0), at(100)), {StatusCode::overloaded, "why"}, at(30),
                       out);
  ASSERT_EQ(out.answers.size(), 2U);
  EXPECT_EQ(out.answers[0].request.tag, 3U);
  EXPECT_TRUE(out.answers[0].status.ok());
  EXPECT_EQ(out.answers[0].outputs.size(), 1U);
  EXPECT_EQ(out.answers[0].request.trace.answered, at(20));
  EXPECT_EQ(out.answers[1].request.trace.answered, at(30));
  EXPECT_EQ(out.answers[1].status.code(), StatusCode::overloaded);
  EXPECT_TRUE(out.answers[1].outputs.empty());
  for (const Answer& answer : out.answers) EXPECT_EQ(answer.request.input.size(), 0U);
  EXPECT_EQ(parts.records.counters(0).served, 1U);
  EXPECT_EQ(parts.records.counters(0).dropped, 1U);
}

TEST(Answers, RecordWhereARequestWasServedAndCountDroppedOnesAsSlow) {
  DispatchParts parts({byte_model("a", 100, 0)});
  GpuletRoute cpu = even_route(2, {0});
  cpu.service = schedule::Service::controlled;
  parts.gpulets.set_routes({even_route(1, {0}), cpu}, at(0));
  parts.records.keep_responses(0, seconds(10));
  DispatchOutput out;
  for (const std::uint64_t gpulet : {1U, 2U}) {
    Request request = byte_request(gpulet, at(0), at(100));
    request.trace.gpulet = GpuletId{gpulet};
    parts.answers.serve(0, std::move(request), {}, {}, at(20), out);
  }
  parts.answers.refuse(0, byte_request(3, at(0), at(100)), {StatusCode::too_late, "why"}, at(30),
                       out);
  parts.answers.refuse(0, byte_request(4, at(0), at(100)), {StatusCode::internal, "why"}, at(30),
                       out);
  const Responses::Period period = parts.records.take_period(0);
  EXPECT_EQ(period.on_gpu, 1U);
  EXPECT_EQ(period.on_cpu, 1U);
  EXPECT_EQ(period.dropped, 1U) << "a failure tells nothing of the time";
  EXPECT_DOUBLE_EQ(period.gpu_s, 0.02);
  EXPECT_DOUBLE_EQ(period.rest_s, 0.02 + 0.2) << "twice the objective for the dropped one";
}

// Of a chain of versions, each answer is counted once: by the last version.
RC_GTEST_PROP(DispatchRecordsProperty, EveryAnswerIsCountedOnce, ()) {
  DispatchRecords records = with_models(1);
  std::vector<ModelIndex> versions = {0};
  ModelIndex current = 0;
  std::uint64_t served = 0;
  const int steps = *rc::gen::inRange(1, 50);
  for (int step = 0; step < steps; ++step) {
    const auto which = *rc::gen::inRange<std::size_t>(0, versions.size());
    switch (*rc::gen::inRange(0, 4)) {
      case 0: {
        const ModelIndex heir = *std::max_element(versions.begin(), versions.end()) + 1;
        records.add(heir);
        const std::vector<ModelIndex> moved = records.succeed(current, heir);
        RC_ASSERT(moved.size() == versions.size());
        versions.push_back(heir);
        current = heir;
        break;
      }
      case 1:
        if (versions[which] != current) {
          records.forget(versions[which]);
          versions.erase(versions.begin() + static_cast<std::ptrdiff_t>(which));
        }
        break;
      default:
        records.answered(versions[which], byte_request(1, at(0), at(100)), {}, {}, at(step));
        ++served;
        break;
    }
    RC_ASSERT(records.counters(current).served == served);
    RC_ASSERT(records.before(current).size() + 1 == versions.size());
    for (const ModelIndex version : versions) RC_ASSERT(records.counted_as(version) == current);
  }
}

}  // namespace
}  // namespace gpulet::serve::dispatch_records_test

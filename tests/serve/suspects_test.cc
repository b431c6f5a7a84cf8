// Requests under which a process ends: which of them did it, and what becomes of the others.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "serve/dispatch/dispatcher.h"
#include "tests/support/names.h"
#include "tests/support/serve/dispatched.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::suspects_test {
namespace {

using std::chrono::milliseconds;
using support::names;
using testing::at;
using testing::byte_model;
using testing::byte_request;
using testing::echo;
using testing::even_route;

Request request(std::uint64_t tag, int deadline_ms = 10000) {
  return byte_request(tag, at(0), at(deadline_ms));
}

BatchResult crash(const Batch& batch, FailureCause cause = FailureCause::model_crash) {
  BatchResult result;
  result.id = batch.id;
  result.status = {StatusCode::unavailable, "the process ended"};
  result.cause = cause;
  if (cause == FailureCause::model_crash) result.end.signal = 11;
  return result;
}

std::vector<std::uint64_t> inputs_of(const Batch& batch) {
  std::vector<std::uint64_t> inputs;
  for (const Bytes& slice : batch.inputs) {
    for (const std::byte one : slice.view()) inputs.push_back(std::to_integer<std::uint64_t>(one));
  }
  return inputs;
}

class SuspectsTest : public ::testing::Test {
 protected:
  void ask(ModelIndex index, std::uint64_t tag, int deadline_ms = 10000) {
    DispatchOutput out;
    dispatcher_.enqueue(index, request(tag, deadline_ms), at(0), out);
  }
  DispatchOutput pump(int ms) {
    DispatchOutput out;
    dispatcher_.pump(at(ms), out);
    return out;
  }
  Batch pump_one(int ms) {
    const DispatchOutput out = pump(ms);
    EXPECT_EQ(out.batches.size(), 1U);
    return out.batches.at(0).batch;
  }
  DispatchOutput complete(const BatchResult& result, int ms) {
    DispatchOutput out;
    dispatcher_.completed(result, at(ms), out);
    return out;
  }

  Dispatcher dispatcher_{{byte_model("a", 100, 0), byte_model("b", 100, 0)}, 100, BatchId{1}};
};

TEST_F(SuspectsTest, RunOneByOneSoOnlyTheCulpritFails) {
  dispatcher_.set_routes({even_route(1, {0})}, at(0));
  for (const std::uint64_t tag : {1U, 2U, 3U}) ask(0, tag);
  const Batch first = pump_one(0);
  ASSERT_EQ(first.count, 3U);
  const DispatchOutput lost = complete(crash(first), 10);
  EXPECT_TRUE(lost.answers.empty());
  ASSERT_EQ(lost.lost.size(), 1U);
  EXPECT_EQ(lost.lost[0].gpulet, GpuletId{1});
  EXPECT_EQ(lost.lost[0].models, std::vector<std::string>{"a"});
  EXPECT_EQ(lost.lost[0].requests, 3U);
  EXPECT_EQ(lost.lost[0].end.signal, 11);
  EXPECT_TRUE(pump(20).batches.empty()) << "its process is gone";

  dispatcher_.set_ready(GpuletId{1}, true, at(30));
  ask(0, 4);  // later requests wait: the suspects have the gpulet
  std::map<std::uint64_t, StatusCode> answers;
  for (int ms = 30; ms < 120; ms += 10) {
    const DispatchOutput sent = pump(ms);
    if (sent.batches.empty()) break;
    ASSERT_EQ(sent.batches.size(), 1U);
    const Batch& batch = sent.batches[0].batch;
    ASSERT_EQ(batch.count, 1U);
    const bool culprit = inputs_of(batch).front() == 2;
    const DispatchOutput done = complete(culprit ? crash(batch) : echo(batch), ms + 5);
    for (const Answer& answer : done.answers) answers[answer.request.tag] = answer.status.code();
    if (culprit) dispatcher_.set_ready(GpuletId{1}, true, at(ms + 8));
  }
  const std::map<std::uint64_t, StatusCode> wanted{
      {1, StatusCode::ok}, {2, StatusCode::internal}, {3, StatusCode::ok}, {4, StatusCode::ok}};
  EXPECT_EQ(answers, wanted);
  EXPECT_TRUE(dispatcher_.idle());
}

TEST_F(SuspectsTest, OnlyTheRequestWithAnInvalidInputFails) {
  dispatcher_.set_routes({even_route(1, {0})}, at(0));
  for (const std::uint64_t tag : {1U, 2U, 3U}) ask(0, tag);
  const auto cannot = [](const Batch& batch) {
    BatchResult result;
    result.id = batch.id;
    result.status = {StatusCode::invalid, "this input cannot be computed"};
    result.cause = FailureCause::input;
    return result;
  };
  const Batch first = pump_one(0);
  ASSERT_EQ(first.count, 3U);
  const DispatchOutput failed = complete(cannot(first), 10);
  EXPECT_TRUE(failed.answers.empty());
  EXPECT_TRUE(failed.lost.empty()) << "no process was lost";
  std::map<std::uint64_t, StatusCode> answers;
  for (int ms = 20; ms < 80; ms += 10) {
    const DispatchOutput sent = pump(ms);
    if (sent.batches.empty()) break;
    ASSERT_EQ(sent.batches.size(), 1U);
    const Batch& batch = sent.batches[0].batch;
    ASSERT_EQ(batch.count, 1U);
    const bool culprit = inputs_of(batch).front() == 2;
    const DispatchOutput done = complete(culprit ? cannot(batch) : echo(batch), ms + 5);
    for (const Answer& answer : done.answers) answers[answer.request.tag] = answer.status.code();
  }
  const std::map<std::uint64_t, StatusCode> wanted{
      {1, StatusCode::ok}, {2, StatusCode::invalid}, {3, StatusCode::ok}};
  EXPECT_EQ(answers, wanted);
  EXPECT_TRUE(dispatcher_.idle());
}

TEST_F(SuspectsTest, ARequestWhoseImageIsCorruptFailsAloneInItsBatch) {
  dispatcher_.set_routes({even_route(1, {0})}, at(0));
  for (const std::uint64_t tag : {1U, 2U, 3U}) ask(0, tag);
  const Batch batch = pump_one(0);
  BatchResult result = echo(batch);
  const std::vector<std::uint64_t> inputs = inputs_of(batch);
  const auto row =
      static_cast<std::uint32_t>(std::find(inputs.begin(), inputs.end(), 2U) - inputs.begin());
  result.failed = {{row, {StatusCode::unauthenticated, "it is corrupt"}},
                   {99, {StatusCode::invalid, "there is no such request"}}};
  std::map<std::uint64_t, StatusCode> answers;
  for (const Answer& answer : complete(result, 10).answers) {
    answers[answer.request.tag] = answer.status.code();
    EXPECT_EQ(answer.outputs.empty(), !answer.status.ok());
  }
  const std::map<std::uint64_t, StatusCode> wanted{
      {1, StatusCode::ok}, {2, StatusCode::invalid}, {3, StatusCode::ok}};
  EXPECT_EQ(answers, wanted) << "a process cannot report any failure";
  EXPECT_TRUE(dispatcher_.idle());
}

TEST_F(SuspectsTest, RunOnAnotherGpuletDuringARestart) {
  dispatcher_.set_routes({even_route(1, {0})}, at(0));
  ask(0, 1);
  const Batch first = pump_one(0);
  dispatcher_.set_routes({even_route(1, {0}), even_route(2, {0, 1}), even_route(3, {0})}, at(5));
  complete(crash(first), 10);
  const Batch again = pump_one(10);
  EXPECT_EQ(again.gpulet, GpuletId{3}) << "where no other model loses its process";
  EXPECT_EQ(complete(echo(again), 20).answers.size(), 1U);
}

TEST_F(SuspectsTest, WaitForAnEmptyGpulet) {
  dispatcher_.set_routes({even_route(1, {0})}, at(0));
  ask(0, 1);
  const Batch first = pump_one(0);
  dispatcher_.set_routes({even_route(1, {0}), even_route(2, {1, 0})}, at(1));
  ask(1, 10);
  const Batch other = pump_one(1);
  ASSERT_EQ(other.gpulet, GpuletId{2});
  complete(crash(first), 2);
  ask(1, 11);
  EXPECT_TRUE(pump(3).batches.empty()) << "nothing joins what is to be alone";
  complete(echo(other), 11);
  const Batch again = pump_one(11);
  EXPECT_EQ(again.gpulet, GpuletId{2});
  EXPECT_EQ(again.model, "a");
  EXPECT_TRUE(pump(12).batches.empty());
  complete(echo(again), 20);
  EXPECT_EQ(pump_one(20).model, "b");
}

TEST_F(SuspectsTest, AllRequestsOfTheProcessAreSuspects) {
  dispatcher_.set_routes({even_route(1, {0, 1})}, at(0));
  ask(0, 1);
  ask(1, 2);
  const Batch first = pump_one(0);
  const Batch second = pump_one(10);  // bound when the first is about to end
  const DispatchOutput lost = complete(crash(first), 11);
  ASSERT_EQ(lost.lost.size(), 1U);
  EXPECT_EQ(lost.lost[0].models.size(), 2U);
  EXPECT_TRUE(complete(crash(second), 11).lost.empty()) << "told once";
  EXPECT_EQ(dispatcher_.gpulets().in_flight(GpuletId{1}), 0U);
}

TEST_F(SuspectsTest, AreRefusedIfTheyCannotRunInTime) {
  dispatcher_.set_routes({even_route(1, {0})}, at(0));
  ask(0, 1, 100);
  complete(crash(pump_one(0)), 10);
  EXPECT_TRUE(pump(100).answers.empty());
  EXPECT_EQ(dispatcher_.next_wake(), at(100) + Duration(1));
  const DispatchOutput out = pump(101);
  ASSERT_EQ(out.answers.size(), 1U);
  EXPECT_EQ(out.answers[0].status.code(), StatusCode::unavailable);
  EXPECT_TRUE(names(out.answers[0].status, "signal 11"));
}

TEST_F(SuspectsTest, RequestsOfAHungProcessAreSuspects) {
  dispatcher_.set_routes({even_route(1, {0})}, at(0));
  ask(0, 1);
  ask(0, 2);
  complete(crash(pump_one(0), FailureCause::hung), 3000);
  dispatcher_.set_ready(GpuletId{1}, true, at(3100));
  const Batch again = pump_one(3100);
  EXPECT_EQ(again.count, 1U);
  const DispatchOutput out = complete(crash(again, FailureCause::hung), 6100);
  ASSERT_EQ(out.answers.size(), 1U);
  EXPECT_EQ(out.answers[0].status.code(), StatusCode::internal);
}

TEST_F(SuspectsTest, AreForgottenWithTheirClientOrModel) {
  dispatcher_.set_routes({even_route(1, {0})}, at(0));
  for (const std::uint64_t tag : {1U, 2U, 3U}) ask(0, tag);
  complete(crash(pump_one(0)), 10);
  EXPECT_EQ(dispatcher_.queues().queued(0), 3U);
  dispatcher_.withdraw(0, ClientId{1}, 2);
  EXPECT_EQ(dispatcher_.queues().queued(0), 2U);
  DispatchOutput out;
  dispatcher_.versions().refuse_waiting(0, {StatusCode::unavailable, "as the test says"}, at(11),
                                        out);
  EXPECT_EQ(out.answers.size(), 2U);
  EXPECT_TRUE(dispatcher_.idle());
}

// Some inputs end their process. With time enough every one of them fails, nobody else does, each
// has one answer, and a request that was in a process that ended runs alone from then on.
RC_GTEST_PROP(SuspectsProperty, OnlyCulpritsFail, ()) {
  Dispatcher dispatcher{{byte_model("a", 100, 0), byte_model("b", 100, 0)}, 1000, BatchId{1}};
  dispatcher.set_routes({even_route(1, {0, 1}), even_route(2, {0})}, at(0));
  std::set<std::uint64_t> culprits;
  std::set<std::uint64_t> suspects;
  std::map<std::uint64_t, StatusCode> answered;
  std::map<std::uint64_t, std::vector<Batch>> held;  // by gpulet
  std::uint64_t asked = 0;
  const auto take = [&](const DispatchOutput& out) {
    for (const Answer& answer : out.answers)
      RC_ASSERT(answered.emplace(answer.request.tag, answer.status.code()).second);
    for (const BatchToSend& sent : out.batches) {
      std::vector<Batch>& there = held[sent.batch.gpulet.value];
      there.push_back(sent.batch);
      for (const Batch& batch : there) {
        for (const std::uint64_t tag : inputs_of(batch))
          RC_ASSERT(!suspects.contains(tag) || (there.size() == 1 && batch.count == 1));
      }
    }
  };
  int now = 0;
  const auto step = [&](bool more) {
    ++now;
    DispatchOutput out;
    if (more && asked < 200) {
      const auto index = *rc::gen::inRange<ModelIndex>(0, 2);
      if (*rc::gen::inRange(0, 6) == 0) culprits.insert(asked);
      dispatcher.enqueue(index, request(asked++, 1'000'000), at(now), out);
    }
    for (auto& [gpulet, batches] : held) {
      if (batches.empty() || (more && *rc::gen::inRange(0, 3) == 0)) continue;
      const Batch batch = batches.front();
      const std::vector<std::uint64_t> tags = inputs_of(batch);
      const bool crashes = std::any_of(tags.begin(), tags.end(),
                                       [&](std::uint64_t tag) { return culprits.contains(tag); });
      if (!crashes) {
        batches.erase(batches.begin());
        dispatcher.completed(echo(batch), at(now), out);
        continue;
      }
      const std::vector<Batch> lost = std::exchange(batches, {});
      for (const Batch& one : lost) {
        for (const std::uint64_t tag : inputs_of(one)) suspects.insert(tag);
        dispatcher.completed(crash(one), at(now), out);
      }
      dispatcher.set_ready(GpuletId{gpulet}, true, at(now));
    }
    dispatcher.pump(at(now), out);
    take(out);
  };
  const int steps = *rc::gen::inRange(1, 100);
  for (int i = 0; i < steps; ++i) step(true);
  for (int i = 0; i < 5000 && !dispatcher.idle(); ++i) step(false);
  RC_ASSERT(dispatcher.idle());
  RC_ASSERT(answered.size() == asked);
  for (const auto& [tag, code] : answered)
    RC_ASSERT(code == (culprits.contains(tag) ? StatusCode::internal : StatusCode::ok));
}

}  // namespace
}  // namespace gpulet::serve::suspects_test

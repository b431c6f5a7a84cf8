// Executables in the Dispatcher: who takes which request.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "gpulet/serve/values/frontend_status.h"
#include "serve/dispatch/dispatcher.h"

namespace gpulet::serve::dispatcher_instances_test {
namespace {

using schedule::Service;
using std::chrono::milliseconds;

constexpr Time after_ms(int ms) { return Time(milliseconds(ms)); }

ServedModel timed_model(const std::string& name, double slo_ms = 100) {
  ServedModel made;
  made.name = name;
  made.slo_ms = slo_ms;
  return with_sizes(made).value();
}

class InstancesTest : public ::testing::Test {
 protected:
  static GpuletRoute gpu(std::uint64_t id, const std::vector<ModelIndex>& models) {
    GpuletRoute made{GpuletId{id}, BackendId{1}, {}, {}, Service::by_need};
    for (const ModelIndex index : models) made.slots.push_back({index, {milliseconds(10)}});
    return made;
  }
  static GpuletRoute cpu(std::uint64_t id, ModelIndex model, int execution_ms = 50) {
    return {GpuletId{id},
            BackendId{1},
            {},
            {{model, {milliseconds(execution_ms)}}},
            Service::controlled};
  }
  void arrive(ModelIndex model, int ms, int patience_ms = 60000) {
    Request made;
    made.client = ClientId{1};
    made.tag = ++tag_;
    made.deadline = after_ms(ms + patience_ms);
    made.late_after = after_ms(ms + 100);
    made.trace.arrived = after_ms(ms);
    DispatchOutput out;
    dispatcher_.enqueue(model, std::move(made), after_ms(ms), out);
  }
  std::vector<Batch> pump(int ms) {
    DispatchOutput out;
    dispatcher_.pump(after_ms(ms), out);
    std::vector<Batch> sent;
    for (BatchToSend& one : out.batches) sent.push_back(std::move(one.batch));
    return sent;
  }
  void done(const Batch& batch, int ms) {
    DispatchOutput out;
    dispatcher_.completed({batch.id, {}, {}, {}, batch.expected_duration}, after_ms(ms), out);
  }

  std::uint64_t tag_ = 0;
  Dispatcher dispatcher_{
      {timed_model("a"), timed_model("b"), timed_model("c", 1000)}, 100, BatchId{1}};
};

TEST_F(InstancesTest, AFreeGpuTakesOneRequestOfTheNeediestModel) {
  dispatcher_.set_routes({gpu(1, {0, 1, 2})}, after_ms(0));
  for (int i = 0; i < 5; ++i) arrive(2, 0);  // far from its objective of a second
  for (int i = 0; i < 2; ++i) arrive(0, 10);
  arrive(1, 0);
  const std::vector<Batch> first = pump(150);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].model, "b");  // it has waited longest for its objective
  EXPECT_EQ(first[0].count, 1U);
  EXPECT_TRUE(pump(155).empty());  // it is busy
  done(first[0], 160);
  const std::vector<Batch> second = pump(160);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].model, "a");
}

TEST_F(InstancesTest, ModelsWithoutNeedAreServedByQueueLength) {
  dispatcher_.set_routes({gpu(1, {0, 1, 2})}, after_ms(0));
  arrive(0, 0);
  arrive(1, 0);
  arrive(2, 0);
  arrive(2, 0);
  const std::vector<Batch> first = pump(0);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].model, "c");
}

TEST_F(InstancesTest, RoundRobinServesModelsInTurn) {
  control::Options options;
  options.gpu = control::GpuRule::round_robin;
  Dispatcher turns({timed_model("a"), timed_model("b"), timed_model("c")}, 100, BatchId{1},
                   options);
  turns.set_routes({gpu(1, {0, 1, 2})}, after_ms(0));
  DispatchOutput out;
  for (std::uint64_t i = 0; i < 9; ++i) {
    Request made;
    made.deadline = after_ms(60000);
    made.tag = i;
    turns.enqueue(i < 7 ? 0 : i - 6, std::move(made), after_ms(0), out);
  }
  std::string order;
  for (int turn = 0; turn < 6; ++turn) {
    out = {};
    turns.pump(after_ms(turn), out);
    ASSERT_EQ(out.batches.size(), 1U);
    order += out.batches[0].batch.model;
    const BatchResult result{out.batches[0].batch.id, {}, {}, {}, milliseconds(1)};
    turns.completed(result, after_ms(turn), out);
  }
  EXPECT_EQ(order, "bcaaaa");
}

TEST_F(InstancesTest, CpusTakeRequestsThatTheGpuDoesNot) {
  dispatcher_.set_routes({gpu(1, {0, 1}), cpu(2, 0), cpu(3, 1), cpu(4, 0)}, after_ms(0));
  for (int i = 0; i < 4; ++i) arrive(0, 0);
  const std::vector<Batch> sent = pump(0);
  std::vector<std::uint64_t> taken_by;
  for (const Batch& batch : sent) taken_by.push_back(batch.gpulet.value);
  std::sort(taken_by.begin(), taken_by.end());
  EXPECT_EQ(taken_by, (std::vector<std::uint64_t>{1, 2, 4}));  // the third has another model
  EXPECT_EQ(dispatcher_.queues().queued(0), 1U);
}

TEST_F(InstancesTest, TheSameSeedGivesTheSameChoices) {
  const auto order_of = [](std::uint64_t seed) {
    control::Options options;
    options.seed = seed;
    Dispatcher some({timed_model("a"), timed_model("b")}, 100, BatchId{1}, options);
    some.set_routes({cpu(2, 0), cpu(3, 1), cpu(4, 0), cpu(5, 1)}, after_ms(0));
    std::string order;
    for (int round = 0; round < 20; ++round) {
      DispatchOutput out;
      for (const ModelIndex model : {0U, 1U}) {
        Request made;
        made.deadline = after_ms(60000);
        some.enqueue(model, std::move(made), after_ms(round), out);
      }
      some.pump(after_ms(round), out);
      for (const BatchToSend& one : out.batches) {
        order += std::to_string(one.batch.gpulet.value);
        some.completed({one.batch.id, {}, {}, {}, milliseconds(1)}, after_ms(round), out);
      }
    }
    return order;
  };
  EXPECT_EQ(order_of(1), order_of(1));
  EXPECT_NE(order_of(1), order_of(2));
}

TEST_F(InstancesTest, RequestsWaitUntilTheirPatienceEnds) {
  dispatcher_.set_routes({gpu(1, {0})}, after_ms(0));
  arrive(0, 0);
  arrive(0, 0);
  const std::vector<Batch> first = pump(0);
  ASSERT_EQ(first.size(), 1U);
  DispatchOutput out;
  dispatcher_.pump(after_ms(59000), out);
  EXPECT_TRUE(out.answers.empty());
  dispatcher_.pump(after_ms(60001), out);
  ASSERT_EQ(out.answers.size(), 2U) << "the one that waits, and the one that never came back";
  for (const Answer& answer : out.answers) EXPECT_EQ(answer.status.code(), StatusCode::too_late);
}

TEST_F(InstancesTest, AnotherInstanceServesTheRequestOfALostOne) {
  dispatcher_.set_routes({cpu(2, 0), cpu(3, 0)}, after_ms(0));
  dispatcher_.set_ready(GpuletId{3}, false, after_ms(0));
  arrive(0, 0);
  const std::vector<Batch> first = pump(0);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].gpulet, GpuletId{2});
  dispatcher_.set_ready(GpuletId{3}, true, after_ms(10));
  DispatchOutput out;
  dispatcher_.remove(GpuletId{2}, after_ms(20), out);
  const std::vector<Batch> second = pump(20);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].gpulet, GpuletId{3});
}

TEST_F(InstancesTest, APeriodCountsAnswersOfGpuAndCpu) {
  dispatcher_.set_routes({gpu(1, {0}), cpu(2, 0)}, after_ms(0));
  arrive(0, 0);
  arrive(0, 0);
  for (const Batch& batch : pump(0)) done(batch, batch.gpulet == GpuletId{1} ? 10 : 50);
  const Responses::Period period = dispatcher_.records().take_period(0);
  EXPECT_EQ(period.on_gpu, 1U);
  EXPECT_EQ(period.on_cpu, 1U);
  EXPECT_NEAR(period.gpu_s, 0.010, 1e-9);
  EXPECT_NEAR(period.rest_s, 0.050, 1e-9);
  EXPECT_EQ(dispatcher_.records().take_period(0).answered(), 0U);
  arrive(0, 100);
  static_cast<void>(pump(100));
  EXPECT_EQ(dispatcher_.instances().mean_age(0, after_ms(130)), milliseconds(30));
}

// ---- beside gpulets with rounds

class SpillTest : public InstancesTest {
 protected:
  // Batches of up to two in 20 ms.
  static GpuletRoute rounds(std::uint64_t id, ModelIndex model) {
    return {GpuletId{id},
            BackendId{1},
            milliseconds(20),
            {{model, {milliseconds(20), milliseconds(20)}}},
            Service::rounds};
  }
};

TEST_F(SpillTest, NothingSpillsIfGpuletsAreFastEnough) {
  dispatcher_.set_routes({rounds(1, 0), cpu(2, 0)}, after_ms(0));
  arrive(0, 0, 100);
  const std::vector<Batch> sent = pump(0);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].gpulet, GpuletId{1});
}

TEST_F(SpillTest, TheEndOfABacklogSpills) {
  dispatcher_.set_routes({rounds(1, 0), cpu(2, 0)}, after_ms(0));
  for (int i = 0; i < 12; ++i) arrive(0, i, 100);
  std::map<std::uint64_t, std::size_t> taken;
  for (const Batch& batch : pump(12)) taken[batch.gpulet.value] += batch.count;
  EXPECT_EQ(taken[1], 4U);  // two batches in flight
  EXPECT_EQ(taken[2], 1U);
}

TEST_F(SpillTest, ACpuThatIsTooSlowTakesNothing) {
  dispatcher_.set_routes({rounds(1, 0), cpu(2, 0, 500)}, after_ms(0));
  for (int i = 0; i < 12; ++i) arrive(0, i, 100);
  for (const Batch& batch : pump(12)) EXPECT_EQ(batch.gpulet, GpuletId{1});
  dispatcher_.instances().set_expected(GpuletId{2}, milliseconds(50));
  const std::vector<Batch> sent = pump(13);
  EXPECT_TRUE(sent.empty() || sent[0].gpulet == GpuletId{2});
}

TEST(ResponsesTest, TheRecentMeanForgetsOldResponses) {
  Responses responses(milliseconds(1000));
  responses.record(milliseconds(100), Responses::Where::gpu, after_ms(0));
  responses.record(milliseconds(300), Responses::Where::cpu, after_ms(500));
  EXPECT_EQ(responses.recent_mean(after_ms(900)), milliseconds(200));
  EXPECT_EQ(responses.recent_mean(after_ms(1100)), milliseconds(300));
  EXPECT_FALSE(responses.recent_mean(after_ms(2000)));
}

}  // namespace
}  // namespace gpulet::serve::dispatcher_instances_test

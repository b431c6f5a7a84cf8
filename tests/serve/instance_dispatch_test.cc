#include "serve/dispatch/instance_dispatch.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "tests/support/serve/dispatch_parts.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::instance_dispatch_test {
namespace {

using schedule::Service;
using std::chrono::milliseconds;
using testing::at;
using testing::byte_model;
using testing::byte_request;
using testing::DispatchParts;
using testing::even_route;

GpuletRoute instance(std::uint64_t id, const std::vector<ModelIndex>& models, Service service) {
  GpuletRoute made{GpuletId{id}, BackendId{1}, {}, {}, service};
  for (const ModelIndex model : models) made.slots.push_back({model, {milliseconds(10)}});
  return made;
}
GpuletRoute gpu(std::uint64_t id, const std::vector<ModelIndex>& models) {
  return instance(id, models, Service::by_need);
}
GpuletRoute cpu(std::uint64_t id, ModelIndex model) {
  return instance(id, {model}, Service::controlled);
}

struct Instances {
  explicit Instances(const std::vector<GpuletRoute>& routes, const control::Options& control = {})
      : parts({byte_model("a", 100, 0), byte_model("b", 100, 0)}, control) {
    parts.gpulets.set_routes(routes, at(0));
    parts.instances.follow(routes);
  }
  void arrive(ModelIndex model, int ms, int deadline_ms = 1000) {
    parts.push(model, byte_request(++tag, at(ms), at(deadline_ms)));
  }
  std::vector<Batch> pump(int ms) {
    DispatchOutput out;
    parts.instances.pump(at(ms), out);
    std::vector<Batch> sent;
    for (BatchToSend& one : out.batches) sent.push_back(std::move(one.batch));
    return sent;
  }

  DispatchParts parts;
  std::uint64_t tag = 0;
};

TEST(InstanceDispatch, AnInstanceTakesOneRequestAtATime) {
  Instances instances({gpu(1, {0})});
  instances.arrive(0, 0);
  instances.arrive(0, 0);
  const std::vector<Batch> sent = instances.pump(0);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].count, 1U);
  EXPECT_TRUE(instances.pump(5).empty()) << "it is busy";
  EXPECT_EQ(instances.parts.finish(sent[0].id, true, at(10)).requests.size(), 1U);
  EXPECT_EQ(instances.pump(10).size(), 1U);
}

TEST(InstanceDispatch, OneThatIsGoneOrHasNoRouteTakesNothing) {
  Instances instances({gpu(1, {0}), cpu(2, 0)});
  instances.arrive(0, 0);
  instances.arrive(0, 0);
  instances.parts.instances.forget(GpuletId{1});
  instances.parts.gpulets.remove(GpuletId{2});
  EXPECT_TRUE(instances.pump(0).empty());
  instances.parts.instances.follow({});
  EXPECT_TRUE(instances.pump(0).empty());
}

TEST(InstanceDispatch, InTurnTheModelsOfAGpuAlternate) {
  control::Options control;
  control.gpu = control::GpuRule::round_robin;
  Instances instances({gpu(1, {0, 1})}, control);
  for (int i = 0; i < 2; ++i) {
    instances.arrive(0, 0);
    instances.arrive(1, 0);
  }
  std::vector<std::string> order;
  for (int ms = 0; ms < 40; ms += 10) {
    for (const Batch& batch : instances.pump(ms)) {
      order.push_back(batch.model);
      EXPECT_EQ(instances.parts.finish(batch.id, true, at(ms + 10)).requests.size(), 1U);
    }
  }
  ASSERT_EQ(order.size(), 4U);
  for (std::size_t i = 1; i < order.size(); ++i) EXPECT_NE(order[i], order[i - 1]);
}

TEST(InstanceDispatch, EveryFreeCpuInstanceTakesARequest) {
  Instances instances({cpu(1, 0), cpu(2, 0), cpu(3, 1)});
  for (int i = 0; i < 3; ++i) instances.arrive(0, 0);
  std::size_t of_a = 0;
  for (const Batch& batch : instances.pump(0)) of_a += batch.model == "a" ? 1U : 0U;
  EXPECT_EQ(of_a, 2U);
  EXPECT_EQ(instances.parts.queues.queued(0), 1U);
}

TEST(InstanceDispatch, BesideRoundsACpuTakesWhatTheyCannotServeInTime) {
  Instances instances({even_route(1, {0}), cpu(2, 0)});
  instances.arrive(0, 0, 60);
  EXPECT_TRUE(instances.pump(0).empty()) << "gpulet 1 can serve it";
  instances.parts.gpulet(1).hold(milliseconds(200), at(0));
  const std::vector<Batch> sent = instances.pump(0);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].gpulet, GpuletId{2});
  instances.arrive(0, 0, 5);
  EXPECT_EQ(instances.parts.finish(sent[0].id, true, at(0)).requests.size(), 1U);
  EXPECT_TRUE(instances.pump(0).empty()) << "nobody can serve that";
}

TEST(InstanceDispatch, BesideRoundsACpuTakesTheLastOfABacklog) {
  Instances instances({even_route(1, {0}), cpu(2, 0)});
  for (int i = 1; i <= 5; ++i) instances.arrive(0, 0, 1000 + i);
  const std::vector<Batch> sent = instances.pump(0);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(instances.parts.batches.find(sent[0].id)->requests.at(0).tag, 5U);
}

TEST(InstanceDispatch, AnExpectedDurationHoldsFromTheNextRequestOn) {
  Instances instances({cpu(1, 0)});
  instances.parts.instances.set_expected(GpuletId{1}, milliseconds(33));
  instances.parts.instances.set_expected(GpuletId{9}, milliseconds(33));
  instances.arrive(0, 0);
  const std::vector<Batch> sent = instances.pump(0);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].expected_duration, milliseconds(33));
}

TEST(InstanceDispatch, AReadingHasTheResponsesOrTheAgeWithoutAny) {
  Instances instances({cpu(1, 0), even_route(2, {1})});
  EXPECT_EQ(instances.parts.instances.read(0, at(0)).age, Duration::zero());
  instances.arrive(0, 0);
  instances.arrive(0, 10);
  const InstanceDispatch::Reading waiting = instances.parts.instances.read(0, at(20));
  EXPECT_EQ(waiting.answered.answered(), 0U);
  EXPECT_EQ(waiting.age, milliseconds(15));
  EXPECT_FALSE(waiting.spills);
  EXPECT_TRUE(instances.parts.instances.read(1, at(20)).spills);
  DispatchOutput out;
  instances.parts.answers.serve(0, byte_request(9, at(0), at(1000)), {}, {}, at(20), out);
  const InstanceDispatch::Reading answered = instances.parts.instances.read(0, at(20));
  EXPECT_EQ(answered.answered.answered(), 1U);
  EXPECT_EQ(answered.age, Duration::zero());
}

TEST(InstanceDispatch, TheAgeIsThatOfAllRequestsWithoutAnAnswer) {
  Instances instances({cpu(1, 0)});
  instances.arrive(0, 0);
  ASSERT_EQ(instances.pump(10).size(), 1U);
  instances.arrive(0, 20);
  EXPECT_EQ(instances.parts.instances.mean_age(0, at(40)), milliseconds(30));
  EXPECT_EQ(instances.parts.instances.mean_age(1, at(40)), Duration::zero());
  instances.parts.push_suspect(0, byte_request(9, at(34), at(1000)));
  EXPECT_EQ(instances.parts.instances.mean_age(0, at(40)), milliseconds(22));
}

// No instance holds more than one request, and none is idle while a request waits that it can take.
RC_GTEST_PROP(InstanceDispatchProperty, NoInstanceIsIdleWhileItsModelWaits, ()) {
  control::Options control;
  control.seed = *rc::gen::inRange<std::uint64_t>(0, 100);
  Instances instances({gpu(1, {0, 1}), cpu(2, 0), cpu(3, 0), cpu(4, 1)}, control);
  DispatchParts& parts = instances.parts;
  const int steps = *rc::gen::inRange(1, 40);
  for (int now = 0; now < steps; ++now) {
    if (*rc::gen::inRange(0, 2) == 0 && !parts.batches.empty()) {
      RC_ASSERT(parts.finish(parts.batches.all().begin()->first, true, at(now)).requests.size() ==
                1U);
    } else {
      instances.arrive(*rc::gen::inRange<ModelIndex>(0, 2), now);
    }
    instances.pump(now);
    for (std::uint64_t id = 1; id <= 4; ++id) {
      const RoutedGpulet& gpulet = parts.gpulet(id);
      RC_ASSERT(gpulet.in_flight <= 1U);
      if (gpulet.in_flight > 0) continue;
      for (const RoutedSlot& slot : gpulet.slots) RC_ASSERT(parts.queues.queued(slot.model) == 0U);
    }
  }
}

}  // namespace
}  // namespace gpulet::serve::instance_dispatch_test

// Applications in a frontend with its backends, in virtual time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "tests/support/names.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::application_gateway_test {
namespace {

using config::ApplicationConfig;
using config::ModelCall;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::byte_model;
using testing::card_profile;
using testing::World;

constexpr auto kLeft = "left";
constexpr auto kRight = "right";

Time at_s(double time) { return Time(from_seconds(time)); }

// first, then left and right beside each other: two bytes are answered.
ApplicationConfig fork(double slo_ms, double rate = 0) {
  ApplicationConfig graph;
  graph.name = "fork";
  graph.inputs = {{"x", DataType::uint8, {1}}};
  graph.slo_ms = slo_ms;
  graph.rate = rate;
  const auto node = [](const std::string& name, const std::string& model,
                       config::TensorSource from) {
    return config::ApplicationNode{name, ModelCall{model}, {from}, {{"y", DataType::uint8, {1}}}};
  };
  graph.nodes = {node("first", "a", {{}, 0, {}}), node(kLeft, "b", {0, 0, {}}),
                 node(kRight, "b", {0, 0, {}})};
  graph.answered = {{1, 0, {}}, {2, 0, {}}};
  graph.outputs = {{kLeft, DataType::uint8, {1}}, {kRight, DataType::uint8, {1}}};
  return graph;
}

std::vector<ServedModel> two_models(double rate) {
  return {byte_model("a", 100, rate), byte_model("b", 200, rate)};
}

World made_world(double rate, const FrontendOptions& options = {}) {
  return {options, two_models(rate), card_profile({{"a", 2}, {"b", 4}})};
}

const ModelStatus& row_of(const FrontendStatus& status, const std::string& name) {
  return *std::find_if(status.models.begin(), status.models.end(),
                       [&name](const ModelStatus& row) { return row.name == name; });
}

TEST(FrontendApplications, AreAnsweredAsAWholeAndHaveAStatus) {
  World world = made_world(50);
  world.add_backend("n0", 2);
  world.change_models_at(at_s(0.1), two_models(50), {}, {fork(250, 20)});
  constexpr std::uint64_t kRequests = 100;
  for (std::uint64_t tag = 1; tag <= kRequests; ++tag)
    world.request_at(at_s(5 + 0.05 * static_cast<double>(tag)), "fork", tag);
  world.run_until(at_s(11));
  ASSERT_EQ(world.replies().size(), kRequests);
  for (const auto& [tag, answers] : world.replies()) {
    ASSERT_EQ(answers.size(), 1U);
    const InferReply& reply = answers[0].reply;
    ASSERT_TRUE(reply.status.ok()) << reply.status.to_string();
    ASSERT_EQ(reply.payload.size(), 2U);
    EXPECT_EQ(reply.payload[1].view()[0], static_cast<std::byte>(tag));
    EXPECT_EQ(reply.outputs[1].name, kRight);
  }
  const FrontendStatus status = world.status();
  const ModelStatus& row = row_of(status, "fork");
  EXPECT_EQ(row.counters.served, kRequests);
  EXPECT_EQ(row.counters.late, 0U);
  EXPECT_EQ(row.queued, 0U);
  EXPECT_GT(row.p50_ms, 0);
  EXPECT_EQ(row.state, ModelState::ready);
  EXPECT_EQ(row_of(status, "b").counters.served, 2 * kRequests);
  EXPECT_EQ(world.model("fork").inputs, fork(1).inputs);
  EXPECT_EQ(world.model("fork").slo_ms, 250);
}

TEST(FrontendApplications, TakeNoSyntheticInputs) {
  FrontendOptions options;
  options.synthetic_inputs = true;
  World world = made_world(10, options);
  world.add_backend("n0", 2);
  world.change_models_at(at_s(0.1), two_models(10), {}, {fork(250, 20)});
  InferRequest request;
  request.tag = 1;
  request.model = "fork";
  request.inputs = {{"x", DataType::uint8, {1}}};
  request.synthetic = true;
  world.run_until(at_s(5));
  world.inject(RequestReceived{ClientId{1}, std::move(request)});
  world.run_until(at_s(6));
  ASSERT_EQ(world.replies().size(), 1U);
  EXPECT_EQ(world.replies().at(1).at(0).reply.status.code(), StatusCode::invalid);
}

TEST(FrontendApplications, PlansIncludeTheirStagesAndRates) {
  World world = made_world(10);
  world.add_backend("n0", 2);
  // a needs half of what b needs: 30 and 60 ms
  world.change_models_at(at_s(0.1), two_models(10), {}, {fork(90, 20)});
  world.run_until(at_s(5));
  double rate_of_b = 0;
  for (const schedule::PlannedGpulet& gpulet : world.frontend().plan().gpulets) {
    for (const schedule::Assignment& part : gpulet.assignments) {
      EXPECT_NEAR(part.slo_ms, part.model == "a" ? 30 : 60, 1);
      if (part.model == "b") rate_of_b += part.rate;
    }
  }
  EXPECT_GE(rate_of_b, 50);
  EXPECT_EQ(world.model("a").slo_ms, 100);
}

TEST(FrontendApplications, TheFirstRequestWakesAllTheirModels) {
  World world = made_world(0);
  world.add_backend("n0", 2);
  world.change_models_at(at_s(0.1), two_models(0), {}, {fork(400)});
  world.run_until(at_s(3));
  EXPECT_EQ(row_of(world.status(), "fork").state, ModelState::idle);
  const std::size_t plans = world.plans().size();
  world.request_at(at_s(3), "fork", 1);
  world.run_until(at_s(8));
  ASSERT_EQ(world.replies().size(), 1U);
  const InferReply& reply = world.replies().at(1).at(0).reply;
  EXPECT_TRUE(reply.status.ok()) << reply.status.to_string();
  EXPECT_EQ(world.plans().size(), plans + 1);  // one for both stages
}

TEST(FrontendApplications, AnUnservedApplicationHasAReason) {
  World world = made_world(10);
  world.add_backend("n0", 1);
  world.change_models_at(at_s(0.1), two_models(10), {}, {fork(5)});
  world.request_at(at_s(4), "fork", 1);
  world.request_at(at_s(4), "b", 2);
  world.run_until(at_s(5));
  EXPECT_EQ(world.replies().at(1).at(0).reply.status.code(), StatusCode::unavailable);
  EXPECT_TRUE(world.replies().at(2).at(0).reply.status.ok());
  EXPECT_EQ(row_of(world.status(), "fork").state, ModelState::unavailable);
  EXPECT_TRUE(support::names(row_of(world.status(), "fork").reason, "a"));
}

RC_GTEST_PROP(FrontendApplicationsProperty, EveryRequestHasOneAnswer, ()) {
  FrontendOptions options;
  options.max_queue_per_model = static_cast<std::uint32_t>(*rc::gen::inRange(2, 40));
  World world = made_world(*rc::gen::element(0.0, 30.0), options);
  world.add_backend("n0", 1);
  world.add_backend("n1", 1);
  world.change_models_at(at_s(0.5), two_models(30), {}, {fork(150)});
  world.run_until(at_s(2));
  const auto requests = static_cast<std::uint64_t>(*rc::gen::inRange(1, 200));
  for (std::uint64_t tag = 1; tag <= requests; ++tag) {
    const Time time = at_s(2 + 0.001 * *rc::gen::inRange(0, 3000));
    const char* const name = *rc::gen::element("fork", "fork", "a", "b");
    world.request_at(time, name, tag, milliseconds(*rc::gen::element(0, 5, 60)));
  }
  if (*rc::gen::arbitrary<bool>()) {
    world.run_until(at_s(3));
    world.kill_backend("n1");
  }
  world.run_until(at_s(3.5));
  world.kill_proxy("n0");
  if (*rc::gen::arbitrary<bool>())
    world.change_models_at(at_s(4), two_models(30), {}, {fork(300, 5)});
  world.drain_at(at_s(4.8));
  world.run_until(at_s(30));
  RC_ASSERT(world.replies().size() == requests);
  for (const auto& [tag, answers] : world.replies()) RC_ASSERT(answers.size() == 1U);
  RC_ASSERT(world.drained());
}

}  // namespace
}  // namespace gpulet::serve::application_gateway_test

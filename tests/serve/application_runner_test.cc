#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "gpulet/base/random.h"
#include "serve/requests/application_gateway.h"
#include "tests/support/names.h"
#include "tests/support/serve/world.h"

namespace gpulet::serve::application_runner_test {
namespace {

using config::ApplicationConfig;
using config::ApplicationNode;
using config::ModelCall;
using config::TensorSource;
using std::chrono::milliseconds;
using testing::byte_model;
using testing::card_profile;

Time at_ms(int time) { return Time(milliseconds(time)); }

ApplicationNode model_node(const std::string& name, const std::string& model,
                           std::vector<TensorSource> inputs) {
  return {name, ModelCall{model}, std::move(inputs), {{"y", DataType::uint8, {1}}}};
}

// Light and pair, which has two inputs, need 1 ms per request, middle 2 ms and heavy 3 ms.
const std::vector<ServedModel>& models() {
  static const std::vector<ServedModel> all = [] {
    std::vector<ServedModel> made = {byte_model("light", 10000, 1), byte_model("middle", 10000, 1),
                                     byte_model("heavy", 10000, 1), byte_model("pair", 10000, 1)};
    made[3].inputs.push_back({"z", DataType::uint8, {1}});
    made[3] = with_sizes(made[3]).value();
    return made;
  }();
  return all;
}

profile::ProfileSet profiles() {
  return {{"card", card_profile({{"light", 1}, {"middle", 2}, {"heavy", 3}, {"pair", 1}})}};
}

// All tensors have one byte, except for a request of `request_bytes` items.
ApplicationConfig graph_of(std::vector<ApplicationNode> nodes, std::vector<TensorSource> answered,
                           std::int64_t request_bytes = 1) {
  ApplicationConfig graph;
  graph.name = "whole";
  graph.inputs = {{"x", DataType::uint8, {1}}};
  if (request_bytes > 1) graph.inputs[0].shape = {request_bytes, 1};
  graph.slo_ms = 1000;
  graph.nodes = std::move(nodes);
  graph.answered = std::move(answered);
  for (std::size_t i = 0; i < graph.answered.size(); ++i)
    graph.outputs.push_back({"o" + std::to_string(i), DataType::uint8, {1}});
  return graph;
}

std::shared_ptr<const Application> made(ApplicationConfig graph) {
  return make_application(std::move(graph), models(), profiles()).value();
}

ApplicationRunner::Request request_of(std::uint64_t tag, std::vector<std::byte> payload,
                                      Time deadline, ClientId client = ClientId{1}) {
  return {client, tag, deadline, deadline, Bytes::own(std::move(payload))};
}

ApplicationRunner::CallResult result_of(std::byte value, Duration executed = {}) {
  return {{}, {Bytes::own({value})}, executed, 2};
}

// ---- objectives

TEST(ApplicationObjective, DividesTheHeaviestPathInProportionAndGivesLightBranchesTheRest) {
  // middle, then heavy and light in parallel
  const ApplicationConfig graph =
      graph_of({model_node("first", "middle", {{{}, 0, {}}}),
                model_node("a", "heavy", {{0, 0, {}}}), model_node("b", "light", {{0, 0, {}}})},
               {{1, 0, {}}, {2, 0, {}}});
  const ObjectiveSplit split = split_objective(graph, models(), profiles());
  EXPECT_EQ(split.unmet, "");
  EXPECT_NEAR(to_ms(split.stages[0].budget), 400, 0.01);
  for (const std::size_t branch : {1U, 2U}) {
    EXPECT_NEAR(to_ms(split.stages[branch].start), 400, 0.01);
    EXPECT_NEAR(to_ms(split.stages[branch].budget), 600, 0.01);
  }
  const auto calls = calls_of_models({made(graph)});
  EXPECT_NEAR(planned_model(models()[0], calls.at("light")).slo_ms, 600, 0.01);
  EXPECT_NEAR(planned_model(models()[1], calls.at("middle")).slo_ms, 400, 0.01);
}

TEST(ApplicationObjective, StepsGetExactlyTheirAllowance) {
  ApplicationNode step{"step", config::Step(config::ArgMaxStep{}), {{0, 0, {}}}, {}};
  step.outputs = {{"index", DataType::int64, {1}}};
  const ApplicationConfig graph = graph_of(
      {model_node("first", "light", {{{}, 0, {}}}), step, model_node("last", "heavy", {{1, 0, {}}}),
       model_node("alone", "light", {{{}, 0, {}}})},
      {{2, 0, {}}, {3, 0, {}}});
  const std::vector<StageBudget> stages = split_objective(graph, models(), profiles()).stages;
  const double left = 1000 - to_ms(kStepAllowance);
  EXPECT_NEAR(to_ms(stages[0].budget), left / 4, 0.01);
  EXPECT_NEAR(to_ms(stages[1].budget), to_ms(kStepAllowance), 0.01);
  EXPECT_NEAR(to_ms(stages[2].budget), left * 3 / 4, 0.01);
  EXPECT_NEAR(to_ms(stages[3].budget), 1000, 0.01);
}

TEST(ApplicationObjective, AnUnmetObjectiveAddsNoDemandToItsModels) {
  ApplicationConfig graph = graph_of({model_node("a", "heavy", {{{}, 0, {}}})}, {{0, 0, {}}});
  graph.slo_ms = 5;  // two rounds of heavy take 6 ms on a whole card
  graph.rate = 7;
  const ObjectiveSplit tight = split_objective(graph, models(), profiles());
  EXPECT_TRUE(support::names(tight.unmet, "heavy"));
  const auto planned = [&graph] {
    return planned_model(models()[2], calls_of_models({made(graph)}).at("heavy"));
  };
  EXPECT_EQ(planned().slo_ms, 10000);
  EXPECT_NE(split_objective(graph, models(), {}).unmet, "") << "without a profile";
  graph.slo_ms = 50;
  EXPECT_EQ(planned().slo_ms, 50);
  EXPECT_EQ(planned().configured_rate, 8);
}

TEST(ApplicationObjective, AMissingModelOrOtherTensorsMakeTheObjectiveUnmet) {
  const ApplicationConfig graph = graph_of({model_node("a", "heavy", {{{}, 0, {}}})}, {{0, 0, {}}});
  std::vector<ServedModel> others = models();
  others[2].inputs[0].shape = {2};
  EXPECT_NE(make_application(graph, others, profiles()).value()->split.unmet, "");
  others.resize(2);
  EXPECT_NE(make_application(graph, others, profiles()).value()->split.unmet, "");
  others[0].name = "whole";
  EXPECT_EQ(make_application(graph, others, profiles()).status().code(), StatusCode::invalid);
}

TEST(ApplicationFront, IsAModelThatTakesOneRequestAtATime) {
  ApplicationConfig graph = graph_of({model_node("a", "heavy", {{{}, 0, 1}})}, {{0, 0, {}}}, 2);
  graph.rate = 7;
  const ServedModel front = made(graph)->front;
  EXPECT_EQ(front.name, "whole");
  EXPECT_EQ(front.inputs, graph.inputs);
  EXPECT_EQ(front.outputs, graph.outputs);
  EXPECT_EQ(front.input_bytes, 2U);
  EXPECT_EQ(front.slo_ms, 1000);
  EXPECT_EQ(front.configured_rate, 7);
  EXPECT_EQ(front.max_batch, 1U);
}

// ---- runs

class ApplicationRunnerTest : public ::testing::Test {
 protected:
  // first -> a and b -> last, which reads both
  ApplicationRunnerTest() {
    ApplicationNode last = model_node("last", "pair", {{1, 0, {}}, {2, 0, {}}});
    runner_.replace({made(graph_of({model_node("first", "middle", {{{}, 0, 1}}),
                                    model_node("a", "heavy", {{0, 0, {}}}),
                                    model_node("b", "light", {{0, 0, {}}}), std::move(last)},
                                   {{3, 0, {}}, {2, 0, {}}}, 2))},
                    at_ms(0));
  }
  // Returns the requested call; throws unless there is exactly one.
  ModelToCall only_call() {
    if (out_.calls.size() != 1) throw std::logic_error("not one call");
    const ModelToCall call = out_.calls[0];
    out_ = {};
    return call;
  }

  ApplicationRunner runner_{2};
  ApplicationOutput out_;
};

TEST_F(ApplicationRunnerTest, CallsEachModelOnceItsInputsAreAvailableAndRepliesWithAllOutputs) {
  runner_.start("whole", request_of(9, {std::byte{5}, std::byte{6}}, at_ms(1000)), at_ms(0), out_);
  const ModelToCall first = only_call();
  EXPECT_EQ(first.model, "middle");
  EXPECT_EQ(first.input.view()[0], std::byte{6});
  runner_.answered(first.id, result_of(std::byte{7}, milliseconds(3)), at_ms(100), out_);
  ASSERT_EQ(out_.calls.size(), 2U);
  const ModelToCall a = out_.calls[0];
  const ModelToCall b = out_.calls[1];
  EXPECT_EQ(a.input.view()[0], std::byte{7});
  EXPECT_EQ(a.input.view().data(), b.input.view().data());
  out_ = {};
  runner_.answered(b.id, result_of(std::byte{2}, milliseconds(1)), at_ms(200), out_);
  EXPECT_TRUE(out_.calls.empty());
  runner_.answered(a.id, result_of(std::byte{1}, milliseconds(4)), at_ms(300), out_);
  const ModelToCall last = only_call();
  EXPECT_EQ(last.input.size(), 2U);
  EXPECT_EQ(last.input.view()[0], std::byte{1});
  EXPECT_EQ(last.input.view()[1], std::byte{2});
  runner_.answered(last.id, result_of(std::byte{3}, milliseconds(5)), at_ms(400), out_);
  ASSERT_EQ(out_.answers.size(), 1U);
  const InferReply& reply = out_.answers[0].reply;
  EXPECT_EQ(reply.tag, 9U);
  EXPECT_TRUE(reply.status.ok());
  ASSERT_EQ(reply.payload.size(), 2U);
  EXPECT_EQ(reply.payload[0].view()[0], std::byte{3});
  EXPECT_EQ(reply.payload[1].view()[0], std::byte{2});
  EXPECT_EQ(reply.executed, milliseconds(12));
  EXPECT_EQ(reply.queued, milliseconds(388));
  EXPECT_TRUE(runner_.idle());
  EXPECT_EQ(runner_.rows(at_ms(400))[0].counters.served, 1U);
}

// A model may have been changed since the run began, or another frontend answered it.
TEST_F(ApplicationRunnerTest, AnOutputOfAnotherSizeThanDeclaredFailsTheRun) {
  for (const std::size_t bytes : {0U, 2U, 1000U}) {
    runner_.start("whole", request_of(9, std::vector<std::byte>(2), at_ms(1000)), at_ms(0), out_);
    const ModelToCall call = only_call();
    runner_.answered(call.id, {{}, {Bytes::own(std::vector<std::byte>(bytes))}, {}, 1}, at_ms(1),
                     out_);
    ASSERT_EQ(out_.answers.size(), 1U);
    EXPECT_EQ(out_.answers[0].reply.status.code(), StatusCode::internal);
    EXPECT_TRUE(out_.answers[0].reply.payload.empty());
    EXPECT_TRUE(runner_.idle());
    out_ = {};
  }
}

TEST_F(ApplicationRunnerTest, TheRecordOfARunHasItsTimesAndItsLargestBatch) {
  runner_.start("whole", request_of(9, std::vector<std::byte>(2), at_ms(1000), ClientId{3}),
                at_ms(10), out_);
  const auto result = [](std::uint32_t batch_size, Duration executed) {
    ApplicationRunner::CallResult answer = result_of(std::byte{1}, executed);
    answer.batch_size = batch_size;
    return answer;
  };
  runner_.answered(only_call().id, result(1, milliseconds(3)), at_ms(100), out_);
  const std::vector<ModelToCall> calls = std::exchange(out_, {}).calls;
  ASSERT_EQ(calls.size(), 2U);
  runner_.answered(calls[0].id, result(4, milliseconds(4)), at_ms(200), out_);
  runner_.answered(calls[1].id, result(2, milliseconds(1)), at_ms(300), out_);
  runner_.answered(only_call().id, result(3, milliseconds(5)), at_ms(400), out_);
  ASSERT_EQ(out_.answers.size(), 1U);
  EXPECT_EQ(out_.answers[0].client, ClientId{3});
  EXPECT_EQ(out_.answers[0].reply.batch_size, 4U);
  const observe::RequestTraceRecord& record = out_.answers[0].record;
  EXPECT_EQ(record.model, "whole");
  EXPECT_TRUE(record.application);
  EXPECT_EQ(record.client, ClientId{3});
  EXPECT_EQ(record.tag, 9U);
  EXPECT_EQ(record.trace.arrived, at_ms(10));
  EXPECT_EQ(record.trace.answered, at_ms(400));
  EXPECT_EQ(record.trace.executed, milliseconds(12));
  EXPECT_EQ(record.trace.batch_size, 4U);
  EXPECT_EQ(record.due, at_ms(1000));
  EXPECT_EQ(record.outcome, StatusCode::ok);
}

TEST_F(ApplicationRunnerTest, AStageGetsItsPartOfTheRemainingTime) {
  runner_.start("whole", request_of(1, std::vector<std::byte>(2), at_ms(1000)), at_ms(0), out_);
  const ModelToCall first = only_call();  // middle, heavy and pair need 2, 3 and 1
  EXPECT_NEAR(to_ms(first.deadline - at_ms(0)), 333.33, 0.01);
  runner_.answered(first.id, result_of(std::byte{1}), at_ms(100), out_);
  EXPECT_NEAR(to_ms(out_.calls[0].deadline - at_ms(100)), 900 * 3.0 / 4.0, 0.01);
}

TEST_F(ApplicationRunnerTest, RepliesWithTheFirstFailureAndCancelsTheOtherCalls) {
  runner_.start("whole", request_of(1, std::vector<std::byte>(2), at_ms(1000)), at_ms(0), out_);
  runner_.answered(only_call().id, result_of(std::byte{1}), at_ms(1), out_);
  const ModelToCall a = out_.calls[0];
  const ModelToCall b = out_.calls[1];
  out_ = {};
  runner_.answered(b.id, {{StatusCode::too_late, "it was queued too long"}, {}, {}, 0}, at_ms(2),
                   out_);
  ASSERT_EQ(out_.answers.size(), 1U);
  EXPECT_EQ(out_.answers[0].reply.status.code(), StatusCode::too_late);
  EXPECT_TRUE(support::names(out_.answers[0].reply.status, "b"));
  ASSERT_EQ(out_.cancelled.size(), 1U);
  EXPECT_EQ(out_.cancelled[0].id, a.id);
  EXPECT_EQ(out_.cancelled[0].model, "heavy");
  out_ = {};
  runner_.answered(a.id, result_of(std::byte{1}), at_ms(3), out_);
  EXPECT_TRUE(out_.calls.empty() && out_.answers.empty());
  EXPECT_TRUE(runner_.idle());
  EXPECT_EQ(runner_.rows(at_ms(3))[0].counters.dropped, 1U);
}

TEST_F(ApplicationRunnerTest, RepliesAtTheDeadlineWhateverTheCallsDo) {
  ApplicationRunner::Request request = request_of(1, std::vector<std::byte>(2), at_ms(1000));
  request.answer_by = at_ms(1020);
  runner_.start("whole", std::move(request), at_ms(0), out_);
  runner_.answered(only_call().id, result_of(std::byte{1}), at_ms(1), out_);
  const std::vector<ModelToCall> calls = std::exchange(out_, {}).calls;
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(runner_.next_wake(), at_ms(1020) + Duration(1));
  runner_.answer_overdue(at_ms(1020), out_);
  EXPECT_TRUE(out_.answers.empty());
  runner_.answer_overdue(runner_.next_wake(), out_);
  ASSERT_EQ(out_.answers.size(), 1U);
  EXPECT_EQ(out_.answers[0].reply.status.code(), StatusCode::too_late);
  EXPECT_EQ(out_.cancelled.size(), 2U);
  EXPECT_TRUE(runner_.idle());
  EXPECT_EQ(runner_.next_wake(), kNever);
  const ModelCounters counters = runner_.rows(at_ms(1021))[0].counters;
  EXPECT_EQ(counters.dropped, 1U);
  EXPECT_EQ(counters.overdue, 1U);
  out_ = {};
  for (const ModelToCall& call : calls)
    runner_.answered(call.id, result_of(std::byte{1}), at_ms(1100), out_);
  EXPECT_TRUE(out_.calls.empty() && out_.answers.empty());
}

TEST_F(ApplicationRunnerTest, ARunThatCompletesAfterItsDeadlineIsTooLate) {
  ApplicationRunner::Request request = request_of(1, std::vector<std::byte>(2), at_ms(1000));
  request.answer_by = at_ms(1000);
  runner_.start("whole", std::move(request), at_ms(0), out_);
  runner_.answered(only_call().id, result_of(std::byte{1}), at_ms(1), out_);
  const std::vector<ModelToCall> calls = std::exchange(out_, {}).calls;
  for (const ModelToCall& call : calls)
    runner_.answered(call.id, result_of(std::byte{1}), at_ms(2), out_);
  runner_.answered(only_call().id, result_of(std::byte{1}), at_ms(1001), out_);
  ASSERT_EQ(out_.answers.size(), 1U);
  EXPECT_EQ(out_.answers[0].reply.status.code(), StatusCode::too_late);
  EXPECT_TRUE(runner_.idle());
}

TEST_F(ApplicationRunnerTest, RefusesRunsBeyondTheLimit) {
  for (std::uint64_t tag = 1; tag <= 3; ++tag)
    runner_.start("whole", request_of(tag, std::vector<std::byte>(2), at_ms(9)), at_ms(0), out_);
  ASSERT_EQ(out_.answers.size(), 1U);
  EXPECT_EQ(out_.answers[0].reply.tag, 3U);
  EXPECT_EQ(out_.answers[0].reply.status.code(), StatusCode::overloaded);
}

TEST_F(ApplicationRunnerTest, RunsInProgressKeepTheirGraph) {
  runner_.start("whole", request_of(1, std::vector<std::byte>(2), at_ms(1000)), at_ms(0), out_);
  const ModelToCall first = only_call();
  runner_.replace({}, at_ms(1));
  EXPECT_EQ(runner_.find("whole"), nullptr);
  EXPECT_TRUE(runner_.rows(at_ms(1)).empty());
  runner_.answered(first.id, result_of(std::byte{1}), at_ms(1), out_);
  EXPECT_EQ(out_.calls.size(), 2U);
  runner_.client_gone(ClientId{1}, out_);
  EXPECT_EQ(out_.cancelled.size(), 2U);
  EXPECT_TRUE(out_.answers.empty());
  EXPECT_TRUE(runner_.idle());
}

// ---- random events

// An acyclic graph in which every node is used.
ApplicationConfig any_graph(Random& random) {
  const std::size_t count = 1 + random.below(8);
  std::vector<ApplicationNode> nodes;
  std::vector<bool> used(count, false);
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<TensorSource> inputs;
    const std::size_t edges = 1 + random.below(3);
    for (std::size_t e = 0; e < edges; ++e) {
      const std::size_t from = random.below(i + 1);
      if (from == i) {
        inputs.push_back({std::nullopt, 0, {}});
      } else {
        inputs.push_back({from, 0, {}});
        used[from] = true;
      }
    }
    const char* const names[] = {"light", "middle", "heavy"};
    if (random.below(4) == 0) {  // a step, whose outputs the test makes up
      nodes.push_back({"n" + std::to_string(i),
                       config::Step(config::CropStep{}),
                       inputs,
                       {{"y", DataType::uint8, {1}}}});
    } else {
      nodes.push_back(model_node("n" + std::to_string(i), names[random.below(3)], inputs));
    }
  }
  std::vector<TensorSource> answered;
  for (std::size_t i = 0; i < count; ++i) {
    if (!used[i]) answered.push_back({i, 0, {}});
  }
  return graph_of(std::move(nodes), std::move(answered));
}

// Models that respond in any order, twice, or with failures.
struct RandomModels {
  ApplicationRunner runner{6};
  std::map<std::uint64_t, bool> open;  // requested calls and steps; true: a step
  std::set<std::uint64_t> cancelled;
  std::map<std::uint64_t, int> answers;  // by tag
  std::set<std::uint64_t> of_disconnected_clients;

  void collect(ApplicationOutput& out) {
    for (const ModelToCall& call : out.calls) RC_ASSERT(open.emplace(call.id, false).second);
    for (const StepToRun& step : out.steps) RC_ASSERT(open.emplace(step.id, true).second);
    for (const CallCancelled& call : out.cancelled) {
      RC_ASSERT(open.at(call.id) == false);
      cancelled.insert(call.id);
    }
    for (const ApplicationReply& answer : out.answers) {
      ++answers[answer.reply.tag];
      if (answer.reply.status.ok())
        RC_ASSERT(answer.reply.payload.size() == answer.reply.outputs.size());
    }
    out = {};
  }
  void answer_one(Random& random, Time now) {
    auto chosen = std::next(open.begin(), static_cast<std::ptrdiff_t>(random.below(open.size())));
    const auto [id, is_step] = *chosen;
    // Sometimes the result arrives twice.
    if (random.below(8) != 0) open.erase(chosen);
    ApplicationOutput out;
    const bool fails = random.below(10) == 0;
    const Status failure(StatusCode::unavailable, "the gpulet failed");
    if (is_step) {
      const std::vector<Tensor> outputs = {
          {{"y", DataType::uint8, {1}}, Bytes::own({std::byte{1}})}};
      runner.step_done(
          id, fails ? Result<std::vector<Tensor>>(failure) : Result<std::vector<Tensor>>(outputs),
          now, out);
    } else {
      runner.answered(
          id, fails ? ApplicationRunner::CallResult{failure, {}, {}, 0} : result_of(std::byte{1}),
          now, out);
    }
    collect(out);
  }
};

RC_GTEST_PROP(ApplicationProperty, EveryRequestOfAConnectedClientGetsOneReply, ()) {
  Random random(*rc::gen::arbitrary<std::uint64_t>());
  RandomModels world;
  world.runner.replace({made(any_graph(random))}, at_ms(0));
  std::uint64_t tags = 0;
  int time = 0;
  for (int event = 0; event < 120; ++event) {
    const Time now = at_ms(time += static_cast<int>(random.below(40)));
    ApplicationOutput out;
    const std::uint64_t kind = random.below(20);
    if (kind < 5 && world.runner.find("whole") != nullptr) {
      const std::uint64_t client = 1 + random.below(3);
      world.answers.emplace(++tags * 10 + client, 0);
      world.runner.start(
          "whole",
          request_of(tags * 10 + client, {std::byte{1}}, now + milliseconds(500), ClientId{client}),
          now, out);
    } else if (kind == 5) {
      const std::uint64_t client = 1 + random.below(3);
      for (const auto& [tag, count] : world.answers) {
        if (tag % 10 == client && count == 0) world.of_disconnected_clients.insert(tag);
      }
      world.runner.client_gone(ClientId{client}, out);
    } else if (kind == 6) {
      world.runner.replace({made(any_graph(random))}, now);
    } else if (!world.open.empty()) {
      world.answer_one(random, now);
    }
    world.collect(out);
  }
  while (!world.open.empty()) world.answer_one(random, at_ms(time += 1));
  RC_ASSERT(world.runner.idle());
  for (const auto& [tag, count] : world.answers)
    RC_ASSERT(count == (world.of_disconnected_clients.contains(tag) ? 0 : 1));
  const auto rows = world.runner.rows(at_ms(time));
  const ModelCounters& counters = rows.at(0).counters;
  RC_ASSERT(counters.offered == counters.served + counters.dropped + counters.failed);
  RC_ASSERT(counters.offered == tags);
}

}  // namespace
}  // namespace gpulet::serve::application_runner_test

// The engine in virtual time: frontend and backend cores together, as the daemons run them.
#include "gpulet/serve/frontend_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/names.h"
#include "tests/support/serve/traffic.h"

namespace gpulet::serve::frontend_core_test {
namespace {

using support::Names;
using support::names;
using testing::at_s;
using testing::byte_model;
using testing::card_profile;
using ::testing::Contains;
using testing::load;
using testing::outcome;
using testing::Outcome;
using testing::World;

TEST(FrontendCoreTest, ServesWithAPlanForTheConfiguredRates) {
  World world({}, {byte_model("a", 100, 50)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 1);
  world.run_until(at_s(2));
  EXPECT_EQ(world.status().state, "serving");
  const std::uint64_t end = load(world, "a", 50, 2, 12, 1, 7);
  world.run_until(at_s(14));
  const Outcome result = outcome(world, 1, end);
  EXPECT_TRUE(result.errors.empty());
  EXPECT_GT(result.good, 400U);
  EXPECT_EQ(world.status().models[0].counters.late, 0U);
}

TEST(FrontendCoreTest, TheFirstRequestOfAnUnplannedModelIsServed) {
  World world({}, {byte_model("a", 3000, 0)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 1);
  world.run_until(at_s(5));
  world.request_at(at_s(5), "a", 1);
  world.run_until(at_s(9));
  EXPECT_EQ(outcome(world, 1, 2).good, 1U);
}

TEST(FrontendCoreTest, ARateAboveThePlanIsPlannedForAtOnce) {
  World world({}, {byte_model("a", 100, 20)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 2);
  const std::uint64_t before = load(world, "a", 20, 2, 10, 1, 3);
  const std::uint64_t end = load(world, "a", 250, 10, 25, before, 4);
  world.run_until(at_s(10));
  const double planned_before = world.status().models[0].rate_planned;
  world.run_until(at_s(14));  // long before the period of 20 s is over
  EXPECT_GT(world.status().models[0].rate_planned, 2 * planned_before);
  world.run_until(at_s(30));
  const Outcome result = outcome(world, 1, end);
  EXPECT_GT(result.good, (end - 1) * 8 / 10);  // what is lost is lost in the seconds of the change
}

TEST(FrontendCoreTest, NoiseChangesNothing) {
  World world({}, {byte_model("a", 100, 40)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 1);
  const std::uint64_t end = load(world, "a", 40, 2, 120, 1, 5);
  world.run_until(at_s(10));
  const auto epoch = world.status().epoch;
  world.run_until(at_s(122));
  EXPECT_EQ(world.status().epoch, epoch);
  EXPECT_TRUE(outcome(world, 1, end).errors.empty());
}

// The less comes of a model, the more its rate seems to jump.
TEST(FrontendCoreTest, NoiseOfLowRatesChangesNothing) {
  World world({}, {byte_model("a", 200, 2), byte_model("b", 200, 8), byte_model("c", 100, 60)},
              card_profile({{"a", 4}, {"b", 4}, {"c", 2}}));
  world.add_backend("n0", 2);
  const std::uint64_t b = load(world, "a", 2, 2, 600, 1, 21);
  const std::uint64_t c = load(world, "b", 8, 2, 600, b, 22);
  const std::uint64_t end = load(world, "c", 60, 2, 600, c, 23);
  world.run_until(at_s(10));
  const auto epoch = world.status().epoch;
  world.run_until(at_s(602));
  EXPECT_EQ(world.status().epoch, epoch);
  EXPECT_LE(outcome(world, 1, end).errors.size(), (end - 1) / 200);
}

TEST(FrontendCoreTest, DevicesForALoadThatEndedAreGivenBack) {
  World world({}, {byte_model("a", 200, 100), byte_model("b", 200, 4)},
              card_profile({{"a", 4}, {"b", 4}}));
  world.add_backend("n0", 2);
  const std::uint64_t b = load(world, "a", 100, 2, 20, 1, 31);
  const std::uint64_t again = load(world, "a", 10, 20, 200, b, 32);
  load(world, "b", 4, 2, 10, again, 33);
  world.run_until(at_s(200));
  EXPECT_LT(world.status().models[0].rate_planned, 20);
  EXPECT_LE(world.status().models[1].rate_planned, 1.1);
}

TEST(FrontendCoreTest, ModelsThatShareOneDeviceKeepTheirObjectives) {
  World world({}, {byte_model("a", 120, 30), byte_model("b", 200, 20), byte_model("c", 300, 10)},
              card_profile({{"a", 4}, {"b", 6}, {"c", 9}}));
  world.add_backend("n0", 1);
  const std::uint64_t b = load(world, "a", 30, 2, 32, 1, 1);
  const std::uint64_t c = load(world, "b", 20, 2, 32, b, 2);
  const std::uint64_t end = load(world, "c", 10, 2, 32, c, 3);
  world.run_until(at_s(34));
  EXPECT_TRUE(world.status().schedulable);
  const Outcome result = outcome(world, 1, end);
  std::size_t late = 0;
  for (const ModelStatus& model : world.status().models) late += model.counters.late;
  EXPECT_LE(late + (end - 1 - result.good), (end - 1) / 50);
}

TEST(FrontendCoreTest, ALostProxyLosesNoRequest) {
  World world({}, {byte_model("a", 2000, 50)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 1);
  const std::uint64_t end = load(world, "a", 50, 2, 12, 1, 9);
  for (const double when : {4.0, 4.003, 7.5}) {
    world.run_until(at_s(when));
    world.kill_proxy("n0");
  }
  world.run_until(at_s(20));
  const Outcome result = outcome(world, 1, end);
  EXPECT_TRUE(
      result.errors.empty());  // the restart takes less than the SLO: all of them were run again
}

TEST(FrontendCoreTest, OtherBackendsTakeOverFromALostOne) {
  World world({}, {byte_model("a", 3000, 60)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 1);
  world.add_backend("n1", 1);
  const std::uint64_t end = load(world, "a", 60, 3, 15, 1, 11);
  world.run_until(at_s(6));
  const std::string served_by = world.status().gpulets.front().gpulet.device.node;
  world.kill_backend(served_by);
  world.run_until(at_s(20));
  const Outcome result = outcome(world, 1, end);
  EXPECT_TRUE(result.errors.empty());
  EXPECT_EQ(world.status().backends.size(), 1U);
}

TEST(FrontendCoreTest, OtherDevicesTakeOverFromALostOneUntilItIsBack) {
  World world({}, {byte_model("a", 3000, 60)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 2);
  const std::uint64_t end = load(world, "a", 60, 3, 15, 1, 11);
  world.run_until(at_s(6));
  const auto used = [&world] {
    std::set<std::uint32_t> devices;
    for (const auto& gpulet : world.status().gpulets) devices.insert(gpulet.gpulet.device.device);
    return devices;
  };
  ASSERT_FALSE(used().empty());
  const std::uint32_t lost = *used().begin();
  const Status fault(StatusCode::unavailable, "it fell off the bus");
  world.report_device_health("n0", lost, fault);
  world.run_until(at_s(20));
  EXPECT_EQ(used(), std::set{1 - lost});
  EXPECT_TRUE(outcome(world, 1, end).errors.empty());
  EXPECT_THAT(world.notes(), Contains(Names(fault.message())));
  EXPECT_EQ(world.status().backends.begin()->second.devices[lost].fault.message(),
            "it fell off the bus");

  world.report_device_health("n0", lost, {});
  world.report_device_health("n0", 1 - lost, {StatusCode::unavailable, "it is the other's turn"});
  world.run_until(at_s(30));
  EXPECT_EQ(used(), std::set{lost});
}

TEST(FrontendCoreTest, TheOnlyDeviceServesAgainWhenItIsBack) {
  World world({}, {byte_model("a", 100, 60)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 1);
  world.run_until(at_s(3));
  world.report_device_health("n0", 0, {StatusCode::unavailable, "it fell off the bus"});
  world.run_until(at_s(10));
  EXPECT_NE(world.model("a").state, ModelState::ready);
  world.report_device_health("n0", 0, {});
  world.run_until(at_s(15));
  EXPECT_EQ(world.model("a").state, ModelState::ready);
  const std::uint64_t end = load(world, "a", 50, 15, 17, 1, 7);
  world.run_until(at_s(19));
  EXPECT_TRUE(outcome(world, 1, end).errors.empty());
}

TEST(FrontendCoreTest, EveryRequestIsAnsweredWithoutABackend) {
  World world({}, {byte_model("a", 100, 10)}, card_profile({{"a", 4}}));
  const std::uint64_t end = load(world, "a", 50, 0, 2, 1, 1);
  world.run_until(at_s(4));
  const Outcome result = outcome(world, 1, end);
  EXPECT_EQ(result.good, 0U);
  ASSERT_GT(end, 1U);
  for (const auto& [tag, answers] : world.replies()) {
    ASSERT_EQ(answers.size(), 1U);
    EXPECT_EQ(answers[0].reply.status.code(), StatusCode::unavailable) << tag;
  }
  EXPECT_FALSE(world.frontend().serving());
  EXPECT_EQ(world.model("a").state, ModelState::unavailable);
}

TEST(FrontendCoreTest, IsReadyWhileABackendIsConnected) {
  World world({}, {byte_model("a", 100, 10), byte_model("asleep", 100, 0)},
              card_profile({{"a", 4}, {"asleep", 4}}));
  EXPECT_FALSE(world.status().ready);
  EXPECT_EQ(world.status().state, "starting");
  world.add_backend("n0", 1);
  world.run_until(at_s(3));
  EXPECT_TRUE(world.frontend().serving());
  EXPECT_EQ(world.model("asleep").state, ModelState::idle);

  world.kill_backend("n0");
  world.request_at(at_s(4), "a", 1);
  world.run_until(at_s(5));
  EXPECT_FALSE(world.frontend().serving());
  EXPECT_FALSE(world.status().ready);
  EXPECT_EQ(world.status().state, "unavailable");
  for (const char* const name : {"a", "asleep"}) {
    EXPECT_EQ(world.model(name).state, ModelState::unavailable);
    EXPECT_FALSE(world.model(name).reason.empty());
  }
  EXPECT_EQ(world.replies().at(1).at(0).reply.status.code(), StatusCode::unavailable);

  world.add_backend("n1", 1);
  world.run_until(at_s(8));
  EXPECT_TRUE(world.status().ready);
  EXPECT_EQ(world.status().state, "serving");
  world.report_device_health("n1", 0, {StatusCode::unavailable, "it is lost"});
  world.run_until(at_s(9));
  EXPECT_FALSE(world.status().ready) << "its only device cannot be used";
}

TEST(FrontendCoreTest, RequestsThatDoNotFitTheModelAreRefused) {
  FrontendCore core({}, {{byte_model("a", 100, 10)}, nullptr, nullptr}, at_s(0));
  const auto refused = [&](InferRequest request) {
    FrontendEffects effects;
    core.on(RequestReceived{ClientId{1}, std::move(request)}, at_s(0), effects);
    const auto* reply = effects.empty() ? nullptr : std::get_if<ReplyToClient>(&effects.front());
    return reply == nullptr ? Status() : reply->reply.status;
  };
  InferRequest good{
      1, "a", {}, {{"x", DataType::uint8, {1}}}, Bytes::own(std::vector<std::byte>(1))};

  InferRequest wrong = good;
  wrong.model = "b";
  EXPECT_EQ(refused(wrong).code(), StatusCode::not_found);
  wrong = good;
  wrong.inputs[0].shape = {2};
  EXPECT_EQ(refused(wrong).code(), StatusCode::invalid);
  EXPECT_TRUE(names(refused(wrong), "UINT8[2]"));
  wrong = good;
  wrong.inputs[0].type = DataType::fp32;
  EXPECT_EQ(refused(wrong).code(), StatusCode::invalid);
  wrong = good;
  wrong.inputs[0].name = "y";
  EXPECT_EQ(refused(wrong).code(), StatusCode::invalid);
  wrong = good;
  wrong.inputs.clear();
  EXPECT_EQ(refused(wrong).code(), StatusCode::invalid);
  wrong = good;
  wrong.payload = Bytes::own(std::vector<std::byte>(2));
  EXPECT_EQ(refused(wrong).code(), StatusCode::invalid);
  EXPECT_TRUE(refused(good).ok());
}

InferRequest one_byte(std::uint64_t tag) {
  return {tag, "a", {}, {{"x", DataType::uint8, {1}}}, Bytes::own(std::vector<std::byte>(1))};
}

TEST(FrontendCoreTest, RequestsBeyondTheInflightLimitsAreRefused) {
  for (const auto& [limits, name] : {std::pair{InflightLimits{.requests = 2}, "max_requests"},
                                     std::pair{InflightLimits{.bytes = 2}, "max_buffered_mb"}}) {
    FrontendOptions options;
    options.inflight = limits;
    FrontendCore core(options, {{byte_model("a", 100, 10)}, nullptr, nullptr}, at_s(0));
    const auto said = [&core](std::uint64_t client, std::uint64_t tag) {
      FrontendEffects effects;
      core.on(RequestReceived{ClientId{client}, one_byte(tag)}, at_s(0), effects);
      const auto* reply = effects.empty() ? nullptr : std::get_if<ReplyToClient>(&effects.front());
      return reply == nullptr ? Status() : reply->reply.status;
    };
    EXPECT_TRUE(said(1, 1).ok());
    EXPECT_TRUE(said(2, 2).ok());
    const Status refused = said(3, 3);
    EXPECT_EQ(refused.code(), StatusCode::overloaded);
    EXPECT_TRUE(names(refused, name));
    // A client that disconnects frees its part of the limits.
    FrontendEffects effects;
    core.on(ClientDisconnected{ClientId{1}}, at_s(0), effects);
    EXPECT_TRUE(said(3, 4).ok());
    EXPECT_FALSE(said(3, 5).ok());
  }
}

// Whatever becomes of requests, their places are given up with them.
TEST(FrontendCoreTest, AnsweredRequestsReleaseTheirPermits) {
  FrontendOptions options;
  options.inflight.requests = 40;
  World world(options, {byte_model("a", 100, 50)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 1);
  world.run_until(at_s(2));
  std::uint64_t end = load(world, "a", 50, 2, 8, 1, 7);
  world.run_until(at_s(4));
  world.kill_proxy("n0");
  world.run_until(at_s(6));
  world.kill_backend("n0");
  world.run_until(at_s(9));
  world.add_backend("n1", 1);
  world.run_until(at_s(14));
  const std::uint64_t begin = end;
  end = load(world, "a", 50, 15, 20, begin, 9);
  world.run_until(at_s(22));
  EXPECT_TRUE(outcome(world, begin, end).errors.empty());
}

TEST(FrontendCoreTest, ASecondBackendOfTheSameNameIsDisconnected) {
  FrontendCore core({}, {{byte_model("a", 100, 10)}, nullptr, nullptr}, at_s(0));
  FrontendEffects effects;
  core.on(BackendMessageReceived{BackendId{1}, Hello{"n0", {}, {}}}, at_s(0), effects);
  effects.clear();
  core.on(BackendMessageReceived{BackendId{2}, Hello{"n0", {}, {}}}, at_s(0), effects);
  ASSERT_FALSE(effects.empty());
  const auto* dropped = std::get_if<DisconnectBackend>(&effects.front());
  ASSERT_NE(dropped, nullptr);
  EXPECT_EQ(dropped->backend, BackendId{2});
}

TEST(FrontendCoreTest, ASilentBackendIsDisconnected) {
  FrontendCore core({}, {{byte_model("a", 100, 10)}, nullptr, nullptr}, at_s(0));
  FrontendEffects effects;
  core.on(BackendMessageReceived{BackendId{1}, Hello{"n0", {}, {}}}, at_s(0), effects);
  bool dropped = false;
  for (int i = 1; i <= 10; ++i) {
    effects.clear();
    core.on(Settle{}, at_s(0.5 * i), effects);
    dropped =
        dropped || std::any_of(effects.begin(), effects.end(), [](const FrontendEffect& effect) {
          return std::holds_alternative<DisconnectBackend>(effect);
        });
  }
  EXPECT_TRUE(dropped);
  EXPECT_TRUE(core.status(at_s(6)).backends.empty());
}

TEST(FrontendCoreTest, DrainAnswersPendingRequestsAndRefusesNewOnes) {
  World world({}, {byte_model("a", 1000, 50)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 1);
  const std::uint64_t end = load(world, "a", 50, 2, 6, 1, 2);
  world.drain_at(at_s(4));
  world.run_until(at_s(8));
  EXPECT_TRUE(world.drained());
  const Outcome result = outcome(world, 1, end);
  EXPECT_GT(result.good, 50U);
  ASSERT_EQ(result.errors.size(), 1U);
  EXPECT_EQ(result.errors.begin()->first, StatusCode::unavailable);
}

TEST(FrontendCoreTest, SameEventsGiveTheSameRun) {
  const auto run = [] {
    World world({}, {byte_model("a", 100, 50), byte_model("b", 150, 30)},
                card_profile({{"a", 4}, {"b", 5}}));
    world.add_backend("n0", 2);
    const std::uint64_t middle = load(world, "a", 80, 1, 10, 1, 21);
    load(world, "b", 60, 1, 10, middle, 22);
    world.run_until(at_s(5));
    world.kill_proxy("n0");
    world.run_until(at_s(13));
    std::string log;
    for (const auto& [tag, answers] : world.replies()) {
      for (const auto& answer : answers) {
        log += std::to_string(tag) + "@" + std::to_string(answer.time.time_since_epoch().count()) +
               ":" + answer.reply.status.to_string() + "/" +
               std::to_string(answer.reply.batch_size) + "\n";
      }
    }
    return log;
  };
  EXPECT_EQ(run(), run());
}

}  // namespace
}  // namespace gpulet::serve::frontend_core_test

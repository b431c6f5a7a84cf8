// Models that no process has loaded yet, in virtual time: whatever their first run does, what
// serves goes on, and other changes come into force.
#include "serve/adapt/trials.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "tests/support/serve/traffic.h"

namespace gpulet::serve::trials_test {
namespace {

using std::chrono::seconds;
using testing::at_s;
using testing::byte_model;
using testing::card_profile;
using testing::load;
using testing::outcome;
using testing::Outcome;
using testing::World;

// Within this time, other changes come into force beside a model that hangs.
constexpr double kOthersWithin = 10;
// Within this time, the load of a model that hangs ends.
constexpr double kEndsWithin = 90;

profile::Profile five_models() {
  return card_profile({{"a", 4}, {"b", 4}, {"c", 4}, {"new", 4}, {"other", 4}});
}

// Models a and b serve on two nodes, with requests from the first second on.
class Serving {
 public:
  explicit Serving(std::uint32_t devices = 1, double memory_mb = 0,
                   const profile::Profile& profile = five_models(), double rate = 60)
      : world({}, {byte_model("a", 100, rate), byte_model("b", 100, rate)}, profile) {
    world.add_backend("n0", devices, memory_mb);
    world.add_backend("n1", devices, memory_mb);
    world.run_until(at_s(5));
    EXPECT_EQ(world.model("a").state, ModelState::ready);
    EXPECT_EQ(world.model("b").state, ModelState::ready);
  }

  void request(double from_s, double to_s, double rate = 60) {
    tag = load(world, "a", rate, from_s, to_s, tag, 1);
    tag = load(world, "b", rate, from_s, to_s, tag, 2);
  }
  [[nodiscard]] std::vector<ServedModel> with(std::vector<ServedModel> more) const {
    std::vector<ServedModel> models{byte_model("a", 100, 60), byte_model("b", 100, 60)};
    models.insert(models.end(), more.begin(), more.end());
    return models;
  }
  // The fraction of the honest requests that failed.
  [[nodiscard]] double lost() {
    world.run_until(world.now() + seconds(2));  // for the last answers
    const Outcome seen = outcome(world, 1, tag);
    return 1 - static_cast<double>(seen.good) / static_cast<double>(tag - 1);
  }
  // The first time until which it holds; kNever: it does not, until then.
  template <typename Condition>
  [[nodiscard]] double seconds_until(const Condition& condition, double limit_s) {
    const Time began = world.now();
    while (world.now() < began + from_seconds(limit_s)) {
      if (condition()) return to_seconds(world.now() - began);
      world.run_until(world.now() + std::chrono::milliseconds(100));
    }
    return limit_s + 1;
  }

  World world;
  std::uint64_t tag = 1;
};

TEST(Trials, AModelThatNeverEndsItsFirstRunHarmsNobody) {
  Serving serving;
  World& world = serving.world;
  world.cluster().hang_while_loading("new");
  serving.request(5, 600);
  world.change_models_at(at_s(10), serving.with({byte_model("new", 100, 20)}), {"new"});
  world.run_until(at_s(11));
  const double ended = serving.seconds_until(
      [&] { return world.model("new").state == ModelState::unavailable; }, 200);
  EXPECT_LT(ended, kEndsWithin);
  EXPECT_FALSE(world.model("new").reason.empty());
  world.run_until(at_s(600));
  EXPECT_LT(serving.lost(), 0.002);
}

TEST(Trials, OtherLoadsComeIntoForceMeanwhile) {
  Serving serving;
  World& world = serving.world;
  world.cluster().hang_while_loading("new");
  serving.request(5, 80);
  world.change_models_at(at_s(10), serving.with({byte_model("new", 100, 20)}), {"new"});
  for (const double start_s : {10.5, 20.0, 50.0}) {
    world.run_until(at_s(start_s));
    const std::string name = start_s < 15 ? "c" : "other";
    const auto models = serving.with({byte_model("new", 100, 20), byte_model(name, 100, 20)});
    world.change_models_at(at_s(start_s), models, {name});
    world.run_until(at_s(start_s + 0.1));
    EXPECT_LT(
        serving.seconds_until([&] { return world.model(name).state == ModelState::ready; }, 60),
        kOthersWithin)
        << name << " at " << start_s;
  }
  world.run_until(at_s(80));
  EXPECT_LT(serving.lost(), 0.002);
}

TEST(Trials, SleepingModelsWakeAndRatesChangeMeanwhile) {
  FrontendOptions options;
  options.demands.idle_after = seconds(8);
  World world(options, {byte_model("a", 100, 60), byte_model("b", 100, 60)}, five_models());
  world.add_backend("n0", 3);
  world.add_backend("n1", 3);
  std::uint64_t tag = load(world, "a", 60, 2, 80, 1, 1);
  world.request_at(at_s(3), "b", 1'000'000);
  world.run_until(at_s(50));
  ASSERT_EQ(world.model("b").state, ModelState::idle);
  world.cluster().hang_while_loading("new");
  world.change_models_at(
      at_s(50), {byte_model("a", 100, 60), byte_model("b", 100, 60), byte_model("new", 100, 20)},
      {"new"});
  world.request_at(at_s(51), "b", 1'000'001, seconds(9));
  tag = load(world, "a", 700, 80, 100, tag, 3);
  world.run_until(at_s(61));
  ASSERT_EQ(world.replies().at(1'000'001).size(), 1U);
  EXPECT_TRUE(world.replies().at(1'000'001).front().reply.status.ok());
  world.run_until(at_s(102));
  EXPECT_TRUE(world.replies().at(tag - 1).front().reply.status.ok()) << "the rate was followed";
}

TEST(Trials, AVersionThatHangsLeavesTheServingOneAlone) {
  Serving serving;
  World& world = serving.world;
  world.cluster().hang_while_loading("a");
  serving.request(5, 200);
  std::vector<ServedModel> models = serving.with({});
  models[0].sha256 = "the-next-version";
  world.change_models_at(at_s(10), models, {"a"});
  world.run_until(at_s(11));
  EXPECT_LT(serving.seconds_until([&] { return world.model("a").next_refused; }, 200), kEndsWithin);
  EXPECT_EQ(world.model("a").version, version_of(byte_model("a", 100, 60)));
  world.run_until(at_s(200));
  EXPECT_LT(serving.lost(), 0.002);
}

TEST(Trials, AtTheStartAModelThatHangsDoesNotDelayTheOthers) {
  World world({},
              {byte_model("a", 100, 20), byte_model("b", 100, 20), byte_model("c", 100, 20),
               byte_model("new", 100, 20)},
              five_models());
  world.cluster().hang_while_loading("new");
  world.add_backend("n0", 1);
  world.add_backend("n1", 1);
  // Models that load together have 10 s, and 2 s each.
  world.run_until(at_s(kOthersWithin + 20));
  for (const char* const name : {"a", "b", "c"})
    EXPECT_EQ(world.model(name).state, ModelState::ready) << name;
  EXPECT_NE(world.model("new").state, ModelState::ready);
  world.run_until(at_s(kEndsWithin));
  EXPECT_EQ(world.model("new").state, ModelState::unavailable);
}

TEST(Trials, WithoutRoomAModelWaitsAndPushesNobodyOut) {
  profile::Profile profile = five_models();
  for (auto& [name, model] : profile.models) model.memory_mb = 60;
  Serving serving(1, 100, profile);  // one gpulet with one model for each node
  World& world = serving.world;
  world.cluster().hang_while_loading("new");
  serving.request(5, 150);
  world.change_models_at(at_s(10), serving.with({byte_model("new", 100, 20)}), {"new"});
  world.run_until(at_s(20));
  EXPECT_EQ(world.model("new").state, ModelState::unavailable);
  EXPECT_FALSE(world.model("new").reason.empty());
  world.run_until(at_s(150));
  EXPECT_LT(serving.lost(), 0.002);
}

// Room would not help a model that was never measured.
TEST(Trials, AModelThatNoDeviceCanServeHasThatReason) {
  const ServedModel unmeasured = byte_model("unmeasured", 100, 20);
  World alone({}, {unmeasured}, five_models());
  alone.add_backend("n0", 1);
  alone.run_until(at_s(5));
  Serving serving;
  World& world = serving.world;
  serving.request(5, 30);
  world.change_models_at(at_s(10), serving.with({unmeasured}), {"unmeasured"});
  world.run_until(at_s(20));
  EXPECT_EQ(world.model("unmeasured").state, ModelState::unavailable);
  EXPECT_FALSE(world.model("unmeasured").reason.empty());
  EXPECT_EQ(world.model("unmeasured").reason, alone.model("unmeasured").reason);
  world.run_until(at_s(30));
  EXPECT_LT(serving.lost(), 0.002);
}

TEST(Trials, AVersionForWhichMemoryHasNoRoomBesideTheServingOneWaits) {
  profile::Profile profile = five_models();
  for (auto& [name, model] : profile.models) model.memory_mb = 60;
  Serving serving(1, 100, profile);
  World& world = serving.world;
  world.cluster().hang_while_loading("a");
  serving.request(5, 150);
  std::vector<ServedModel> models = serving.with({});
  models[0].sha256 = "the-next-version";
  world.change_models_at(at_s(10), models, {"a"});
  world.run_until(at_s(150));
  EXPECT_EQ(world.model("a").version, version_of(byte_model("a", 100, 60)));
  EXPECT_LT(serving.lost(), 0.002);
}

struct Fifty {
  std::size_t ready = 0;
  std::size_t most_hanging = 0;  // at a time
  double lost = 0;
};

// Fifty models are added at once, of which every tenth hangs if `hangs`.
Fifty add_fifty(bool hangs) {
  std::map<std::string, double> times{{"a", 4}, {"b", 4}};
  std::vector<ServedModel> added;
  std::set<std::string> hanging;
  for (int i = 0; i < 50; ++i) {
    const std::string name = "m" + std::to_string(100 + i);
    times.emplace(name, 1);
    added.push_back(byte_model(name, 200, 1));
    if (hangs && i % 10 == 0) hanging.insert(name);
  }
  Serving serving(4, 0, card_profile(times), 30);
  World& world = serving.world;
  for (const std::string& name : hanging) world.cluster().hang_while_loading(name);
  serving.request(5, 180, 30);
  world.change_models_at(at_s(10), serving.with(added));
  Fifty result;
  for (double s = 10; s < 180; s += 0.5) {
    world.run_until(at_s(s));
    std::set<std::string> loading;
    for (const GpuletStatus& gpulet : world.status().gpulets) {
      if (gpulet.gpulet.state != GpuletState::preparing || gpulet.gpulet.retiring) continue;
      for (const schedule::RunningModel& model : gpulet.gpulet.models) {
        if (hanging.contains(model.name)) loading.insert(model.name);
      }
    }
    result.most_hanging = std::max(result.most_hanging, loading.size());
  }
  for (const ServedModel& one : added)
    result.ready += world.model(one.name).state == ModelState::ready ? 1U : 0U;
  result.lost = serving.lost();
  return result;
}

TEST(Trials, FiftyNewModelsAreTriedSomeAtATime) {
  const Fifty honest = add_fifty(false);
  const Fifty some_hang = add_fifty(true);
  EXPECT_EQ(honest.ready, 50U);
  EXPECT_EQ(some_hang.ready, 45U);
  EXPECT_LE(some_hang.most_hanging, 2 * kTrialsAtOnce) << "some of them are about to be retired";
  EXPECT_LT(some_hang.lost, honest.lost + 0.002);
}

TEST(Trials, ANodeThatNeverReportsItsGpuletsHoldsUpNobody) {
  Serving serving(2);
  World& world = serving.world;
  world.cluster().filter_messages([](const std::string& node, BackendMessage& message) {
    return node != "n1" || !std::holds_alternative<GpuletReport>(message);
  });
  serving.request(5, 120);
  world.change_models_at(at_s(10), serving.with({byte_model("c", 100, 400)}), {"c"});
  world.run_until(at_s(20));
  world.change_models_at(
      at_s(20), serving.with({byte_model("c", 100, 400), byte_model("other", 100, 10)}), {"other"});
  world.run_until(at_s(120));
  EXPECT_EQ(world.model("c").state, ModelState::ready);
  EXPECT_EQ(world.model("other").state, ModelState::ready);
  EXPECT_LT(serving.lost(), 0.002);
}

// ---- nodes whose batches fail

struct FailingCase {
  const char* name;
  bool (*change)(BackendMessage& message);
};

class FailingBatches : public ::testing::TestWithParam<FailingCase> {};

TEST_P(FailingBatches, TakeNoModelFromAHealthyNode) {
  World world({}, {byte_model("a", 100, 200), byte_model("b", 100, 60)}, five_models());
  world.add_backend("n0", 1);
  world.add_backend("n1", 1);
  world.run_until(at_s(5));
  std::string bad;
  for (const GpuletStatus& gpulet : world.status().gpulets) {
    const auto& models = gpulet.gpulet.models;
    if (std::any_of(models.begin(), models.end(), [](const auto& one) { return one.name == "a"; }))
      bad = gpulet.gpulet.device.node;
  }
  ASSERT_FALSE(bad.empty());
  world.cluster().filter_messages(
      [&, change = GetParam().change](const std::string& node, BackendMessage& message) {
        return node != bad || !std::holds_alternative<BatchResult>(message) || change(message);
      });
  const std::uint64_t early = load(world, "a", 200, 5, 25, 1, 1);
  const std::uint64_t end = load(world, "a", 200, 25, 60, early, 2);
  world.run_until(at_s(62));
  const Outcome late = outcome(world, early, end);
  EXPECT_GT(late.good, (end - early) * 95 / 100);
  EXPECT_EQ(late.errors.count(StatusCode::unavailable), 0U) << "no quarantine";
  EXPECT_EQ(world.model("a").state, ModelState::ready);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, FailingBatches,
    ::testing::Values(FailingCase{"WrongSize",
                                  [](BackendMessage& message) {
                                    std::get<BatchResult>(message).outputs =
                                        Bytes::own(std::vector<std::byte>(3));
                                    return true;
                                  }},
                      FailingCase{"InternalError",
                                  [](BackendMessage& message) {
                                    auto& result = std::get<BatchResult>(message);
                                    result.status = {StatusCode::internal, "it failed"};
                                    result.outputs = {};
                                    return true;
                                  }},
                      FailingCase{"Refusals",
                                  [](BackendMessage& message) {
                                    auto& result = std::get<BatchResult>(message);
                                    result.status = {StatusCode::unavailable, "not now"};
                                    result.outputs = {};
                                    return true;
                                  }},
                      FailingCase{"NoAnswer", [](BackendMessage&) { return false; }}),
    [](const auto& one) { return one.param.name; });

// Its processes end by signal 11 on one node, whatever the input.
class FailingProcesses : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(RealOrClaimed, FailingProcesses, ::testing::Bool());

TEST_P(FailingProcesses, OnOneNodePutNoModelIntoQuarantine) {
  World world({}, {byte_model("a", 100, 60)}, five_models());
  world.add_backend("n0", 1);
  world.add_backend("n1", 1);
  world.run_until(at_s(5));
  const std::string bad = world.status().gpulets.at(0).gpulet.device.node;
  if (GetParam()) {
    world.cluster().crash_every_batch_on(bad);
  } else {
    // The backend claims it, and does not say that its process serves again.
    world.cluster().filter_messages([&](const std::string& node, BackendMessage& message) {
      auto* const result = std::get_if<BatchResult>(&message);
      if (node != bad || result == nullptr) return true;
      result->status = {StatusCode::unavailable, "the process ended"};
      result->outputs = {};
      result->cause = FailureCause::model_crash;
      result->end.signal = 11;
      return true;
    });
  }
  const std::uint64_t early = load(world, "a", 60, 5, 40, 1, 1);
  const std::uint64_t end = load(world, "a", 60, 40, 90, early, 2);
  world.run_until(at_s(92));
  EXPECT_EQ(world.model("a").state, ModelState::ready);
  EXPECT_GT(outcome(world, early, end).good, (end - early) * 95 / 100);
}

// ---- models that hang

TEST(HangingModels, GetGpuletsOfTheirOwn) {
  World world({}, {byte_model("a", 3000, 5), byte_model("b", 3000, 5)},
              card_profile({{"a", 20}, {"b", 20}}));
  const auto together = [&world] {
    const FrontendStatus status = world.status();
    return std::any_of(status.gpulets.begin(), status.gpulets.end(), [](const auto& one) {
      return one.planned && one.planned->assignments.size() > 1;
    });
  };
  world.slow_on("a", std::byte{255}, std::chrono::minutes(5));
  world.add_backend("n0", 1);
  world.run_until(at_s(3));
  ASSERT_TRUE(together());
  world.request_at(at_s(3), "a", 255);
  world.run_until(at_s(20));
  EXPECT_FALSE(together());
  EXPECT_EQ(world.model("a").state, ModelState::ready);
  EXPECT_EQ(world.model("b").state, ModelState::ready);
}

}  // namespace
}  // namespace gpulet::serve::trials_test

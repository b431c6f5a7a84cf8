// Models that come, change and go while others are served; models that sleep and wake.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "gpulet/serve/values/served_model.h"
#include "tests/support/names.h"
#include "tests/support/serve/traffic.h"

namespace gpulet::serve::models_test {
namespace {

using std::chrono::seconds;
using support::names;
using testing::at_s;
using testing::byte_model;
using testing::card_profile;
using testing::World;

ServedModel version(const std::string& name, const std::string& hash, double slo_ms = 100,
                    double rate = 40) {
  ServedModel model = byte_model(name, slo_ms, rate);
  model.sha256 = hash;
  return model;
}

ServedModel with_other_output(ServedModel model) {
  model.outputs[0].shape = {1, 1};
  return with_sizes(model).value();
}

// One request every 20 ms. Returns the tag after the last.
std::uint64_t load(World& world, const std::string& model, double from_s, double to_s,
                   std::uint64_t tag) {
  for (double time = from_s; time < to_s; time += 0.02) world.request_at(at_s(time), model, tag++);
  return tag;
}

std::size_t served(const World& world, std::uint64_t first, std::uint64_t end) {
  std::size_t good = 0;
  for (std::uint64_t tag = first; tag < end; ++tag) {
    const auto found = world.replies().find(tag);
    const std::size_t answers = found == world.replies().end() ? 0 : found->second.size();
    EXPECT_EQ(answers, 1U) << "request " << tag;
    if (answers == 1 && found->second[0].reply.status.ok()) ++good;
  }
  return good;
}

InferReply reply(const World& world, std::uint64_t tag) {
  return world.replies().at(tag).front().reply;
}

std::size_t late(const World& world) {
  std::size_t sum = 0;
  for (const ModelStatus& model : world.status().models) sum += model.counters.late;
  return sum;
}

profile::Profile profile_of_three() { return card_profile({{"a", 4}, {"b", 4}, {"c", 4}}); }

// Whoever asks meanwhile does not wait for all of them.
TEST(ModelsWhileServing, HundredsOfChangesAreAppliedOverSeveralTurns) {
  const auto models = [](int first, int last, const std::string& hash) {
    std::vector<ServedModel> made;
    for (int i = first; i < last; ++i) made.push_back(version("m" + std::to_string(i), hash));
    return made;
  };
  FrontendCore core({}, {models(0, 200, "one"), nullptr, nullptr}, at_s(0));
  FrontendEffects effects;
  core.on(CatalogueChanged{{models(50, 250, "two"), nullptr, nullptr}, {}}, at_s(1), effects);
  ASSERT_TRUE(core.takes_in_catalogue());
  EXPECT_LE(core.next_wake(), at_s(1));
  int turns = 1;
  for (; core.takes_in_catalogue() && turns < 20; ++turns) core.on(Settle{}, at_s(1), effects);
  EXPECT_GE(turns, 4);
  EXPECT_LT(turns, 20);
  const ModelsReply told = core.models_after("", 200);
  ASSERT_EQ(told.models.size(), 200U);
  EXPECT_FALSE(told.more);
  for (const ModelInfo& model : told.models) {
    const bool is_new = model.name.size() > 3 && model.name >= "m200" && model.name < "m250";
    EXPECT_EQ(model.next.empty(), is_new) << model.name;
  }
  EXPECT_EQ(core.models({"m60", "m10", "m60"}).size(), 1U) << "m10 has gone";
}

TEST(ModelsWhileServing, UnloadedModelsAreKnownByName) {
  FrontendCore core({}, {{version("a", "one"), version("b", "one")}, nullptr, nullptr}, at_s(0));
  EXPECT_FALSE(core.is_unloaded("b"));
  EXPECT_EQ(core.status(at_s(0)).unloaded, nullptr);
  FrontendEffects effects;
  const auto names =
      std::make_shared<const std::vector<std::string>>(std::vector<std::string>{"b"});
  core.on(CatalogueChanged{{{version("a", "one")}, nullptr, nullptr, {}, names}, {}}, at_s(1),
          effects);
  while (core.takes_in_catalogue()) core.on(Settle{}, at_s(1), effects);
  EXPECT_TRUE(core.is_unloaded("b"));
  EXPECT_FALSE(core.is_unloaded("a"));
  EXPECT_FALSE(core.is_unloaded("c"));
  EXPECT_EQ(core.status(at_s(1)).unloaded, names);
}

TEST(ModelsWhileServing, PagesContainEveryModelOnceSortedByName) {
  std::vector<ServedModel> models;
  for (int i = 0; i < 25; ++i) models.push_back(version("m" + std::to_string(i), "one"));
  const FrontendCore core({}, {models, nullptr, nullptr}, at_s(0));
  std::vector<std::string> whole;
  for (const ModelInfo& model : core.models_after("", 100).models) whole.push_back(model.name);
  EXPECT_EQ(whole.size(), 25U);
  EXPECT_TRUE(std::is_sorted(whole.begin(), whole.end()));
  for (std::size_t most = 1; most <= 26; ++most) {
    std::vector<std::string> paged;
    for (bool more = true; more;) {
      const ModelsReply page = core.models_after(paged.empty() ? "" : paged.back(), most);
      ASSERT_FALSE(page.models.empty());
      ASSERT_LE(page.models.size(), most);
      for (const ModelInfo& model : page.models) paged.push_back(model.name);
      more = page.more;
    }
    EXPECT_EQ(paged, whole) << "pages of " << most;
  }
}

TEST(ModelsWhileServing, FileErrorsAreListedUntilTheyAreFixed) {
  const Catalogue good{{version("a", "a1"), version("b", "b1")}, nullptr, nullptr};
  FrontendCore core({}, good, at_s(0));
  FrontendEffects effects;
  const auto problems = [&core] { return core.models_after("", 1).problems; };
  EXPECT_TRUE(problems().empty());
  const Status wrong(StatusCode::invalid, "models.json: line 3, column 7: a comma");
  core.on(CatalogueRejected{wrong}, at_s(1), effects);
  core.on(CatalogueRejected{wrong}, at_s(2), effects);
  core.on(CatalogueRejected{{StatusCode::not_found, "no model c"}, true}, at_s(3), effects);
  EXPECT_EQ(problems(), std::vector<std::string>{wrong.message()});
  EXPECT_EQ(core.status(at_s(3)).file_problems, problems());
  EXPECT_EQ(effects.size(), 2U) << "the same is noted once";

  Catalogue lost = good;
  lost.faults = {"cpu/latency.csv: line 2: what?"};
  lost.kept_profiles = {{"b", "cpu"}};
  core.on(CatalogueChanged{lost, {}}, at_s(4), effects);
  EXPECT_EQ(problems(), lost.faults);

  core.on(CatalogueChanged{good, {}}, at_s(5), effects);
  EXPECT_TRUE(problems().empty());
}

TEST(ModelsWhileServing, AModelThatAProfileLostKeepsServingWithAWarning) {
  World world({}, {version("a", "a1"), version("b", "b1")}, profile_of_three());
  world.add_backend("n0", 2);
  world.run_until(at_s(5));
  EXPECT_EQ(world.model("b").reason, "");
  Catalogue lost{{version("a", "a1"), version("b", "b1")}, nullptr, nullptr};
  lost.kept_profiles = {{"b", "card"}};
  const std::size_t noted = world.notes().size();
  world.inject(CatalogueChanged{lost, {}});
  world.run_until(at_s(8));
  EXPECT_EQ(world.model("b").state, ModelState::ready);
  EXPECT_NE(world.model("b").reason, "");
  EXPECT_EQ(world.model("a").reason, "");
  EXPECT_GT(world.notes().size(), noted);
}

TEST(ModelsWhileServing, ALoadIsDecidedWhenThePlanIncludesTheChange) {
  World world({}, {version("a", "a1"), version("b", "b1")}, profile_of_three());
  world.add_backend("n0", 2);
  world.run_until(at_s(5));
  const std::string wanted = wanted_version(world.model("a"));
  const auto outcome = [&] { return outcome_of_load(world.model("a"), wanted); };
  ASSERT_TRUE(outcome().has_value());
  EXPECT_TRUE(outcome()->serves);

  world.change_models_at(at_s(6), {version("a", "a1", 1), version("b", "b1")}, {"a"});
  world.run_until(at_s(6.0005));
  EXPECT_EQ(world.model("a").state, ModelState::ready);
  EXPECT_FALSE(outcome().has_value()) << "it serves until the next plan";
  world.run_until(at_s(10));
  ASSERT_TRUE(outcome().has_value());
  EXPECT_FALSE(outcome()->serves);
  EXPECT_EQ(outcome()->text, world.model("a").reason);

  world.change_models_at(at_s(11), {version("a", "a1"), version("b", "b1")}, {"a"});
  world.run_until(at_s(16));
  ASSERT_TRUE(outcome().has_value());
  EXPECT_TRUE(outcome()->serves) << outcome()->text;
}

TEST(ModelsWhileServing, AnAddedModelDoesNotAffectOthers) {
  World world({}, {version("a", "a1")}, profile_of_three());
  world.add_backend("n0", 2);
  const std::uint64_t end = load(world, "a", 2, 20, 1);
  world.change_models_at(at_s(6), {version("a", "a1"), version("b", "b1")});
  const std::uint64_t last = load(world, "b", 10, 20, end);
  world.run_until(at_s(22));
  EXPECT_EQ(served(world, 1, last), last - 1);
  EXPECT_EQ(late(world), 0U);
  EXPECT_EQ(world.model("b").state, ModelState::ready);
}

TEST(ModelsWhileServing, AnUpdateTakesOverWithoutLossOrDelay) {
  World world({}, {version("a", "a1"), version("b", "b1")}, profile_of_three());
  world.add_backend("n0", 2);
  const std::uint64_t end = load(world, "a", 2, 20, 1);
  world.change_models_at(at_s(8), {version("a", "a2"), version("b", "b1")});
  world.run_until(at_s(8.2));
  EXPECT_EQ(world.model("a").version.substr(0, 2), "a1");
  EXPECT_NE(world.model("a").next, "");
  world.run_until(at_s(22));
  EXPECT_EQ(served(world, 1, end), end - 1);
  EXPECT_EQ(late(world), 0U);
  EXPECT_EQ(world.model("a").version.substr(0, 2), "a2");
  EXPECT_EQ(world.model("a").next, "");
  EXPECT_EQ(world.status().models[0].counters.offered, end - 1) << "the counters go on";
  for (const GpuletStatus& gpulet : world.status().gpulets) {
    for (const auto& loaded : gpulet.gpulet.models) EXPECT_NE(loaded.version.substr(0, 2), "a1");
  }
}

TEST(ModelsWhileServing, EachRequestIsAnsweredByItsVersionIfTensorsChange) {
  const ServedModel before = version("a", "a1");
  const ServedModel after = with_other_output(version("a", "a2"));
  World world({}, {before}, profile_of_three());
  world.add_backend("n0", 1);
  const std::uint64_t end = load(world, "a", 2, 20, 1);
  world.change_models_at(at_s(8), {after});
  world.run_until(at_s(22));
  EXPECT_GE(served(world, 1, end), end - 2);
  EXPECT_EQ(reply(world, 1).outputs, before.outputs);
  EXPECT_EQ(reply(world, end - 1).outputs, after.outputs);
}

TEST(ModelVersions, OtherLimitsOfStringsAreAnotherVersion) {
  ServedModel model = version("a", "a1");
  model.inputs = {{"x", DataType::bytes, {1}, 20}};
  const std::string before = version_of(model);
  model.inputs[0].max_bytes = 21;
  EXPECT_NE(version_of(model), before);
}

TEST(ModelVersions, AnotherConversionIsAnotherVersion) {
  ServedModel model = version("a", "a1");
  model.inputs = {{"x", DataType::uint8, {3, 4, 4}}};
  const std::string plain = version_of(model);
  model.inputs[0].conversion = InputConversion{};
  const std::string converted = version_of(model);
  EXPECT_NE(converted, plain);
  EXPECT_EQ(version_of(model), converted);
  model.inputs[0].conversion->mean = {0.5, 0.5, 0.5};
  EXPECT_NE(version_of(model), converted);
}

TEST(ModelVersions, OtherNumericsAreAnotherVersion) {
  const ServedModel plain = version("a", "a1");
  ServedModel other = plain;
  EXPECT_EQ(version_of(other), version_of(plain));
  other.numerics.precision = Precision::half;
  const std::string half = version_of(other);
  EXPECT_NE(half, version_of(plain));
  other.numerics.channels_last = true;
  const std::string last = version_of(other);
  EXPECT_NE(last, half);
  other.numerics.largest_error = 0.5;
  EXPECT_NE(version_of(other), last);
}

TEST(ModelsWhileServing, AFaultyVersionIsRefusedAndTheOldOneKeepsServing) {
  World world({}, {version("a", "a1"), version("b", "b1")}, profile_of_three());
  world.add_backend("n0", 2);
  const std::uint64_t end = load(world, "a", 2, 30, 1);
  const std::uint64_t last = load(world, "b", 2, 30, end);
  world.run_until(at_s(7));
  const Status failure(StatusCode::invalid, "model 'a': is not a TorchScript file");
  world.set_load_failure("a", failure);
  world.change_models_at(at_s(8), {version("a", "bad"), version("b", "b1")});
  world.run_until(at_s(32));
  EXPECT_EQ(served(world, 1, last), last - 1);
  EXPECT_EQ(late(world), 0U);
  const ModelInfo model = world.model("a");
  EXPECT_EQ(model.state, ModelState::ready);
  EXPECT_EQ(model.version.substr(0, 2), "a1");
  EXPECT_TRUE(model.next_refused);
  EXPECT_TRUE(names(model.reason, failure.message()));
  EXPECT_FALSE(world.status().reorganising);

  world.set_load_failure("a", {});
  world.change_models_at(at_s(33), {version("a", "a3"), version("b", "b1")});
  world.run_until(at_s(40));
  EXPECT_EQ(world.model("a").version.substr(0, 2), "a3");
}

TEST(ModelsWhileServing, AFaultyNewModelDoesNotAffectOthers) {
  World world({}, {version("a", "a1")}, profile_of_three());
  world.add_backend("n0", 1);
  const std::uint64_t end = load(world, "a", 2, 20, 1);
  const Status failure(StatusCode::invalid, "model 'b': is not a TorchScript file");
  world.set_load_failure("b", failure);
  world.change_models_at(at_s(6), {version("a", "a1"), version("b", "b1")});
  world.request_at(at_s(15), "b", end);
  world.run_until(at_s(22));
  EXPECT_EQ(served(world, 1, end), end - 1);
  EXPECT_EQ(late(world), 0U);
  EXPECT_EQ(world.model("b").state, ModelState::unavailable);
  EXPECT_EQ(reply(world, end).status.code(), StatusCode::unavailable);
  EXPECT_TRUE(names(reply(world, end).status, failure.message()));

  world.set_load_failure("b", {});
  world.change_models_at(at_s(23), {version("a", "a1"), version("b", "b1")}, {"b"});
  world.run_until(at_s(28));
  EXPECT_EQ(world.model("b").state, ModelState::ready) << "asked for again by hand";
}

TEST(ModelsWhileServing, ARemovedModelAnswersItsPendingRequests) {
  World world({}, {version("a", "a1"), version("b", "b1", 1000)}, profile_of_three());
  world.add_backend("n0", 2);
  const std::uint64_t b = load(world, "a", 2, 20, 1);
  const std::uint64_t end = load(world, "b", 2, 10, b);
  world.change_models_at(at_s(8), {version("a", "a1")});
  world.run_until(at_s(22));
  EXPECT_EQ(served(world, 1, b), b - 1);
  EXPECT_GE(served(world, b, end), 295U) << "all that came before";
  EXPECT_EQ(reply(world, end - 1).status.code(), StatusCode::not_found);
  EXPECT_EQ(world.frontend().models_after("", 100'000).models.size(), 1U);
  for (const GpuletStatus& gpulet : world.status().gpulets) {
    for (const auto& loaded : gpulet.gpulet.models) EXPECT_EQ(loaded.name, "a");
  }
}

TEST(ModelsWhileServing, ThousandsOfReloadsLeakNothing) {
  World world({}, {version("a", "a0")}, profile_of_three());
  world.add_backend("n0", 1);
  const std::uint64_t end = load(world, "a", 2, 66, 1);
  for (int i = 1; i <= 3000; ++i) {
    const std::string hash = "a" + std::to_string(i);
    std::vector<ServedModel> models{version("a", hash)};
    if (i % 3 == 0) models.push_back(version("b", hash));
    world.change_models_at(at_s(3 + 0.02 * i), models);
  }
  world.run_until(at_s(80));
  EXPECT_EQ(served(world, 1, end), end - 1);
  EXPECT_EQ(world.model("a").version.substr(0, 5), "a3000");
  EXPECT_LE(world.frontend().model_slots(), 16U);
}

TEST(SleepingModels, ReleaseTheirGpuletAndWakeAtTheNextRequest) {
  FrontendOptions options;
  options.demands.idle_after = seconds(30);
  World world(options, {version("a", "a1"), version("b", "b1")}, profile_of_three());
  world.add_backend("n0", 2);
  std::uint64_t end = load(world, "a", 2, 120, 1);
  end = load(world, "b", 2, 5, end);
  world.run_until(at_s(100));
  EXPECT_EQ(world.model("b").state, ModelState::idle);
  for (const GpuletStatus& gpulet : world.status().gpulets) {
    for (const auto& loaded : gpulet.gpulet.models) EXPECT_NE(loaded.name, "b");
  }
  // Far beyond its SLO of 100 ms, but within the bound of ten seconds; and counted as late.
  for (int i = 0; i < 5; ++i) world.request_at(at_s(101 + 0.1 * i), "b", end++);
  world.run_until(at_s(122));
  EXPECT_EQ(served(world, 1, end), end - 1);
  EXPECT_EQ(world.model("b").state, ModelState::ready);
  EXPECT_EQ(world.status().models[1].counters.late, 5U);
  EXPECT_EQ(world.status().models[0].counters.late, 0U);
}

TEST(SleepingModels, ARequestIsRefusedIfTheModelDoesNotWakeInTime) {
  FrontendOptions options;
  options.wake_within = seconds(3);
  simulate::VirtualTimings slow;
  slow.process_start = seconds(60);
  World world(options, {version("a", "a1", 100, 0)}, profile_of_three(), slow);
  world.add_backend("n0", 1);
  world.request_at(at_s(2), "a", 1);
  world.run_until(at_s(4.9));
  EXPECT_TRUE(world.replies().empty());
  world.run_until(at_s(5.2));
  EXPECT_EQ(reply(world, 1).status.code(), StatusCode::too_late);
  EXPECT_EQ(world.status().models[0].counters.dropped, 1U);
}

// Random catalogues, failures, deaths and requests: one answer each, and in the end what was asked
// for serves.
RC_GTEST_PROP(ModelsProperty, EveryRequestIsAnsweredOnce, ()) {
  FrontendOptions options;
  options.demands.idle_after = seconds(4);
  options.wake_within = seconds(2);
  options.backoff = seconds(3);
  World world(options, {version("a", "a0")}, profile_of_three());
  world.add_backend("n0", 1);
  world.add_backend("n1", 1);
  const std::vector<std::string> names{"a", "b", "c"};
  std::uint64_t tag = 1;
  const int steps = *rc::gen::inRange(1, 25);
  for (int step = 0; step < steps; ++step) {
    const Time now = world.now();
    switch (*rc::gen::inRange(0, 5)) {
      case 0: {
        std::vector<ServedModel> models;
        std::vector<std::string> asked_for;
        for (const std::string& name : names) {
          if (*rc::gen::inRange(0, 4) == 0) continue;
          ServedModel model = version(name, name + std::to_string(*rc::gen::inRange(0, 3)),
                                      *rc::gen::inRange(30, 300), *rc::gen::inRange(0, 30));
          if (*rc::gen::inRange(0, 3) == 0) model = with_other_output(model);
          models.push_back(model);
          if (*rc::gen::inRange(0, 4) == 0) asked_for.push_back(name);
        }
        world.change_models_at(now, models, asked_for);
        break;
      }
      case 1: {
        const auto code = *rc::gen::element(StatusCode::ok, StatusCode::invalid,
                                            StatusCode::unavailable, StatusCode::internal);
        world.set_load_failure(*rc::gen::elementOf(names), code == StatusCode::ok
                                                               ? Status()
                                                               : Status(code, "as the test says"));
        break;
      }
      case 2:
        world.kill_proxy(*rc::gen::element(std::string("n0"), std::string("n1")));
        break;
      default: {
        const std::string name = *rc::gen::elementOf(names);
        const int count = *rc::gen::inRange(1, 30);
        for (int i = 0; i < count; ++i) {
          world.request_at(now + from_seconds(0.01 * i), name, tag++,
                           from_seconds(*rc::gen::inRange(0, 3) * 0.1));
        }
        break;
      }
    }
    world.run_until(now + from_seconds(*rc::gen::inRange(0, 300) * 0.01));
  }
  for (const std::string& name : names) world.set_load_failure(name, {});
  world.change_models_at(world.now(), {version("a", "last"), version("b", "last", 200, 5)},
                         {"a", "b"});
  // Until they have taken over, also from a process that is being restarted: what waits for a
  // version with other tensors is sent away.
  world.run_until(world.now() + seconds(15));
  world.request_at(world.now(), "a", tag++, seconds(8));
  world.request_at(world.now(), "b", tag++, seconds(8));
  world.run_until(world.now() + seconds(15));
  RC_ASSERT(world.replies().size() == tag - 1);
  for (const auto& [number, replies] : world.replies()) RC_ASSERT(replies.size() == 1U);
  RC_ASSERT(world.replies().at(tag - 2).front().reply.status.ok());
  RC_ASSERT(world.replies().at(tag - 1).front().reply.status.ok());
  RC_ASSERT(world.model("a").version.substr(0, 4) == "last");
  RC_ASSERT(world.frontend().model_slots() <= 24U);
}

}  // namespace
}  // namespace gpulet::serve::models_test

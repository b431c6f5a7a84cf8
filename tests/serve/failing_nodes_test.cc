// Nodes and devices where gpulets fail, beside healthy ones: models move, versions are not refused,
// and what serves goes on.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "tests/support/names.h"
#include "tests/support/serve/traffic.h"

namespace gpulet::serve::failing_nodes_test {
namespace {

using std::chrono::seconds;
using support::names;
using testing::at_s;
using testing::byte_model;
using testing::card_profile;
using testing::was_told;
using testing::World;

const Status kFull(StatusCode::unavailable, "cannot write the store: No space left on device");
const Status kCrashed(StatusCode::unavailable, "was killed by signal 11");

ServedModel version(const std::string& name, const std::string& hash, double rate = 40) {
  ServedModel model = byte_model(name, 100, rate);
  model.sha256 = hash;
  return model;
}

profile::Profile three_models() { return card_profile({{"a", 4}, {"b", 4}, {"c", 4}}); }

// One request every 20 ms. Returns the tag after the last.
std::uint64_t load(World& world, const std::string& model, double from_s, double to_s,
                   std::uint64_t tag) {
  for (double time = from_s; time < to_s; time += 0.02) world.request_at(at_s(time), model, tag++);
  return tag;
}

std::size_t served(const World& world, std::uint64_t first, std::uint64_t end) {
  return testing::outcome(world, first, end).good;
}

// The nodes that serve a model.
std::set<std::string> nodes_of(const World& world, const std::string& model) {
  std::set<std::string> nodes;
  for (const schedule::PlannedGpulet& gpulet : world.frontend().plan().gpulets) {
    for (const schedule::Assignment& one : gpulet.assignments)
      if (one.model == model) nodes.insert(gpulet.device.node);
  }
  return nodes;
}

TEST(FailingNode, TheHealthyNodeServesANewVersionWithoutLoss) {
  World world({}, {version("a", "a1"), version("b", "b1")}, three_models());
  world.add_backend("n0", 1);
  world.add_backend("n1", 1);
  const std::uint64_t b = load(world, "a", 2, 60, 1);
  const std::uint64_t end = load(world, "b", 2, 60, b);
  world.run_until(at_s(7));
  ASSERT_EQ(nodes_of(world, "a"), std::set<std::string>{"n0"});
  world.set_load_failure_on("n0", "a", kFull, FailureCause::node_disk);
  world.change_models_at(at_s(8), {version("a", "a2"), version("b", "b1")});
  world.run_until(at_s(13));
  EXPECT_EQ(world.model("a").version.substr(0, 2), "a2") << "at once, not after a pause";
  world.run_until(at_s(62));
  EXPECT_EQ(served(world, 1, end), end - 1);
  EXPECT_EQ(nodes_of(world, "a"), std::set<std::string>{"n1"});
  EXPECT_FALSE(world.model("a").next_refused);
}

TEST(FailingNode, TheHealthyNodeServesANewModel) {
  World world({}, {version("a", "a1")}, three_models());
  world.set_load_failure_on("n0", "a", kFull, FailureCause::node_disk);
  world.set_load_failure_on("n0", "b", kFull, FailureCause::node_disk);
  world.add_backend("n0", 1);
  world.add_backend("n1", 1);
  world.run_until(at_s(5));
  const std::uint64_t end = load(world, "a", 5, 40, 1);
  world.run_until(at_s(42));
  EXPECT_EQ(served(world, 1, end), end - 1);
  EXPECT_EQ(world.model("a").state, ModelState::ready);
}

TEST(FailingNode, TheExclusionHasTheOriginalErrorAndAGrowingPause) {
  World world({}, {version("a", "a1"), version("b", "b1")}, three_models());
  world.set_load_failure_on("n0", "b", kFull, FailureCause::node_disk);
  world.add_backend("n0", 1);
  world.run_until(at_s(6));
  const std::vector<Exclusion> first = world.status().exclusions;
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].node, "n0");
  EXPECT_FALSE(first[0].device.has_value());
  EXPECT_EQ(first[0].cause, FailureCause::node_disk);
  EXPECT_EQ(first[0].error.code(), kFull.code());
  EXPECT_TRUE(names(world.model("b").reason, kFull.message()));
  EXPECT_FALSE(world.model("b").next_refused);
  EXPECT_EQ(world.model("a").state, ModelState::ready) << "planned into the same gpulet";
  world.request_at(at_s(6), "b", 1);
  world.run_until(at_s(6.05));
  ASSERT_EQ(world.replies().count(1), 1U) << "answered at once, not at its deadline";
  const Status told = world.replies().at(1)[0].reply.status;
  EXPECT_EQ(told.code(), StatusCode::unavailable);
  EXPECT_TRUE(names(told, kFull.message()));

  world.run_until(at_s(60));
  ASSERT_EQ(world.status().exclusions.size(), 1U);
  EXPECT_GE(world.status().exclusions[0].failures, 3U);
  EXPECT_LE(world.status().exclusions[0].failures, 5U);

  world.set_load_failure_on("n0", "b", {}, FailureCause::unknown);
  world.run_until(at_s(160));
  EXPECT_TRUE(world.status().exclusions.empty());
  EXPECT_EQ(world.model("b").state, ModelState::ready);
  EXPECT_EQ(world.model("b").reason, "");
}

TEST(FailingNode, TheOnlyNodeKeepsServing) {
  World world({}, {version("a", "a1")}, three_models());
  world.add_backend("n0", 2);
  const std::uint64_t end = load(world, "a", 2, 60, 1);
  world.set_load_failure_on("n0", "b", kFull, FailureCause::node_disk);
  world.change_models_at(at_s(8), {version("a", "a1"), version("b", "b1")});
  world.run_until(at_s(30));
  EXPECT_EQ(world.model("b").state, ModelState::unavailable);
  world.set_load_failure_on("n0", "a", kFull, FailureCause::node_disk);
  world.change_models_at(at_s(31), {version("a", "a2"), version("b", "b1")});
  world.run_until(at_s(62));
  EXPECT_EQ(served(world, 1, end), end - 1);
  EXPECT_EQ(world.model("a").version.substr(0, 2), "a1") << "until the new one can be made";
  EXPECT_FALSE(world.model("a").next_refused);
}

TEST(FailingNode, AFileThatLoadedElsewhereIsNotRefused) {
  World world({}, {version("a", "a1")}, three_models());
  world.add_backend("n1", 1);
  world.run_until(at_s(5));
  world.set_load_failure_on("n0", "a", {StatusCode::invalid, "is no TorchScript file"},
                            FailureCause::model_file);
  world.add_backend("n0", 1);
  world.run_until(at_s(6));
  world.stop_backend("n1");
  world.run_until(at_s(20));
  EXPECT_EQ(world.model("a").state, ModelState::unavailable);
  EXPECT_FALSE(world.status().failures.contains(FailureCause::model_file));
  ASSERT_EQ(world.status().exclusions.size(), 1U);
  EXPECT_EQ(world.status().exclusions[0].cause, FailureCause::node_store);
  world.add_backend("n2", 1);
  world.run_until(at_s(25));
  EXPECT_EQ(world.model("a").state, ModelState::ready);
}

TEST(UnknownFailure, AnotherNodeIsTriedBeforeTheVersionIsRefused) {
  World world({}, {version("a", "a1"), version("b", "b1")}, three_models());
  world.add_backend("n0", 1);
  world.add_backend("n1", 1);
  const std::uint64_t end = load(world, "b", 2, 40, 1);
  world.run_until(at_s(7));
  world.set_load_failure_on("n0", "a", kCrashed, FailureCause::model_crash);
  world.change_models_at(at_s(8), {version("a", "a2"), version("b", "b1")});
  world.run_until(at_s(20));
  EXPECT_EQ(world.model("a").version.substr(0, 2), "a2");
  EXPECT_FALSE(world.model("a").next_refused);

  world.set_load_failure_on("n0", "a", {}, FailureCause::unknown);
  world.set_load_failure_on("n0", "c", kCrashed, FailureCause::model_crash);
  world.set_load_failure_on("n1", "c", kCrashed, FailureCause::model_crash);
  world.change_models_at(at_s(21), {version("a", "a2"), version("b", "b1"), version("c", "c1", 5)});
  world.run_until(at_s(42));
  EXPECT_EQ(world.model("c").state, ModelState::unavailable);
  EXPECT_TRUE(names(world.model("c").reason, kCrashed.message()));
  EXPECT_TRUE(world.status().failures.contains(FailureCause::model_crash));
  EXPECT_TRUE(world.status().exclusions.empty()) << "the model was to blame";
  EXPECT_EQ(served(world, 1, end), end - 1);
}

TEST(FaultyFile, OnlyItsModelIsRefused) {
  World world({}, {version("a", "a1", 5), version("b", "b1", 5), version("c", "c1", 5)},
              three_models());
  world.set_load_failure("b", {StatusCode::invalid, "is no TorchScript file"});
  world.add_backend("n0", 1);
  world.run_until(at_s(8));
  EXPECT_EQ(world.model("a").state, ModelState::ready);
  EXPECT_EQ(world.model("b").state, ModelState::unavailable);
  EXPECT_EQ(world.model("c").state, ModelState::ready);
  EXPECT_FALSE(world.model("a").next_refused);
  EXPECT_FALSE(world.model("c").next_refused);
  EXPECT_TRUE(world.status().exclusions.empty());
}

// Whatever fails for a machine's sake, no version is refused; and once the machines work again,
// everything is served.
RC_GTEST_PROP(FailingNodesProperty, MachineFailuresNeverRefuseAVersion, ()) {
  FrontendOptions options;
  options.exclusions.first = seconds(1);
  options.exclusions.longest = seconds(4);
  const std::vector<std::string> names{"a", "b", "c"};
  const std::vector<std::string> nodes{"n0", "n1", "n2"};
  World world(options, {version("a", "a0", 20), version("b", "b0", 20)}, three_models());
  for (const std::string& node : nodes) world.add_backend(node, 1);
  std::uint64_t tag = 1;
  const int steps = *rc::gen::inRange(1, 15);
  for (int step = 0; step < steps; ++step) {
    const Time now = world.now();
    switch (*rc::gen::inRange(0, 3)) {
      case 0: {
        const auto cause = *rc::gen::element(FailureCause::node_disk, FailureCause::node_store,
                                             FailureCause::node_spawn, FailureCause::node_memory,
                                             FailureCause::node_cgroup, FailureCause::device);
        const bool works = *rc::gen::inRange(0, 3) == 0;
        world.set_load_failure_on(*rc::gen::elementOf(nodes), *rc::gen::elementOf(names),
                                  works ? Status() : kFull, cause);
        break;
      }
      case 1: {
        std::vector<ServedModel> models;
        for (const std::string& name : names) {
          if (*rc::gen::inRange(0, 4) == 0) continue;
          models.push_back(version(name, name + std::to_string(*rc::gen::inRange(0, 3)), 20));
        }
        world.change_models_at(now, models);
        break;
      }
      default:
        for (int i = 0; i < 10; ++i)
          world.request_at(now + from_seconds(0.05 * i), *rc::gen::elementOf(names), tag++);
        break;
    }
    world.run_until(now + from_seconds(*rc::gen::inRange(1, 400) * 0.01));
    for (const ModelInfo& model : world.frontend().models_after("", 100'000).models)
      RC_ASSERT(!model.next_refused);
    RC_ASSERT(!was_told(world, " is refused"));
  }
  for (const std::string& node : nodes) {
    for (const std::string& name : names)
      world.set_load_failure_on(node, name, {}, FailureCause::unknown);
  }
  world.change_models_at(world.now(), {version("a", "last"), version("b", "last")});
  world.run_until(world.now() + seconds(25));
  world.request_at(world.now(), "a", tag++, seconds(5));
  world.request_at(world.now(), "b", tag++, seconds(5));
  world.run_until(world.now() + seconds(8));
  RC_ASSERT(world.replies().size() == tag - 1);
  for (const auto& [number, replies] : world.replies()) RC_ASSERT(replies.size() == 1U);
  RC_ASSERT(world.replies().at(tag - 2).front().reply.status.ok());
  RC_ASSERT(world.replies().at(tag - 1).front().reply.status.ok());
  RC_ASSERT(world.model("a").version.substr(0, 4) == "last");
  RC_ASSERT(world.status().exclusions.empty());
}

}  // namespace
}  // namespace gpulet::serve::failing_nodes_test

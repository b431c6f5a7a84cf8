#include "serve/models/failures.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/serve/ready_gpulet.h"

namespace gpulet::serve::failures_test {
namespace {

using testing::at_ms;
using testing::byte_model;
using testing::FrontendParts;

// Models a and b, and two nodes with one device each.
struct Scenario {
  explicit Scenario(const FrontendOptions& options = {}) : parts(options) {
    for (const char* const name : {"a", "b"})
      parts.models.add(byte_model(name, 1000, 10), at_ms(0));
    parts.join(1, "n0", at_ms(0));
    parts.join(2, "n1", at_ms(0));
    parts.plan_requests.begin();
  }

  // A gpulet with both models fails on that node.
  void fail(std::uint64_t id, const std::string& node, FailureCause cause,
            const std::string& failed_model = {}) {
    CreateGpulet create;
    create.id = GpuletId{id};
    create.size = Share{50};
    std::vector<schedule::RunningModel> loaded;
    for (const char* const name : {"a", "b"})
      loaded.push_back({name, 4, parts.models.find(name)->wanted().id});
    parts.backends.add_gpulet(create, {node, 0}, loaded, at_ms(1));
    GpuletReport report;
    report.id = create.id;
    report.state = GpuletState::failed;
    report.status = {StatusCode::internal, "it failed"};
    report.cause = cause;
    report.failed_model = failed_model;
    FrontendEffects effects;
    parts.failures.gpulet_failed(*parts.backends.find(create.id), report, false, at_ms(1), effects);
  }

  // A process that holds batches of these models ends by a signal.
  void crash(const std::vector<std::string>& models) {
    ProcessLost lost;
    lost.gpulet = GpuletId{7};
    lost.models = models;
    lost.requests = 3;
    lost.cause = FailureCause::model_crash;
    lost.end.signal = 11;
    FrontendEffects effects;
    parts.failures.process_lost(lost, at_ms(1), effects);
  }

  [[nodiscard]] bool refused(const std::string& name) const {
    return parts.models.find(name)->refused.has_value();
  }

  FrontendParts parts;
};

TEST(FailureHandler, TheCauseDeterminesTheConsequence) {
  struct Case {
    FailureCause cause;
    const char* failed_model;
    bool excluded;
    bool whole_node;
    bool a_refused;
    bool b_refused;
  };
  const Case cases[] = {
      {FailureCause::node_disk, "", true, true, false, false},
      {FailureCause::device, "", true, false, false, false},
      {FailureCause::model_file, "a", false, false, true, false},
      {FailureCause::model_file, "", false, false, true, true},
      // A model or the device is at fault: the models are tried on the other node first.
      {FailureCause::unknown, "", true, false, false, false},
      {FailureCause::unknown, "a", true, false, false, false},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(std::string(to_string(one.cause)) + " " + one.failed_model);
    Scenario scenario;
    scenario.fail(7, "n0", one.cause, one.failed_model);
    const Exclusion* const excluded = scenario.parts.exclusions.of({"n0", 0});
    ASSERT_EQ(excluded != nullptr, one.excluded);
    if (one.excluded) {
      EXPECT_EQ(!excluded->device.has_value(), one.whole_node);
    }
    EXPECT_EQ(scenario.refused("a"), one.a_refused);
    EXPECT_EQ(scenario.refused("b"), one.b_refused);
    EXPECT_TRUE(scenario.parts.exclusions.allows({"n1", 0}));
    EXPECT_TRUE(scenario.parts.plan_requests.urgent());
    EXPECT_EQ(scenario.parts.failures.counts().at(one.cause), 1U);
  }
}

TEST(FailureHandler, AModelThatFailedOnTwoNodesIsRefusedAndTheNodesAreAbsolved) {
  Scenario scenario;
  scenario.fail(7, "n0", FailureCause::unknown, "a");
  scenario.fail(8, "n1", FailureCause::unknown, "a");
  ASSERT_TRUE(scenario.refused("a"));
  EXPECT_EQ(scenario.parts.models.find("a")->refused->until,
            at_ms(1) + scenario.parts.options.backoff);
  EXPECT_FALSE(scenario.refused("b"));
  EXPECT_TRUE(scenario.parts.exclusions.allows({"n0", 0}));
  EXPECT_TRUE(scenario.parts.exclusions.allows({"n1", 0}));
}

TEST(FailureHandler, ModelsThatFailedTogetherAreTriedAgainOneByOne) {
  Scenario scenario;
  scenario.fail(7, "n0", FailureCause::unknown);
  scenario.fail(8, "n1", FailureCause::unknown);
  ASSERT_TRUE(scenario.refused("a") && scenario.refused("b"));
  EXPECT_EQ(scenario.parts.models.find("b")->refused->until -
                scenario.parts.models.find("a")->refused->until,
            scenario.parts.options.exclusions.first);
}

TEST(FailureHandler, AProvenVersionIsNotRefused) {
  Scenario scenario;
  for (const char* const name : {"a", "b"})
    scenario.parts.models.setbacks().prove(
        {{name, 4, scenario.parts.models.find(name)->current.id}});
  scenario.fail(7, "n0", FailureCause::model_file);
  EXPECT_FALSE(scenario.refused("a") || scenario.refused("b"));
  const Exclusion* const excluded = scenario.parts.exclusions.of({"n0", 0});
  ASSERT_NE(excluded, nullptr) << "the node's copy of the file is at fault";
  EXPECT_EQ(excluded->cause, FailureCause::node_store);

  scenario.parts.exclusions = Exclusions(ExclusionOptions{});
  scenario.fail(8, "n0", FailureCause::unknown, "a");
  scenario.fail(9, "n1", FailureCause::unknown, "a");
  EXPECT_FALSE(scenario.refused("a"));
  EXPECT_TRUE(scenario.parts.models.setbacks().withheld("a")) << "it is in backoff";
}

TEST(FailureHandler, WhereEveryDeviceIsExcludedFailedModelsWait) {
  Scenario scenario;
  EXPECT_FALSE(scenario.parts.failures.park_failed(false));
  EXPECT_TRUE(scenario.parts.failures.park_failed(true)) << "no model failed";
  scenario.fail(7, "n0", FailureCause::device);
  EXPECT_TRUE(scenario.parts.failures.park_failed(true));
  EXPECT_TRUE(scenario.parts.models.find("a")->stuck);
  EXPECT_TRUE(scenario.parts.models.setbacks().withheld("a"));
  scenario.parts.failures.expire_exclusions(at_ms(60'000));
  EXPECT_FALSE(scenario.parts.failures.park_failed(false));
  EXPECT_FALSE(scenario.parts.models.setbacks().withheld("a"));
}

TEST(FailureHandler, CrashesLeadToAQuarantineOnlyWhereTheModelIsKnown) {
  FrontendOptions options;
  options.quarantine.crashes = 2;
  Scenario scenario(options);
  Quarantine& quarantine = scenario.parts.models.setbacks().quarantine();
  scenario.crash({"a", "b"});
  scenario.crash({"a", "b"});
  EXPECT_TRUE(quarantine.suspects("a") && quarantine.suspects("b"));
  EXPECT_FALSE(quarantine.holds("a") || quarantine.holds("b"));
  EXPECT_FALSE(scenario.parts.plan_requests.any()) << "they share no gpulet of the plan in force";
  scenario.crash({"a"});
  EXPECT_FALSE(quarantine.holds("a"));
  scenario.crash({"a"});
  EXPECT_TRUE(quarantine.holds("a"));
  EXPECT_FALSE(quarantine.holds("b"));
  EXPECT_TRUE(scenario.parts.plan_requests.urgent());
}

TEST(FailureHandler, ASuspectThatSharesAGpuletIsPlannedAnew) {
  Scenario scenario;
  schedule::PlannedGpulet shared = FrontendParts::plan_for("n0", {"a"}).gpulets[0];
  shared.assignments.push_back({"b", 10, 1, 10, 1, 1000});
  scenario.parts.deployment.in_force().adopt(GpuletId{7}, shared);
  scenario.crash({"a", "b"});
  EXPECT_TRUE(scenario.parts.plan_requests.urgent());
}

TEST(FailureHandler, AVersionThatLoadsForTooLongIsOverdueAndOneThatLoadsBesideOthersIsTriedAlone) {
  Scenario scenario;
  testing::add_gpulet(scenario.parts, 7, "n0", {"a", "b"}, at_ms(0));
  FrontendEffects effects;
  EXPECT_TRUE(scenario.parts.failures.watch(at_ms(1), effects).empty());
  EXPECT_EQ(scenario.parts.models.find("a")->current.trial, Trial::none);
  EXPECT_TRUE(scenario.parts.failures.watch(at_ms(20'000), effects).empty());
  EXPECT_EQ(scenario.parts.models.find("a")->current.trial, Trial::suspect);
  EXPECT_EQ(scenario.parts.models.find("b")->current.trial, Trial::suspect);
  const auto overdue = scenario.parts.failures.watch(at_ms(10'000'000), effects);
  ASSERT_EQ(overdue.size(), 1U);
  EXPECT_EQ(overdue[0].gpulet, GpuletId{7});
  EXPECT_EQ(overdue[0].why.code(), StatusCode::timeout);
}

TEST(FailureHandler, ADeviceThatAGpuletDoesNotLeaveIsExcluded) {
  Scenario scenario;
  testing::add_gpulet(scenario.parts, 7, "n0", {"a"}, at_ms(0));
  scenario.parts.backends.set_retiring(GpuletId{7});
  FrontendEffects effects;
  EXPECT_TRUE(scenario.parts.failures.watch(at_ms(0), effects).empty());
  EXPECT_TRUE(scenario.parts.failures.allows({"n0", 0}));
  EXPECT_TRUE(scenario.parts.failures.watch(at_ms(30'000), effects).empty());
  EXPECT_FALSE(scenario.parts.failures.allows({"n0", 0}));
  EXPECT_TRUE(scenario.parts.failures.allows({"n1", 0}));
}

// Its gpulet fails while the next version waits for its turn.
TEST(FailureHandler, ABadFileRefusesTheVersionThatTheGpuletHeld) {
  Scenario scenario;
  NamedModel& known = *scenario.parts.models.find("a");
  FrontendEffects effects;
  const ServedModel next = testing::new_version("a");
  scenario.parts.models.successions().stage(known, next, version_of(next), at_ms(0), effects);
  known.trial_wait = TrialWait::turn;
  scenario.fail(7, "n0", FailureCause::model_file, "a");
  EXPECT_TRUE(known.current_refused());
  ASSERT_TRUE(known.next);
  EXPECT_EQ(known.next->id, version_of(next));
}

TEST(FailureHandler, AModelWhoseGpuletsFallSilentOnANodeLeavesIt) {
  Scenario scenario;
  testing::add_gpulet(scenario.parts, 7, "n0", {"a"}, at_ms(0));
  const schedule::Cluster cluster = scenario.parts.backends.cluster();
  FrontendEffects effects;
  for (int i = 0; i < 10 && scenario.parts.failures.not_on(cluster).empty(); ++i) {
    scenario.parts.failures.gpulet_silent(*scenario.parts.backends.find(GpuletId{7}), at_ms(i),
                                          effects);
  }
  EXPECT_EQ(scenario.parts.failures.not_on(cluster), (std::set<NodeFaults::Pair>{{"a", "n0"}}));
  schedule::Cluster one_node = cluster;
  std::erase_if(one_node.devices, [](const auto& device) { return device.key.node == "n1"; });
  EXPECT_TRUE(scenario.parts.failures.not_on(one_node).empty()) << "it has no other node";
  EXPECT_TRUE(scenario.parts.plan_requests.urgent());
}

}  // namespace
}  // namespace gpulet::serve::failures_test

#include "gpulet/serve/values/problems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "tests/support/names.h"
#include "tests/support/serve/traffic.h"

namespace gpulet::serve::problems_test {
namespace {

using support::names;
using testing::at_s;
using testing::byte_model;
using testing::card_profile;
using ::testing::IsEmpty;
using testing::load;
using testing::World;

// Two gpulets of half a device each, one of a and one of b, that serve as they should.
FrontendStatus healthy() {
  FrontendStatus status;
  status.state = "serving";
  schedule::Device device;
  device.key = {"n0", 0};
  status.backends[BackendId{1}] = {"n0", {{device, "simulated"}}, {}};
  std::uint64_t id = 1;
  for (const char* const name : {"a", "b"}) {
    ModelStatus model;
    model.name = name;
    model.state = ModelState::ready;
    model.slo_ms = 50;
    model.rate_seen = 90;
    model.rate_planned = 100;
    model.last_minute = {5400, 10, 5, 0};
    model.latest = {1000, 2, 1, 0};
    model.pace = 0.97;
    status.models.push_back(model);
    GpuletStatus gpulet;
    gpulet.id = GpuletId{id++};
    gpulet.gpulet.backend = BackendId{1};
    gpulet.gpulet.device = {"n0", 0};
    gpulet.gpulet.size = Share{50};
    gpulet.gpulet.models = {{name, 8}};
    gpulet.gpulet.state = GpuletState::ready;
    gpulet.planned = schedule::PlannedGpulet{{"n0", 0}, Share{50}, 12, {{name, 100, 5, 6, 1, 50}}};
    gpulet.busy = 0.5;
    gpulet.pace = 0.97;
    status.gpulets.push_back(gpulet);
  }
  return status;
}

void violate(ModelStatus& model) {
  model.last_minute = {1000, 20, 530, 10};
  model.latest = {200, 4, 106, 2};
}

Problem only(const FrontendStatus& status) {
  const std::vector<Problem> problems = find_problems(status);
  EXPECT_EQ(problems.size(), 1U);
  return problems.empty() ? Problem{} : problems.front();
}

TEST(Problems, AHealthyFrontendHasNone) { EXPECT_THAT(find_problems(healthy()), IsEmpty()); }

TEST(Problems, ARejectedFileIsOneWithItsPlaceAndFix) {
  FrontendStatus status = healthy();
  status.file_problems = {"models.json: line 3, column 7: unexpected '}'; correct the JSON there"};
  const Problem problem = only(status);
  EXPECT_EQ(problem.cause, ProblemCause::files);
  EXPECT_TRUE(problem.grave);
  EXPECT_TRUE(names(problem.text, status.file_problems[0]));
  EXPECT_NE(problem.fix, "");
  status.file_problems.push_back("profiles/card.json: is not readable; correct its mode");
  EXPECT_EQ(find_problems(status).size(), 2U);
}

TEST(Problems, ASingleViolationIsNoProblem) {
  FrontendStatus status = healthy();
  status.models[0].last_minute = status.models[0].latest = {10, 0, 1, 0};
  EXPECT_THAT(find_problems(status), IsEmpty());
}

TEST(Problems, NoBackendIsAProblem) {
  FrontendStatus status;
  status.state = "unavailable";
  EXPECT_EQ(only(status).cause, ProblemCause::no_backend);
}

TEST(Problems, AFollowerOnlyNamesItsLeader) {
  FrontendStatus status = healthy();
  violate(status.models[0]);  // of the time when it led
  status.leadership = {true, false, {}, "f1 at host:7000"};
  status.forwarding.connected = true;
  status.state = "forwarding";
  const Problem serves = only(status);
  EXPECT_EQ(serves.cause, ProblemCause::forwarding);
  EXPECT_FALSE(serves.grave);
  EXPECT_TRUE(names(serves.text, "f1 at host:7000"));

  status.state = "standby";
  EXPECT_EQ(only(status).cause, ProblemCause::no_leader);
  EXPECT_TRUE(only(status).grave);
  const std::string does_not_serve = only(status).text;
  status.forwarding.connected = false;
  const std::string not_connected = only(status).text;
  EXPECT_NE(not_connected, does_not_serve);
  status.leadership.leader.clear();
  EXPECT_NE(only(status).text, not_connected);
}

TEST(Problems, AFullClusterNamesTheDevicesToAdd) {
  FrontendStatus status = healthy();
  for (ModelStatus& model : status.models) {
    violate(model);
    model.rate_planned = 1000;
    model.rate_unserved = 600;
    model.missing =
        schedule::UnservedDetail{model.name, 600, schedule::UnservedCause::devices, 3.2};
  }
  const std::vector<Problem> problems = find_problems(status);
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0].cause, ProblemCause::too_few_devices);
  EXPECT_EQ(problems[0].model, "a");
  EXPECT_TRUE(problems[0].grave);
  EXPECT_EQ(problems[0].last_minute.dropped, 530U);
  EXPECT_TRUE(names(problems[0].text, "56 %"));
  EXPECT_TRUE(names(problems[0].fix, "4", "7"));
}

TEST(Problems, DriftFromTheProfileIsANote) {
  FrontendStatus status = healthy();
  status.corrections = {{"a", "card", Share{50}, {"n0", 0}, 1.8, 2, 1000, 1.8}};
  status.models[0].correction = 1.8;
  const Problem slow = only(status);
  EXPECT_EQ(slow.cause, ProblemCause::slower_than_profile);
  EXPECT_FALSE(slow.grave);
  EXPECT_TRUE(names(slow.text, "a", "1.8", "n0/0"));
  EXPECT_TRUE(names(slow.fix, "gpulet profile run --only a"));
  status.models[0].correction = 0.7;
  EXPECT_EQ(only(status).cause, ProblemCause::faster_than_profile);
  status.models[0].correction = 1.1;
  EXPECT_THAT(find_problems(status), IsEmpty());
  EXPECT_EQ(drift_of(status.models[0]), "");
}

TEST(Problems, AModelThatBlocksOthersIsNamed) {
  FrontendStatus status = healthy();
  status.models[1].disturbs = "some of its batches take 300 ms instead of 1.0 ms";
  const Problem apart = only(status);
  EXPECT_EQ(apart.cause, ProblemCause::disturbs);
  EXPECT_EQ(apart.model, "b");
  EXPECT_FALSE(apart.grave);
  EXPECT_TRUE(names(apart.text, "300 ms"));
  // Before it has moved, the others suffer.
  violate(status.models[0]);
  status.gpulets[0].gpulet.models.push_back({"b", 8});
  const std::vector<Problem> problems = find_problems(status);
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[0].model, "a");
  EXPECT_EQ(problems[0].cause, ProblemCause::neighbour);
  EXPECT_TRUE(names(problems[0].text, "b"));
}

TEST(Problems, UnservedDemandNamesItsCause) {
  FrontendStatus status = healthy();
  ModelStatus& model = status.models[0];
  model.rate_unserved = 100;
  model.reason = "no batch is fast enough";
  model.missing = schedule::UnservedDetail{"a", 100, schedule::UnservedCause::latency, 0, 22};
  const Problem problem = only(status);
  EXPECT_EQ(problem.cause, ProblemCause::no_place);
  EXPECT_TRUE(names(problem.text, model.reason));
  EXPECT_TRUE(names(problem.fix, "22 ms"));
}

TEST(Problems, SlowBatchesWithoutNeighboursAreSlowerThanTheProfile) {
  FrontendStatus status = healthy();
  violate(status.models[0]);
  status.models[0].pace = status.gpulets[0].pace = 1.6;
  status.gpulets[1].busy = 0;
  const Problem problem = only(status);
  EXPECT_EQ(problem.cause, ProblemCause::slower_than_profile);
  EXPECT_TRUE(names(problem.text, "60 %"));
  EXPECT_TRUE(names(problem.fix, "gpulet profile run --only a"));
}

TEST(Problems, SlowBatchesBesideABusyGpuletHaveANeighbour) {
  FrontendStatus status = healthy();
  violate(status.models[0]);
  status.models[0].pace = status.gpulets[0].pace = 1.6;
  const Problem problem = only(status);
  EXPECT_EQ(problem.cause, ProblemCause::neighbour);
  EXPECT_TRUE(names(problem.text, "b"));
}

TEST(Problems, AGpuletThatIsBusyForATwentiethOfTheTimeIsANeighbour) {
  FrontendStatus status = healthy();
  violate(status.models[0]);
  status.models[0].pace = status.gpulets[0].pace = 1.6;
  status.gpulets[1].busy = 0.05;
  EXPECT_EQ(only(status).cause, ProblemCause::neighbour);
  status.gpulets[1].busy = 0.049;
  EXPECT_EQ(only(status).cause, ProblemCause::slower_than_profile);
}

TEST(Problems, AModelBesideASlowOneHasANeighbour) {
  FrontendStatus status = healthy();
  violate(status.models[0]);
  status.gpulets[0].gpulet.models.push_back({"b", 8});
  status.models[1].pace = 1.6;
  const Problem problem = only(status);
  EXPECT_EQ(problem.model, "a");
  EXPECT_EQ(problem.cause, ProblemCause::neighbour);
  EXPECT_TRUE(names(problem.fix, "--only b"));
}

TEST(Problems, LoadAboveThePlanDiffersFromBursts) {
  FrontendStatus status = healthy();
  violate(status.models[0]);
  EXPECT_EQ(only(status).cause, ProblemCause::queue);
  status.models[0].rate_seen = 250;
  EXPECT_EQ(only(status).cause, ProblemCause::above_plan);
}

TEST(Problems, ErrorsAreReported) {
  FrontendStatus status = healthy();
  status.models[0].last_minute = {1000, 0, 10, 90};
  status.models[0].latest = {200, 0, 2, 18};
  EXPECT_EQ(only(status).cause, ProblemCause::errors);
}

TEST(Problems, PastViolationsAreNotGrave) {
  FrontendStatus status = healthy();
  violate(status.models[0]);
  status.models[0].latest = {200, 0, 0, 0};
  const Problem problem = only(status);
  EXPECT_EQ(problem.cause, ProblemCause::passed);
  EXPECT_FALSE(problem.grave);
}

TEST(Problems, ModelsWithControlledCoresCanLackCores) {
  FrontendStatus status = healthy();
  violate(status.models[0]);
  status.models[0].control = ModelControlStatus{};
  status.controlled_nodes = {{{"n0", 0}, 8, 12, 8, 0.66}};
  EXPECT_EQ(only(status).cause, ProblemCause::too_few_cores);
}

TEST(Problems, AnApplicationNamesItsSlowModel) {
  FrontendStatus status = healthy();
  violate(status.models[1]);
  ModelStatus application;
  application.name = "game";
  application.application = true;
  application.state = ModelState::ready;
  application.calls = {"a", "b"};
  violate(application);
  status.models.push_back(application);
  const std::vector<Problem> problems = find_problems(status);
  ASSERT_EQ(problems.size(), 2U);
  EXPECT_EQ(problems[1].model, "game");
  EXPECT_EQ(problems[1].cause, ProblemCause::stage);
  EXPECT_TRUE(names(problems[1].text, "b"));
}

TEST(Problems, AnApplicationIsTooSlowForItselfIfItsModelsMissNothing) {
  FrontendStatus status = healthy();
  ModelStatus application;
  application.name = "game";
  application.application = true;
  application.state = ModelState::ready;
  application.calls = {"a", "b"};
  violate(application);
  status.models.push_back(application);
  for (ModelStatus* const model : {&status.models[0], &status.models[1]})
    model->last_minute = model->latest = {1000, 0, 0, 0};
  EXPECT_EQ(only(status).cause, ProblemCause::queue);
  status.models[1].last_minute = {1000, 1, 0, 0};
  EXPECT_EQ(only(status).cause, ProblemCause::stage);
}

TEST(Problems, AnUnservedModelHasAReason) {
  FrontendStatus status = healthy();
  status.gpulets.erase(status.gpulets.begin());
  status.models[0].state = ModelState::unavailable;
  status.models[0].reason = "its file is gone";
  const Problem problem = only(status);
  EXPECT_EQ(problem.cause, ProblemCause::not_served);
  EXPECT_TRUE(names(problem.text, status.models[0].reason));
  status.models[0].state = ModelState::idle;
  status.models[0].reason.clear();
  EXPECT_THAT(find_problems(status), IsEmpty());
}

TEST(Problems, NamesASlowDeviceForInformation) {
  FrontendStatus status = healthy();
  DeviceStatus device;
  device.key = {"n0", 1};
  device.slowness = 1.3;
  status.devices.push_back(device);
  const Problem problem = only(status);
  EXPECT_EQ(problem.cause, ProblemCause::slow_device);
  EXPECT_FALSE(problem.grave);
  EXPECT_EQ(problem.node, "n0");
  EXPECT_EQ(problem.device, 1U);
}

TEST(Problems, NodesAndDevicesComeFirstAndGpuletsLast) {
  FrontendStatus status = healthy();
  violate(status.models[0]);
  BackendRecord& backend = status.backends[BackendId{1}];
  backend.leaving = true;
  backend.devices[0].fault = Status(StatusCode::unavailable, "it fell off the bus");
  Exclusion exclusion;
  exclusion.node = "n0";
  exclusion.error = Status(StatusCode::unavailable, "no space left on device");
  status.exclusions.push_back(exclusion);
  status.gpulets[1].gpulet.state = GpuletState::failed;
  std::vector<ProblemCause> causes;
  for (const Problem& problem : find_problems(status)) causes.push_back(problem.cause);
  EXPECT_EQ(causes,
            (std::vector{ProblemCause::device_lost, ProblemCause::excluded, ProblemCause::queue,
                         ProblemCause::gpulet_failed, ProblemCause::node_leaving}));
}

RC_GTEST_PROP(Problems, EveryModelAboveTheTargetIsReported, ()) {
  FrontendStatus status = healthy();
  for (ModelStatus& model : status.models) {
    const auto upto = [](std::uint64_t most) {
      return *rc::gen::inRange<std::uint64_t>(0, most + 1);
    };
    model.last_minute.answered = upto(2000);
    model.last_minute.late = upto(model.last_minute.answered);
    model.last_minute.dropped = upto(model.last_minute.answered - model.last_minute.late);
    model.latest = {upto(100), 0, upto(20), upto(20)};
    model.pace = static_cast<double>(upto(30)) / 10;
    model.rate_seen = static_cast<double>(upto(200));
    model.rate_unserved = *rc::gen::arbitrary<bool>() ? 20 : 0;
    model.state = *rc::gen::element(ModelState::loading, ModelState::ready, ModelState::unavailable,
                                    ModelState::idle);
  }
  const std::vector<Problem> problems = find_problems(status);
  for (const ModelStatus& model : status.models) {
    const Outcomes& minute = model.last_minute;
    if (minute.violations() < 2 || minute.violated() <= kViolationTarget) continue;
    RC_ASSERT(std::count_if(problems.begin(), problems.end(), [&](const Problem& problem) {
                return problem.model == model.name && !problem.text.empty();
              }) == 1);
  }
}

TEST(Problems, OverloadIsReportedWhileItLastsAndAfterwards) {
  World world({}, {byte_model("a", 100, 10)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 1);
  const std::uint64_t calm = load(world, "a", 2000, 2, 40, 1, 4);
  load(world, "a", 20, 40, 130, calm, 5);
  world.run_until(at_s(38));
  const Problem full = only(world.status());
  EXPECT_EQ(full.cause, ProblemCause::too_few_devices);
  EXPECT_EQ(full.model, "a");
  EXPECT_GT(full.last_minute.violated(), 0.3);
  EXPECT_FALSE(full.fix.empty());
  world.run_until(at_s(75));
  EXPECT_EQ(only(world.status()).cause, ProblemCause::passed);
  world.run_until(at_s(128));
  EXPECT_THAT(find_problems(world.status()), IsEmpty());
}

}  // namespace
}  // namespace gpulet::serve::problems_test

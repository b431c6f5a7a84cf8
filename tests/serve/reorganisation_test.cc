// Plans that follow the load, and their way into force, in virtual time.
#include <gtest/gtest.h>

#include <algorithm>

#include "gpulet/serve/frontend_core.h"
#include "serve/deploy/backend_registry.h"
#include "tests/support/names.h"
#include "tests/support/serve/traffic.h"

namespace gpulet::serve::reorganisation_test {
namespace {

using testing::at_s;
using testing::byte_model;
using testing::card_profile;
using testing::load;
using testing::outcome;
using testing::Outcome;
using testing::was_told;
using testing::World;

std::uint32_t devices_in_use(const World& world) {
  std::set<schedule::DeviceKey> used;
  for (const GpuletStatus& gpulet : world.status().gpulets) {
    if (gpulet.planned) used.insert(gpulet.gpulet.device);
  }
  return static_cast<std::uint32_t>(used.size());
}

TEST(Reorganisation, DevicesFollowTheLoadInBothDirections) {
  World world({}, {byte_model("a", 100, 20)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 6);
  const std::uint64_t rising = load(world, "a", 20, 2, 30, 1, 1);
  const std::uint64_t falling = load(world, "a", 1100, 30, 60, rising, 2);
  const std::uint64_t end = load(world, "a", 20, 60, 200, falling, 3);
  world.run_until(at_s(30));
  EXPECT_EQ(devices_in_use(world), 1U);
  world.run_until(at_s(60));
  EXPECT_GE(devices_in_use(world), 3U);
  world.run_until(at_s(205));
  EXPECT_EQ(devices_in_use(world), 1U);
  EXPECT_FALSE(world.status().plans.back().decision->summary.empty());
  const ReorganisationCounters counters = world.status().reorganisations;
  EXPECT_GE(counters.devices_given_back, 2U);
  EXPECT_EQ(counters.devices_taken, counters.devices_given_back + 1);
  outcome(world, 1, end);
}

TEST(Reorganisation, DemandBeyondTheClusterIsSharedAndReportedOnce) {
  World world({}, {byte_model("a", 100, 10), byte_model("b", 100, 10)},
              card_profile({{"a", 4}, {"b", 4}}));
  world.add_backend("n0", 2);
  const std::uint64_t b = load(world, "a", 2000, 2, 40, 1, 4);
  const std::uint64_t end = load(world, "b", 60, 2, 40, b, 5);
  world.run_until(at_s(42));
  const FrontendStatus status = world.status();
  EXPECT_FALSE(status.schedulable);
  EXPECT_GT(status.reorganisations.unschedulable, 0U);
  EXPECT_TRUE(std::any_of(status.events.begin(), status.events.end(), [](const auto& event) {
    return event.kind == StatusEvent::Kind::shortage;
  }));
  // The model within its part loses few requests.
  EXPECT_GT(outcome(world, b, end).good, (end - b) * 85 / 100);
  EXPECT_GT(outcome(world, 1, b).good, 300U * 38U / 2);
  // When the load has gone, every rate is served again at once.
  const std::uint64_t calm = load(world, "a", 20, 42, 60, end, 6);
  world.run_until(at_s(50));
  EXPECT_TRUE(world.status().schedulable);
  world.run_until(at_s(62));
  EXPECT_EQ(outcome(world, end, calm).errors.count(StatusCode::unavailable), 0U);
}

TEST(Reorganisation, ADecisionInForceHasItsPlanAndReasons) {
  World world({}, {byte_model("a", 100, 20)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 6);
  load(world, "a", 900, 2, 20, 1, 2);
  world.run_until(at_s(20));
  const FrontendStatus status = world.status();
  ASSERT_FALSE(status.plans.empty());
  EXPECT_TRUE(status.plans.front().decision->moves_gpulets());
  const PlanInForce& newest = status.plans.back();
  EXPECT_EQ(newest.epoch, status.epoch);
  EXPECT_EQ(newest.decision->plan, world.frontend().plan());
  EXPECT_EQ(newest.decision->explanation.gpulets.size(), newest.decision->plan.gpulets.size());
  EXPECT_EQ(newest.decision->created.size(), newest.decision->plan.gpulets.size());
  EXPECT_GE(newest.since, newest.decision->decided);
  std::set<std::uint64_t> numbers;
  for (const PlanInForce& plan : status.plans) numbers.insert(plan.decision->number);
  EXPECT_EQ(numbers.size(), status.plans.size());
}

TEST(Reorganisation, PlansThatOnlyChangeRatesAreOneEvent) {
  World world({}, {byte_model("a", 100, 10), byte_model("b", 100, 10)},
              card_profile({{"a", 4}, {"b", 4}}));
  world.add_backend("n0", 1);
  std::uint64_t tag = 1;
  for (int i = 0; i < 10; ++i)
    tag = load(world, "a", i % 2 == 0 ? 2000 : 900, 2 + 3 * i, 5 + 3 * i, tag,
               static_cast<std::uint64_t>(4 + i));
  load(world, "b", 400, 2, 32, tag, 40);
  world.run_until(at_s(32));
  std::uint64_t decisions = 0;
  std::size_t events = 0;
  for (const StatusEvent& event : world.status().events) {
    if (event.kind != StatusEvent::Kind::other_rates) continue;
    ++events;
    decisions += event.count;
  }
  EXPECT_EQ(events, 1U);
  EXPECT_GT(decisions, 2U);
}

TEST(Reorganisation, ARepeatedEventIsCounted) {
  World world({}, {byte_model("a", 100, 10)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 1);
  world.run_until(at_s(2));
  for (int i = 0; i < 3; ++i) {
    world.report_device_health("n0", 0, Status(StatusCode::unavailable, "it fell off the bus"));
    world.run_until(at_s(3 + 2 * i));
    world.report_device_health("n0", 0, Status());
    world.run_until(at_s(4 + 2 * i));
  }
  const FrontendStatus status = world.status();
  const auto repeated =
      std::count_if(status.events.begin(), status.events.end(), [](const auto& event) {
        return event.warning && event.count == 3 &&
               support::has_whole(event.text, "it fell off the bus");
      });
  EXPECT_EQ(repeated, 2) << "the loss of the device and that of its gpulet";
}

profile::Profile heavy_profile(double memory_mb) {
  profile::Profile profile = card_profile({{"a", 4}});
  profile.models.at("a").memory_mb = memory_mb;
  return profile;
}

TEST(Reorganisation, AGpuletGetsTheMemoryNeedOfMeasuredModels) {
  for (const bool both : {true, false}) {
    profile::Profile profile = card_profile({{"a", 4}, {"b", 4}});
    profile.models.at("a").memory_mb = 700;
    if (both) profile.models.at("b").memory_mb = 300;
    World world({}, {byte_model("a", 100, 50), byte_model("b", 100, 50)}, profile);
    double told_mb = 0;
    std::size_t told = 0;
    world.observe([&](const FrontendEvent&, Time, const FrontendEffects& effects) {
      for (const FrontendEffect& effect : effects) {
        const auto* tell = std::get_if<SendToBackend>(&effect);
        const auto* create = tell == nullptr ? nullptr : std::get_if<CreateGpulet>(&tell->command);
        if (create == nullptr) continue;
        told_mb += create->memory_mb;
        told += create->models.size();
      }
    });
    world.add_backend("n0", 1);
    world.run_until(at_s(2));
    ASSERT_EQ(told, 2U);
    EXPECT_EQ(told_mb, both ? 1000 : told_mb == 700 ? 700 : 0) << "none of one that shares";
  }
}

TEST(Reorganisation, GpuletsAreReplacedInPlaceIfMemoryIsShort) {
  FrontendOptions options;
  options.use_spare = false;  // the gpulet would have the whole device from the beginning
  World world(options, {byte_model("a", 3000, 20)}, heavy_profile(60));
  world.add_backend("n0", 1, 100);
  const std::uint64_t rising = load(world, "a", 20, 2, 10, 1, 7);
  const std::uint64_t end = load(world, "a", 150, 10, 30, rising, 8);
  world.run_until(at_s(9));
  const Share before = world.status().gpulets.at(0).gpulet.size;
  world.run_until(at_s(34));
  ASSERT_EQ(world.status().gpulets.size(), 1U);
  EXPECT_GT(world.status().gpulets.at(0).gpulet.size.percent, before.percent);
  EXPECT_TRUE(was_told(world, "replaced in place"));
  EXPECT_TRUE(outcome(world, 1, end).errors.empty());  // they waited for less than their objective
}

TEST(Reorganisation, AModelRemovedDuringReplacementIsNotCreatedAgain) {
  profile::Profile profile = card_profile({{"a", 4}, {"b", 4}});
  profile.models.at("a").memory_mb = 60;
  profile.models.at("b").memory_mb = 1;
  World world({}, {byte_model("a", 3000, 20), byte_model("b", 3000, 1)}, profile);
  world.add_backend("n0", 1, 100);
  const std::uint64_t rising = load(world, "a", 20, 2, 10, 1, 7);
  load(world, "a", 150, 10, 30, rising, 8);
  world.run_until(at_s(10));
  while (world.now() < at_s(30) && !was_told(world, "replaced in place"))
    world.run_until(world.now() + std::chrono::milliseconds(1));
  ASSERT_TRUE(was_told(world, "replaced in place"));
  world.change_models_at(world.now(), {byte_model("b", 3000, 1)});
  world.run_until(at_s(60));
  EXPECT_EQ(world.model("b").state, ModelState::ready);
  EXPECT_EQ(world.status().models.size(), 1U);
}

TEST(Reorganisation, GpuletsAreNotReplacedInPlaceIfMemorySuffices) {
  World world({}, {byte_model("a", 100, 20)}, heavy_profile(40));
  world.add_backend("n0", 1, 100);
  const std::uint64_t rising = load(world, "a", 20, 2, 10, 1, 7);
  load(world, "a", 150, 10, 20, rising, 8);
  world.run_until(at_s(24));
  EXPECT_FALSE(was_told(world, "replaced in place"));
}

TEST(Reorganisation, ADrainingNodeServesUntilOthersTakeOver) {
  World world({}, {byte_model("a", 100, 60)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 1);
  world.add_backend("n1", 1);
  const std::uint64_t end = load(world, "a", 60, 2, 20, 1, 12);
  world.run_until(at_s(8));
  const std::string serves = world.status().gpulets.at(0).gpulet.device.node;
  world.stop_backend(serves);
  world.run_until(at_s(22));
  ASSERT_EQ(world.status().gpulets.size(), 1U);
  EXPECT_NE(world.status().gpulets.at(0).gpulet.device.node, serves);
  EXPECT_TRUE(outcome(world, 1, end).errors.empty());
  EXPECT_TRUE(was_told(world, serves + " is stopping"));
}

// What a backend tells of itself to a frontend that has just started.
Hello hello_with_gpulet(const std::string& version) {
  GpuletReport gpulet;
  gpulet.id = {77};
  gpulet.size = Share{40};
  gpulet.models = {{"a", 4, version}};
  gpulet.state = GpuletState::ready;
  gpulet.part = {12, {{"a", 30, 4, 10, 1, 100}}};
  DeviceOffer offer;
  offer.device.key = {"n0", 0};
  offer.device.type = "card";
  offer.device.partitioning = "simulated";
  offer.device.sizes = {Share{40}, Share{100}};
  offer.mechanism = "simulated";
  return {"n0", {offer}, {gpulet}};
}

// Whether a request for model a leaves in a batch although no plan was made yet.
bool serves_at_once(const Hello& hello) {
  const profile::Profile profile = card_profile({{"a", 4}});
  FrontendCore core(
      {},
      {{byte_model("a", 100, 10)},
       std::make_shared<const profile::ProfileSet>(profile::ProfileSet{{profile.name, profile}}),
       nullptr},
      at_s(0));
  FrontendEffects effects;
  core.on(BackendMessageReceived{BackendId{1}, hello}, at_s(0.1), effects);
  InferRequest request{
      1, "a", {}, {{"x", DataType::uint8, {1}}}, Bytes::own(std::vector<std::byte>(1))};
  core.on(RequestReceived{ClientId{1}, request}, at_s(0.11), effects);
  core.on(Settle{}, at_s(0.11), effects);
  core.on(Settle{}, at_s(0.14), effects);
  return std::any_of(effects.begin(), effects.end(), [](const FrontendEffect& effect) {
    const auto* tell = std::get_if<SendToBackend>(&effect);
    const auto* batch = tell == nullptr ? nullptr : std::get_if<Batch>(&tell->command);
    return batch != nullptr && batch->gpulet == GpuletId{77};
  });
}

TEST(Reorganisation, ARestartedFrontendAdoptsRunningGpulets) {
  EXPECT_TRUE(serves_at_once(hello_with_gpulet(version_of(byte_model("a", 100, 10)))));
}

TEST(Reorganisation, GpuletsKeepTheirInstances) {
  Hello hello = hello_with_gpulet("v");
  schedule::Device& device = hello.devices[0].device;
  device.mig = partition::MigGeometry::of("a100-80").value();
  device.max_partitions = device.mig->compute_slices();
  device.sizes.clear();
  for (const partition::MigProfile& profile : device.mig->profiles())
    device.sizes.push_back(device.mig->share_of(profile.slices));
  hello.gpulets[0].instance = partition::MigInstance{3, 4};
  BackendRegistry registry;
  registry.join(BackendId{1}, hello, at_s(0));
  ASSERT_TRUE(registry.claim(BackendId{1}, hello.gpulets, at_s(0)).empty());
  CreateGpulet asked{{78}, 0, Share{57}, {}};
  asked.instance = partition::MigInstance{4, 0};
  registry.add_gpulet(asked, {"n0", 0}, {}, at_s(0));
  const auto running = registry.running();
  ASSERT_EQ(running.size(), 2U);
  EXPECT_EQ(running[0].instance, (partition::MigInstance{3, 4}));
  EXPECT_EQ(running[1].instance, (partition::MigInstance{4, 0}));
  EXPECT_EQ(registry.cluster().devices[0].mig, hello.devices[0].device.mig);

  // The same over a whole frontend that restarted.
  hello.gpulets[0].models[0].version = version_of(byte_model("a", 100, 10));
  const profile::Profile profile = card_profile({{"a", 4}});
  FrontendCore core(
      {},
      {{byte_model("a", 100, 10)},
       std::make_shared<const profile::ProfileSet>(profile::ProfileSet{{profile.name, profile}}),
       nullptr},
      at_s(0));
  FrontendEffects effects;
  core.on(BackendMessageReceived{BackendId{1}, hello}, at_s(0.1), effects);
  const FrontendStatus status = core.status(at_s(0.2));
  ASSERT_EQ(status.gpulets.size(), 1U);
  ASSERT_TRUE(status.gpulets[0].planned);
  EXPECT_EQ(status.gpulets[0].planned->instance, (partition::MigInstance{3, 4}));
}

TEST(Reorganisation, GpuletsOfAnotherVersionAreNotAdopted) {
  EXPECT_FALSE(serves_at_once(hello_with_gpulet("another")));
}

}  // namespace
}  // namespace gpulet::serve::reorganisation_test

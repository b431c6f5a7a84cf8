// Backends that break the rules beside an honest one: nobody else notices.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/serve/traffic.h"

namespace gpulet::serve::hostile_peers_test {
namespace {

using testing::at_s;
using testing::byte_model;
using testing::card_profile;
using testing::load;
using testing::outcome;
using testing::Outcome;
using testing::World;

constexpr std::uint64_t kRun = std::uint64_t{1} << kRunShift;  // the world's frontend is run 1
constexpr std::uint64_t kFirstStranger = 1000;

DeviceOffer device(const std::string& node, std::uint32_t number, const std::string& type) {
  DeviceOffer offer;
  offer.device.key = {node, number};
  offer.device.type = type;
  offer.device.partitioning = "simulated";
  offer.device.sizes = {Share{20}, Share{40}, Share{60}, Share{80}, Share{100}};
  return offer;
}

GpuletReport report_of(GpuletId id, GpuletState state) {
  GpuletReport report;
  report.id = id;
  report.size = Share{40};
  report.state = state;
  if (state == GpuletState::failed) report.status = {StatusCode::internal, "made up"};
  return report;
}

std::uint64_t count(const FrontendStatus& status, PeerViolation kind) {
  return status.violations[static_cast<std::size_t>(kind)];
}

template <typename Command>
std::vector<Command> told(const FrontendEffects& effects, BackendId backend) {
  std::vector<Command> found;
  for (const FrontendEffect& effect : effects) {
    const auto* const tell = std::get_if<SendToBackend>(&effect);
    if (tell == nullptr || tell->backend != backend) continue;
    if (const auto* const command = std::get_if<Command>(&tell->command)) found.push_back(*command);
  }
  return found;
}

bool was_dropped(const FrontendEffects& effects, BackendId backend) {
  return std::any_of(effects.begin(), effects.end(), [backend](const FrontendEffect& effect) {
    const auto* const drop = std::get_if<DisconnectBackend>(&effect);
    return drop != nullptr && drop->backend == backend;
  });
}

TEST(HostilePeersTest, ABackendIsUnknownBeforeItsHello) {
  FrontendCore core({}, {{byte_model("a", 100, 10)}, nullptr, nullptr}, at_s(0));
  FrontendEffects effects;
  core.on(BackendMessageReceived{BackendId{1}, Heartbeat{}}, at_s(0), effects);
  EXPECT_TRUE(was_dropped(effects, BackendId{1}));
  EXPECT_TRUE(core.status(at_s(0)).backends.empty());
  EXPECT_EQ(count(core.status(at_s(0)), PeerViolation::before_hello), 1U);
}

// On devices without a profile no plan ever takes them up, and none ever retires them.
TEST(HostilePeersTest, UnclaimedGpuletsAreRetired) {
  FrontendCore core({}, {{byte_model("a", 100, 10)}, nullptr, nullptr}, at_s(0));
  Hello hello{"n0", {device("n0", 0, "unmeasured")}, {}};
  hello.gpulets = {report_of(GpuletId{5}, GpuletState::ready),
                   report_of(GpuletId{6}, GpuletState::failed)};
  FrontendEffects effects;
  core.on(BackendMessageReceived{BackendId{1}, hello}, at_s(0), effects);
  ASSERT_EQ(told<RetireGpulet>(effects, BackendId{1}).size(), 1U);
  EXPECT_EQ(told<RetireGpulet>(effects, BackendId{1})[0].id, GpuletId{6});
  effects.clear();
  for (int i = 1; i <= 120; ++i) {
    core.on(BackendMessageReceived{BackendId{1}, Heartbeat{}}, at_s(0.5 * i), effects);
    core.on(Settle{}, at_s(0.5 * i), effects);
  }
  ASSERT_EQ(told<RetireGpulet>(effects, BackendId{1}).size(), 1U);
  EXPECT_EQ(told<RetireGpulet>(effects, BackendId{1})[0].id, GpuletId{5});
}

TEST(HostilePeersTest, ABackendReportsThePowerOfItsOwnDevicesOnly) {
  FrontendCore core({}, {{byte_model("a", 100, 10)}, nullptr, nullptr}, at_s(0));
  FrontendEffects effects;
  core.on(BackendMessageReceived{BackendId{1}, Hello{"n0", {device("n0", 0, "card")}, {}}}, at_s(0),
          effects);
  core.on(BackendMessageReceived{BackendId{1}, Heartbeat{{{0, 300.0, 700.0, std::nullopt}}}},
          at_s(1), effects);
  EXPECT_FALSE(was_dropped(effects, BackendId{1}));
  const FrontendStatus status = core.status(at_s(1));
  EXPECT_EQ(status.devices.at(0).power.usage_w, 300);
  EXPECT_EQ(status.devices.at(0).power.energy_j, std::nullopt);
  core.on(BackendMessageReceived{BackendId{1}, Heartbeat{{{1, 300.0, {}, {}}}}}, at_s(2), effects);
  EXPECT_TRUE(was_dropped(effects, BackendId{1}));
  EXPECT_EQ(count(core.status(at_s(2)), PeerViolation::foreign_device), 1U);
}

// Both of an earlier run of the frontend: it cannot know whose the gpulet was.
TEST(HostilePeersTest, TheFirstClaimDoesNotLockOthersOut) {
  FrontendCore core({}, {{byte_model("a", 100, 10)}, nullptr, nullptr}, at_s(0));
  const auto hello = [](const std::string& node) {
    return Hello{node, {device(node, 0, "card")}, {report_of(GpuletId{5}, GpuletState::ready)}};
  };
  FrontendEffects effects;
  core.on(BackendMessageReceived{BackendId{1}, hello("n1")}, at_s(0), effects);
  core.on(BackendMessageReceived{BackendId{2}, hello("n2")}, at_s(0), effects);
  EXPECT_EQ(told<Welcome>(effects, BackendId{2}).size(), 1U);
  ASSERT_EQ(told<RetireGpulet>(effects, BackendId{2}).size(), 1U);
  EXPECT_EQ(told<RetireGpulet>(effects, BackendId{2})[0].id, GpuletId{5});
  effects.clear();
  core.on(BackendMessageReceived{BackendId{2}, report_of(GpuletId{5}, GpuletState::gone)}, at_s(0),
          effects);
  EXPECT_FALSE(was_dropped(effects, BackendId{2}));
  EXPECT_EQ(core.status(at_s(0)).gpulets.at(0).gpulet.backend, BackendId{1});
  // It is over: from now on the gpulet is another's.
  core.on(BackendMessageReceived{BackendId{2}, report_of(GpuletId{5}, GpuletState::gone)}, at_s(0),
          effects);
  EXPECT_TRUE(was_dropped(effects, BackendId{2}));
}

TEST(HostilePeersTest, AViolationInTheSessionDisconnectsTheNode) {
  World world({}, {byte_model("a", 3000, 60)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 1);
  world.add_backend("n1", 1);
  const std::uint64_t end = load(world, "a", 60, 3, 10, 1, 11);
  world.run_until(at_s(6));
  const BackendId served_by = world.status().gpulets.front().gpulet.backend;
  world.inject(BackendViolatedProtocol{
      served_by, {PeerViolation::malformed, {StatusCode::malformed, "no frame"}}});
  EXPECT_FALSE(world.status().backends.contains(served_by));
  world.run_until(at_s(15));
  EXPECT_EQ(count(world.status(), PeerViolation::malformed), 1U);
  EXPECT_TRUE(outcome(world, 1, end).errors.empty());
}

// What the strangers of one run do, drawn at random: much of it is what an honest backend would
// say, so that they get in, and much of it names what is not theirs.
class Strangers {
 public:
  Strangers(World& world, std::string type) : world_(world), type_(std::move(type)) {
    world_.observe([this](const FrontendEvent& event, Time, const FrontendEffects& effects) {
      if (const auto* const made = std::get_if<PlanMade>(&event))
        faults_.insert(faults_.end(), made->result.faults.begin(), made->result.faults.end());
      for (const FrontendEffect& effect : effects) note(effect);
    });
  }

  void act() {
    const BackendId from{kFirstStranger + *rc::gen::inRange<std::uint64_t>(0, 3)};
    if (*rc::gen::inRange(0, 20) == 0) {
      world_.inject(BackendDisconnected{from, {StatusCode::unavailable, "it went"}});
      return;
    }
    world_.inject(BackendMessageReceived{from, message(from)});
  }

  [[nodiscard]] const std::vector<schedule::Violation>& faults() const { return faults_; }

 private:
  void note(const FrontendEffect& effect) {
    const auto* const tell = std::get_if<SendToBackend>(&effect);
    if (tell == nullptr || tell->backend.value < kFirstStranger) return;
    if (const auto* const create = std::get_if<CreateGpulet>(&tell->command))
      given_.push_back(create->id);
    if (const auto* const batch = std::get_if<Batch>(&tell->command)) batches_.push_back(batch->id);
  }

  GpuletId gpulet() {
    std::vector<GpuletId> ids{{5}, {kRun + *rc::gen::inRange<std::uint64_t>(0, 40)}, {UINT64_MAX}};
    for (const GpuletStatus& one : world_.status().gpulets) ids.push_back(one.id);
    ids.insert(ids.end(), given_.begin(), given_.end());
    return *rc::gen::elementOf(ids);
  }

  GpuletReport report() {
    GpuletReport report = report_of(gpulet(), static_cast<GpuletState>(*rc::gen::inRange(1, 6)));
    report.device = *rc::gen::inRange(0U, 3U);
    report.size = Share{*rc::gen::elementOf(std::vector<int>{0, 20, 40, 100, 200})};
    const std::string version =
        *rc::gen::arbitrary<bool>() ? world_.status().models.at(0).version : std::string("made-up");
    if (*rc::gen::arbitrary<bool>()) report.models = {{"a", 16, version}};
    if (*rc::gen::arbitrary<bool>()) {
      const double rate = *rc::gen::elementOf(std::vector<double>{0, 10, 1e8, 1e300, -1});
      const double slowdown = *rc::gen::elementOf(std::vector<double>{1, 9, 1e300});
      report.part = {*rc::gen::elementOf(std::vector<double>{0, 20, 1e300}),
                     {{"a", rate, *rc::gen::inRange(0U, 20U), 5, slowdown, 100}},
                     static_cast<schedule::Service>(*rc::gen::inRange(0, 3))};
    }
    return report;
  }

  Hello hello(BackendId from) {
    const std::string own = "stranger" + std::to_string(from.value);
    const std::string node = *rc::gen::inRange(0, 5) == 0 ? "n0" : own;
    Hello hello{node, {}, {}};
    const auto devices = *rc::gen::inRange(0U, 3U);
    for (std::uint32_t i = 0; i < devices; ++i) {
      hello.devices.push_back(device(node, i, type_));
      if (*rc::gen::inRange(0, 8) == 0) hello.devices.back().device.key.device = 0;
      if (*rc::gen::inRange(0, 8) == 0) hello.devices.back().device.max_partitions = 0;
      if (*rc::gen::inRange(0, 8) == 0) hello.devices.back().device.memory_mb = 1;
    }
    const auto gpulets = *rc::gen::inRange(0, 4);
    for (int i = 0; i < gpulets; ++i) hello.gpulets.push_back(report());
    return hello;
  }

  BatchId batch() {
    std::vector<BatchId> ids{{1}, {kRun + *rc::gen::inRange<std::uint64_t>(0, 300)}, {UINT64_MAX}};
    ids.insert(ids.end(), batches_.begin(), batches_.end());
    return *rc::gen::elementOf(ids);
  }

  BackendMessage message(BackendId from) {
    switch (*rc::gen::inRange(0, 10)) {
      case 0:
      case 1:
      case 2:
        return hello(from);
      case 3:
      case 4:
        return report();
      case 5: {
        if (given_.empty()) return Heartbeat{};
        return report_of(*rc::gen::elementOf(given_), GpuletState::ready);
      }
      case 6: {
        BatchResult result;
        result.id = batch();
        if (*rc::gen::arbitrary<bool>()) {
          result.status = {StatusCode::unavailable, "made up"};
        } else {
          result.outputs = Bytes::own(std::vector<std::byte>(*rc::gen::inRange(0U, 9U)));
        }
        return result;
      }
      case 7:
        return ModelPieceRequest{*rc::gen::arbitrary<bool>() ? "hash-of-a" : "hash-of-b", 0};
      case 8:
        return DeviceReport{
            *rc::gen::inRange(0U, 4U),
            *rc::gen::arbitrary<bool>() ? Status() : Status(StatusCode::unavailable, "made up")};
      default:
        if (*rc::gen::inRange(0, 4) == 0) return Draining{};
        return Heartbeat{};
    }
  }

  World& world_;
  const std::string type_;
  std::vector<schedule::Violation> faults_;
  std::vector<GpuletId> given_;
  std::vector<BatchId> batches_;
};

void check_invariants(const FrontendStatus& status) {
  std::set<std::string> nodes;
  for (const auto& [id, backend] : status.backends) RC_ASSERT(nodes.insert(backend.node).second);
  for (const GpuletStatus& one : status.gpulets) {
    RC_ASSERT(status.backends.contains(one.gpulet.backend));
    RC_ASSERT(status.backends.at(one.gpulet.backend).node == one.gpulet.device.node);
  }
}

// Runs strangers with devices of that type beside n0, and returns what became of the requests.
Outcome run_beside_strangers(const std::string& type) {
  World world({}, {byte_model("a", 3000, 20)}, card_profile({{"a", 4}}));
  world.add_backend("n0", 1);
  Strangers strangers(world, type);
  const std::uint64_t end = load(world, "a", 20, 2, 6, 1, 7);
  double now_s = 0.1;
  while (now_s < 6) {
    world.run_until(at_s(now_s));
    strangers.act();
    check_invariants(world.status());
    now_s += *rc::gen::inRange(1, 400) / 1000.0;
  }
  world.run_until(at_s(18));
  RC_ASSERT(strangers.faults().empty());
  const FrontendStatus status = world.status();
  check_invariants(status);
  RC_ASSERT(std::any_of(status.backends.begin(), status.backends.end(),
                        [](const auto& one) { return one.second.node == "n0"; }));
  RC_ASSERT(status.models.at(0).state == ModelState::ready);
  Outcome result = outcome(world, 1, end);
  RC_ASSERT(!::testing::Test::HasFailure());
  return result;
}

RC_GTEST_PROP(HostilePeersTest, HostileBackendsWithoutWorkLoseNoRequest, ()) {
  RC_ASSERT(run_beside_strangers("unmeasured").errors.empty());
}

// Requests that the plan sends to a stranger may be refused there, or come too late; each has one
// answer all the same.
RC_GTEST_PROP(HostilePeersTest, EveryRequestHasOneAnswerDespiteHostileBackends, ()) {
  run_beside_strangers("card");
}

}  // namespace
}  // namespace gpulet::serve::hostile_peers_test

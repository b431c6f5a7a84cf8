// Which Hellos can be true.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "serve/deploy/backend_registry.h"

namespace gpulet::serve::hello_check_test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::uint64_t kRun = std::uint64_t{1} << 40U;
constexpr RunIds kIds{{kRun + 1}, {kRun + 10}, {2 * kRun}};

DeviceOffer device(const std::string& node, std::uint32_t number) {
  DeviceOffer offer;
  offer.device.key = {node, number};
  offer.device.type = "card";
  offer.device.partitioning = "simulated";
  offer.device.sizes = {Share{50}, Share{100}};
  offer.mechanism = "cgroup v2, cpu.max";
  return offer;
}

GpuletReport gpulet(std::uint64_t id) {
  GpuletReport report;
  report.id = {id};
  report.size = Share{50};
  report.models = {{"a", 4, "f-1"}, {"b", 4, "g-1"}};
  report.state = GpuletState::ready;
  report.part = {20, {{"a", 10, 4, 5, 1, 100}, {"b", 10, 4, 5, 1, 100}}};
  return report;
}

Hello hello() {
  Hello hello{"n0", {device("n0", 0), device("n0", 1)}, {gpulet(3), gpulet(4)}};
  hello.gpulets[1].device = 1;
  return hello;
}

struct Case {
  std::string name;
  std::function<void(Hello&)> change;
  PeerViolation kind = PeerViolation::invalid_hello;
};

void PrintTo(const Case& one, std::ostream* stream) { *stream << one.name; }

class RefusedHelloTest : public ::testing::TestWithParam<Case> {};

TEST_P(RefusedHelloTest, IsRefused) {
  Hello wrong = hello();
  GetParam().change(wrong);
  BackendRegistry registry;
  registry.join(BackendId{1}, {"n1", {device("n1", 0)}, {}}, Time());
  CreateGpulet asked;
  asked.id = {kRun + 2};
  registry.add_gpulet(asked, {"n1", 0}, {}, Time());
  const auto breach = check_hello(wrong, registry, kIds);
  ASSERT_TRUE(breach);
  EXPECT_EQ(breach->kind, GetParam().kind);
  EXPECT_FALSE(breach->why.ok());
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedHelloTest,
    ::testing::Values(
        Case{"NodeWithoutAName", [](Hello& in) { in.node = ""; }},
        Case{"NodeOfTwoLines", [](Hello& in) { in.node = "n0\nn1"; }},
        Case{"NodeWithALongName", [](Hello& in) { in.node = std::string(257, 'n'); }},
        Case{"DeviceOfAnotherNode", [](Hello& in) { in.devices[1].device.key.node = "n1"; }},
        Case{"DeviceTwice", [](Hello& in) { in.devices[1].device.key.device = 0; }},
        Case{"DeviceNumber", [](Hello& in) { in.devices[1].device.key.device = 1024; }},
        Case{"TooManyDevices",
             [](Hello& in) {
               in.gpulets.clear();
               for (std::uint32_t i = 2; i < 1026; ++i) in.devices.push_back(device("n0", i));
             }},
        Case{"TypeWithoutAName", [](Hello& in) { in.devices[0].device.type = ""; }},
        Case{"TypeWithSpaces", [](Hello& in) { in.devices[0].device.type = "a b"; }},
        Case{"Partitioning", [](Hello& in) { in.devices[0].device.partitioning = "\x1b[2J"; }},
        Case{"Mechanism", [](Hello& in) { in.devices[0].mechanism = "two\nlines"; }},
        Case{"NoSizes", [](Hello& in) { in.devices[0].device.sizes.clear(); }},
        Case{"SizesThatDoNotAscend",
             [](Hello& in) { in.devices[0].device.sizes = {Share{50}, Share{50}}; }},
        Case{"SizeAboveTheWhole", [](Hello& in) { in.devices[0].device.sizes = {Share{101}}; }},
        Case{"NoPartitions", [](Hello& in) { in.devices[0].device.max_partitions = 0; }},
        Case{"TooManyPartitions", [](Hello& in) { in.devices[0].device.max_partitions = 101; }},
        Case{"MemoryThatIsNoNumber", [](Hello& in) { in.devices[0].device.memory_mb = kNaN; }},
        Case{"NegativeMemory", [](Hello& in) { in.devices[0].device.memory_mb = -1; }},
        Case{"TooMuchMemory", [](Hello& in) { in.devices[0].device.memory_mb = 1e300; }},
        Case{"InfiniteCores",
             [](Hello& in) {
               in.devices[0].device.cores = std::numeric_limits<double>::infinity();
             }},
        Case{"ProcessesWithoutMig",
             [](Hello& in) { in.devices[0].device.processes_per_instance = 2; }},
        Case{"SizesOfMig",
             [](Hello& in) {
               in.devices[0].device.mig = partition::MigGeometry::of("a100-80").value();
               in.devices[0].device.max_partitions = 7;
             }},
        Case{"Step", [](Hello& in) { in.devices[0].traits.step_percent = kNaN; }},
        Case{"GpuletTwice", [](Hello& in) { in.gpulets[1].id = in.gpulets[0].id; }},
        Case{"GpuletOnNoDevice", [](Hello& in) { in.gpulets[0].device = 2; }},
        Case{"GpuletWithoutASize", [](Hello& in) { in.gpulets[0].size = Share{0}; }},
        Case{"GpuletInAnInstanceOfNoMig",
             [](Hello& in) {
               in.gpulets[0].instance = partition::MigInstance{1, 0};
             }},
        Case{"TooManyGpulets",
             [](Hello& in) {
               for (std::uint64_t i = 100; i < 4196; ++i) in.gpulets.push_back(gpulet(i));
             }},
        Case{"ModelTwice", [](Hello& in) { in.gpulets[0].models[1].name = "a"; }},
        Case{"ModelWithoutAName", [](Hello& in) { in.gpulets[0].models[1].name = ""; }},
        Case{"ModelOfTwoLines", [](Hello& in) { in.gpulets[0].models[1].name = "a\n"; }},
        Case{"Version", [](Hello& in) { in.gpulets[0].models[1].version = "a\tb"; }},
        Case{"LargeBatch", [](Hello& in) { in.gpulets[0].models[0].max_batch = 1025; }},
        Case{"DutyCycle", [](Hello& in) { in.gpulets[0].part.duty_cycle_ms = 1e300; }},
        Case{"Rate", [](Hello& in) { in.gpulets[0].part.assignments[0].rate = kNaN; }},
        Case{"Batch", [](Hello& in) { in.gpulets[0].part.assignments[0].batch = 0; }},
        Case{"Slowdown", [](Hello& in) { in.gpulets[0].part.assignments[0].slowdown = 1e300; }},
        Case{"Latency", [](Hello& in) { in.gpulets[0].part.assignments[0].latency_ms = -1; }},
        Case{"AssignedTwice", [](Hello& in) { in.gpulets[0].part.assignments[1].model = "a"; }},
        Case{"ControlledWithTwoModels",
             [](Hello& in) { in.gpulets[0].part.service = schedule::Service::controlled; }},
        Case{"GpuletOfAnotherNode", [](Hello& in) { in.gpulets[0].id = {kRun + 2}; },
             PeerViolation::foreign_gpulet},
        Case{"GpuletThatNobodyWasGivenYet", [](Hello& in) { in.gpulets[0].id = {kRun + 10}; },
             PeerViolation::foreign_gpulet},
        Case{"NodeThatIsConnected",
             [](Hello& in) { in = {"n1", {device("n1", 0)}, {}}; },
             PeerViolation::node_taken}),
    [](const auto& one) { return one.param.name; });

TEST(HelloCheckTest, AValidHelloIsAccepted) {
  const BackendRegistry registry;
  EXPECT_FALSE(check_hello(hello(), registry, kIds));
  EXPECT_FALSE(check_hello({"n0", {}, {}}, registry, kIds));
  Hello mig = hello();
  mig.gpulets.clear();
  schedule::Device& divided = mig.devices[0].device;
  divided.mig = partition::MigGeometry::of("a100-80").value();
  divided.max_partitions = 7;
  divided.sizes.clear();
  for (const partition::MigProfile& profile : divided.mig->profiles())
    divided.sizes.push_back(divided.mig->share_of(profile.slices));
  mig.gpulets.push_back(gpulet(3));
  mig.gpulets[0].instance = partition::MigInstance{1, 0};
  EXPECT_FALSE(check_hello(mig, registry, kIds));
  mig.gpulets[0].instance = partition::MigInstance{1, 7};
  EXPECT_TRUE(check_hello(mig, registry, kIds));
}

// All others may belong to another run of the frontend, which this one cannot check.
TEST(HelloCheckTest, OnlyIdsThatThisRunHasYetToGiveAreRefused) {
  const BackendRegistry registry;
  const auto accepts = [&registry](std::uint64_t id) {
    Hello claim = hello();
    claim.gpulets[0].id = {id};
    return !check_hello(claim, registry, kIds);
  };
  EXPECT_TRUE(accepts(kRun));
  EXPECT_TRUE(accepts(kRun + 9));
  EXPECT_FALSE(accepts(kRun + 10));
  EXPECT_FALSE(accepts(2 * kRun - 1));
  EXPECT_TRUE(accepts(2 * kRun));
}

// A node keeps what this run gave it while it was away; nobody else may claim it meanwhile.
TEST(HelloCheckTest, GpuletsOfADisconnectedNodeStayItsOwn) {
  BackendRegistry registry;
  registry.join(BackendId{1}, {"n1", {device("n1", 0)}, {}}, Time());
  CreateGpulet asked;
  asked.id = {kRun + 2};
  registry.add_gpulet(asked, {"n1", 0}, {{"a", 4, "f-1"}}, Time());
  EXPECT_EQ(registry.right_to_file(BackendId{1}, "f"), FileRight::granted);
  registry.remove(BackendId{1});

  Hello claim = hello();
  claim.gpulets[0].id = {kRun + 2};
  ASSERT_TRUE(check_hello(claim, registry, kIds));
  EXPECT_EQ(check_hello(claim, registry, kIds)->kind, PeerViolation::foreign_gpulet);

  Hello back{"n1", {device("n1", 0)}, {gpulet(kRun + 2)}};
  ASSERT_FALSE(check_hello(back, registry, kIds));
  registry.join(BackendId{2}, back, Time());
  registry.claim(BackendId{2}, back.gpulets, Time());
  EXPECT_TRUE(registry.find({kRun + 2})->issued);
  EXPECT_EQ(registry.right_to_file(BackendId{2}, "f"), FileRight::granted);
  EXPECT_EQ(registry.right_to_file(BackendId{2}, "g"), FileRight::claimed);
  EXPECT_EQ(registry.right_to_file(BackendId{2}, "h"), FileRight::none);
}

}  // namespace
}  // namespace gpulet::serve::hello_check_test

// The MIG driver against the fake NVML, which has its own placement rules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <thread>

#include "gpulet/gpu/cuda_driver.h"
#include "gpulet/partition/drivers/drivers.h"
#include "tests/support/gpu/fake_gpus.h"
#include "tests/support/gpu/fake_mig.h"
#include "tests/support/gpu/fake_mps.h"
#include "tests/support/names.h"

namespace gpulet::partition {
namespace {

using std::chrono::milliseconds;
using support::FakeGpus;
using support::FakeMig;
using support::FakeMigInstance;
using support::FakeMps;
using support::has_line;
using support::names;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr std::chrono::seconds kPatience(20);
const std::string kH100 = "gpu\nuuid GPU-aa\nmemory_mib 81559\nmig 1\n";

Result<std::unique_ptr<PartitionDriver>> try_to_make(std::string_view geometry = "h100",
                                                     std::uint32_t processes = 1,
                                                     const MpsOptions& mps = {}) {
  return make_mig_driver({"GPU-aa", MigGeometry::of(geometry).value(), processes}, FakeGpus::nvml(),
                         mps);
}

std::unique_ptr<PartitionDriver> make_driver(std::string_view geometry = "h100") {
  auto driver = try_to_make(geometry);
  EXPECT_TRUE(driver.ok()) << driver.status().to_string();
  return driver.ok() ? std::move(driver).value() : nullptr;
}

Claim claim(std::uint64_t gpulet, std::uint32_t slices, std::uint32_t start,
            std::string_view geometry = "h100") {
  return {.gpulet = {gpulet},
          .share = MigGeometry::of(geometry).value().share_of(slices),
          .instance = MigInstance{slices, start}};
}

// Repeats the claim like a backend: while the driver is not ready.
Result<Grant> granted(PartitionDriver& driver, const Claim& claim) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    auto grant = driver.grant(claim);
    const bool later = !grant.ok() && grant.status().code() == StatusCode::unavailable;
    if (!later || std::chrono::steady_clock::now() > deadline) return grant;
    if (driver.ready()) {
      // The instance may exist by now; a permanent refusal is returned twice.
      grant = driver.grant(claim);
      if (grant.ok() || driver.ready()) return grant;
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
}

bool becomes_true(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!condition() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(milliseconds(5));
  return condition();
}

// The names of all instances of the fake, such as "3g@4".
std::vector<std::string> instances() {
  std::vector<std::string> names;
  for (const FakeMigInstance& one : FakeMig::read().instances) {
    for (const auto& profile : support::fake_mig_profiles(false)) {
      if (profile.number == one.profile)
        names.push_back(std::to_string(profile.slices) + "g@" + std::to_string(one.start));
    }
  }
  return names;
}

std::vector<std::string> changes(const FakeGpus& machine) {
  std::vector<std::string> changes;
  for (const std::string& call : machine.calls()) {
    if (call.starts_with("create ") || call.starts_with("destroy ")) changes.push_back(call);
  }
  return changes;
}

TEST(MigDriver, CreatesTheClaimedInstance) {
  const FakeGpus machine(kH100 + "mig_takes_ms 20\n");
  const auto driver = make_driver();
  const Status first = driver->grant(claim(1, 3, 4)).status();
  EXPECT_EQ(first.code(), StatusCode::unavailable);
  EXPECT_FALSE(driver->ready());
  const auto grant = granted(*driver, claim(1, 3, 4));
  ASSERT_TRUE(grant.ok()) << grant.status().to_string();
  EXPECT_TRUE(driver->ready());
  const auto& environment = grant.value().environment;
  EXPECT_EQ(environment.at("CUDA_VISIBLE_DEVICES"), FakeMig::read().instances.at(0).uuid());
  EXPECT_EQ(environment.at("CUDA_MPS_PIPE_DIRECTORY"), gpu::kNoMpsDirectory);
  EXPECT_EQ(environment.at(kDeviceVariable), "cuda:0");
  EXPECT_EQ(environment.at(kExpectedShareVariable), "42");
  EXPECT_EQ(environment.at(kDeviceSmsVariable), "132");
  EXPECT_EQ(driver->grant(claim(1, 3, 4)).status().code(), StatusCode::internal) << "twice";
  EXPECT_TRUE(driver->attach({1}, ::getpid()).ok());
  EXPECT_TRUE(driver->activate({1}).ok());
  EXPECT_FALSE(driver->end({1}, ::getpid()))
      << "a process with its own instance may be killed at once";
  EXPECT_EQ(driver->mechanism(), "mig");
  EXPECT_EQ(driver->traits().fault, FaultReach::process);
  EXPECT_TRUE(driver->traits().limits_memory);
}

TEST(MigDriver, KeepsAFreeInstanceForTheNextClaim) {
  const FakeGpus machine(kH100);
  const auto driver = make_driver();
  const auto first = granted(*driver, claim(1, 2, 0));
  ASSERT_TRUE(first.ok());
  driver->release({1});
  driver->release({99});
  const auto second = driver->grant(claim(2, 2, 0));
  ASSERT_TRUE(second.ok()) << "at once: " << second.status().to_string();
  EXPECT_EQ(second.value().environment, first.value().environment);
  EXPECT_THAT(changes(machine), ElementsAre("create 2g@0"));
}

TEST(MigDriver, DestroysFreeInstancesThatBlockAClaim) {
  const FakeGpus machine(kH100);
  const auto driver = make_driver();
  ASSERT_TRUE(granted(*driver, claim(1, 1, 0)).ok());
  ASSERT_TRUE(granted(*driver, claim(2, 1, 1)).ok());
  ASSERT_TRUE(granted(*driver, claim(3, 3, 4)).ok());
  driver->release({1});
  driver->release({2});
  ASSERT_TRUE(granted(*driver, claim(4, 4, 0)).ok());
  EXPECT_THAT(changes(machine), ElementsAre("create 1g@0", "create 1g@1", "create 3g@4",
                                            "destroy 1g@0", "destroy 1g@1", "create 4g@0"));
  const Status taken = driver->grant(claim(5, 7, 0)).status();
  EXPECT_EQ(taken.code(), StatusCode::unavailable);
  EXPECT_TRUE(names(taken, "3g@4", "gpulet 3"));
  EXPECT_TRUE(driver->ready()) << "a retry does not help";
  EXPECT_EQ(driver->grant(claim(5, 3, 4)).status().code(), StatusCode::unavailable) << "full";
}

TEST(MigDriver, AdoptsExistingInstances) {
  const FakeGpus machine(kH100);
  FakeMig before;
  before.add(0, 1, 0).whole = true;
  before.add(0, 1, 2);               // 2g@2 without a compute instance
  before.add(0, 9, 4).whole = true;  // a 1g with twice the memory, at 4
  before.write();
  const auto driver = make_driver();
  EXPECT_TRUE(driver->grant(claim(1, 2, 0)).ok()) << "at once";
  ASSERT_TRUE(granted(*driver, claim(2, 2, 2)).ok());
  ASSERT_TRUE(granted(*driver, claim(3, 1, 4)).ok());
  EXPECT_THAT(changes(machine),
              ElementsAre("destroy 2g@2", "create 2g@2", "destroy 1g@4", "create 1g@4"));
}

TEST(MigDriver, LeavesInstancesBehind) {
  const FakeGpus machine(kH100);
  ASSERT_TRUE(granted(*make_driver(), claim(1, 2, 4)).ok());
  EXPECT_THAT(instances(), ElementsAre("2g@4"));
}

TEST(MigDriver, RetriesWhileAnotherProcessUsesABlockingInstance) {
  const FakeGpus machine(kH100 + "mig_in_use 0\n");
  FakeMig before;
  before.add(0, 0, 0).whole = true;
  before.write();
  const auto driver = make_driver();
  std::string message;
  ASSERT_TRUE(becomes_true([&] {
    message = driver->grant(claim(1, 2, 0)).status().message();
    return support::has_whole(message, "2g@0") && support::has_whole(message, "1g@0");
  })) << message;
  EXPECT_FALSE(driver->ready()) << "a retry may help";
  EXPECT_TRUE(driver->grant(claim(2, 1, 0)).ok()) << "the instance still exists";
  driver->release({2});
  machine.write(kH100);
  const auto grant = granted(*driver, claim(1, 2, 0));
  EXPECT_TRUE(grant.ok()) << grant.status().to_string();
}

TEST(MigDriver, ReportsAPermanentFailureOnceAndRetriesOnTheNextClaim) {
  const FakeGpus machine("fail_nvmlDeviceCreateGpuInstanceWithPlacement 999\n" + kH100);
  const auto driver = make_driver();
  const Status failed = granted(*driver, claim(1, 2, 0)).status();
  EXPECT_EQ(failed.code(), StatusCode::internal);
  EXPECT_TRUE(names(failed, "2g@0", "999"));
  EXPECT_TRUE(driver->ready());
  machine.write(kH100);
  EXPECT_TRUE(granted(*driver, claim(1, 2, 0)).ok());
}

TEST(MigDriver, RecreatesInstancesThatAnotherProgramDestroyed) {
  const FakeGpus machine(kH100);
  const auto driver = make_driver();
  ASSERT_TRUE(granted(*driver, claim(1, 2, 0)).ok());
  FakeMig none;
  none.made = 7;  // so that the next UUID is another
  none.write();
  driver->release({1});
  ASSERT_TRUE(granted(*driver, claim(2, 2, 2)).ok()) << "creating it refreshes the driver's list";
  const auto again = granted(*driver, claim(1, 2, 0));
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_THAT(instances(), UnorderedElementsAre("2g@0", "2g@2"));
}

TEST(MigDriver, RefusesInvalidClaims) {
  const FakeGpus machine(kH100);
  const auto driver = make_driver();
  EXPECT_EQ(driver->grant({{1}, {42}}).status().code(), StatusCode::invalid) << "no instance";
  EXPECT_EQ(driver->grant(claim(1, 3, 2)).status().code(), StatusCode::invalid) << "no 3g@2";
  Claim other = claim(1, 3, 4);
  other.share = {40};
  EXPECT_EQ(driver->grant(other).status().code(), StatusCode::invalid) << "a 3g is 42 %";
  EXPECT_THAT(instances(), IsEmpty());
}

TEST(MigDriver, RefusesAnotherGeometryWithTheFirstDifference) {
  const FakeGpus machine(kH100 + "mig_slices 4\n");
  EXPECT_TRUE(names(try_to_make("h100").status(), "GPU-aa", "1g", "0, 1, 2, 3", "h100"));
  machine.write(kH100);
  EXPECT_EQ(try_to_make("a30").status().code(), StatusCode::invalid);
  machine.write("gpu\nuuid GPU-aa\nmemory_mib 40960\nmig 1\n");
  EXPECT_TRUE(names(try_to_make("a100-80").status(), "a100-80"));
  EXPECT_TRUE(try_to_make("a100-40").ok());
  machine.write("gpu\nuuid GPU-aa\nmemory_mib 81559\nmig 0\n");
  EXPECT_TRUE(names(try_to_make().status(), "-mig 1"));
}

// ---- several processes on an instance

TEST(MigDriver, ProcessesOfAnInstanceShareItsOwnDaemon) {
  const FakeGpus machine(kH100);
  const FakeMps mps;
  auto made = try_to_make("h100", 2, mps.options());
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const auto driver = std::move(made).value();
  const auto one = granted(*driver, claim(1, 3, 0));
  ASSERT_TRUE(one.ok()) << one.status().to_string();
  Claim second = claim(2, 3, 0);
  second.memory_bytes = 4ULL << 30U;
  const auto two = driver->grant(second);
  ASSERT_TRUE(two.ok()) << two.status().to_string();
  const auto& environment = one.value().environment;
  const std::string uuid = environment.at("CUDA_VISIBLE_DEVICES");
  EXPECT_TRUE(uuid.starts_with("MIG-")) << uuid;
  EXPECT_EQ(environment.at("CUDA_MPS_PIPE_DIRECTORY"), mps.pid_file(uuid).parent_path());
  EXPECT_EQ(environment.at("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "100");
  EXPECT_EQ(environment.at("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0=19777M")
      << "half of the instance's memory";
  EXPECT_EQ(two.value().environment.at("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0=6144M");
  EXPECT_TRUE(has_line(mps.recorded("environment"), "CUDA_VISIBLE_DEVICES=" + uuid));
  EXPECT_EQ(driver->grant(claim(3, 3, 0)).status().code(), StatusCode::unavailable) << "full";

  // Each instance has its own daemon.
  const auto other = granted(*driver, claim(4, 3, 4));
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  EXPECT_NE(other.value().environment.at("CUDA_MPS_PIPE_DIRECTORY"), mps.pid_file(uuid));

  // A daemon stops before its instance is destroyed.
  driver->release({1});
  driver->release({2});
  ASSERT_TRUE(granted(*driver, claim(5, 4, 0)).ok());
  EXPECT_FALSE(std::filesystem::exists(mps.pid_file(uuid)));
  EXPECT_TRUE(mps.received("quit"));
}

TEST(MigDriver, EndsAClientThroughItsInstancesDaemon) {
  const pid_t victim = ::fork();
  if (victim == 0) {
    for (;;) ::pause();
  }
  const FakeGpus machine(kH100);
  const FakeMps mps;
  auto driver = try_to_make("h100", 2, mps.options());
  ASSERT_TRUE(granted(*driver.value(), claim(1, 3, 0)).ok());
  mps.set("servers", "701\n");
  mps.set("clients", std::to_string(victim) + "\n");
  EXPECT_TRUE(driver.value()->end({1}, victim));
  siginfo_t ended{};
  EXPECT_TRUE(becomes_true([&] {
    return ::waitid(P_PID, static_cast<id_t>(victim), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           ended.si_pid == victim;
  }));
  ::waitpid(victim, nullptr, 0);
  EXPECT_TRUE(mps.received("terminate_client 701 " + std::to_string(victim)));
  EXPECT_FALSE(driver.value()->end({7}, victim)) << "an unknown gpulet";
}

TEST(MigDriver, RetriesADaemonThatDoesNotStart) {
  const FakeGpus machine(kH100);
  const FakeMps mps;
  mps.set("refuse");
  auto driver = try_to_make("h100", 2, mps.options());
  ASSERT_TRUE(driver.ok());
  std::string message;
  ASSERT_TRUE(becomes_true([&] {
    message = driver.value()->grant(claim(1, 3, 0)).status().message();
    return message.find("told to refuse") != std::string::npos;
  })) << message;
  EXPECT_FALSE(driver.value()->ready());
  mps.clear("refuse");
  EXPECT_TRUE(granted(*driver.value(), claim(1, 3, 0)).ok());
  MpsOptions nothing = mps.options();
  nothing.control = "nvidia-cuda-mps-control-of-nobody";
  EXPECT_TRUE(names(try_to_make("h100", 2, nothing).status(), "nvidia-cuda-mps-control-of-nobody"));
}

// ---- any order of claims

RC_GTEST_PROP(MigDriver, GrantedInstancesExistUntilReleasedInAnyOrderOfClaims, ()) {
  const std::string name = *rc::gen::element<std::string>("h100", "a30");
  const MigGeometry geometry = MigGeometry::of(name).value();
  const std::string fewer = name == "a30" ? "mig_slices 4\n" : "";
  const FakeGpus machine("gpu\nuuid GPU-aa\nmig 1\n" + fewer);
  std::vector<MigInstance> all;
  for (const MigProfile& profile : geometry.profiles()) {
    for (const std::uint32_t start : profile.starts()) all.push_back({profile.slices, start});
  }
  auto driver = try_to_make(name);
  RC_ASSERT(driver.ok());
  std::map<std::uint64_t, std::pair<MigInstance, std::string>> held;
  const auto steps = *rc::gen::container<std::vector<std::size_t>>(
      12, rc::gen::inRange<std::size_t>(0, all.size() * 2));
  std::uint64_t next = 1;
  for (const std::size_t step : steps) {
    if (step >= all.size() && !held.empty()) {
      const auto gone = std::next(held.begin(), static_cast<long>(step % held.size()));
      driver.value()->release({gone->first});
      held.erase(gone);
    } else {
      const MigInstance instance = all[step % all.size()];
      const auto grant =
          granted(*driver.value(), claim(next, instance.slices, instance.start, name));
      const bool free = std::none_of(held.begin(), held.end(), [&](const auto& other) {
        return other.second.first == instance || !geometry.compatible(other.second.first, instance);
      });
      RC_ASSERT(grant.ok() == free);
      if (free) held[next] = {instance, grant.value().environment.at("CUDA_VISIBLE_DEVICES")};
      ++next;
    }
    // The fake refuses instances that overlap.
    std::set<std::string> uuids;
    for (const FakeMigInstance& one : FakeMig::read().instances) {
      RC_ASSERT(one.whole);
      uuids.insert(one.uuid());
    }
    for (const auto& [gpulet, what] : held) RC_ASSERT(uuids.contains(what.second));
  }
}

}  // namespace
}  // namespace gpulet::partition

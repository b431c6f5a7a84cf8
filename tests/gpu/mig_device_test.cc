// MIG through the fake NVML, which holds instances to its own bits of the memory slices.
#include "gpulet/gpu/mig_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tests/support/gpu/fake_gpus.h"
#include "tests/support/gpu/fake_mig.h"

namespace gpulet::gpu {
namespace {

using support::FakeGpus;
using support::FakeMig;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kGpu = "gpu\nuuid GPU-aa\nmemory_mib 81559\n";
const std::string kDivided = kGpu + "mig 1\n";

Result<MigDevice> opened(const std::string& uuid = "GPU-aa") {
  return MigDevice::open(uuid, FakeGpus::nvml());
}

std::vector<std::string> names(const Result<std::vector<MigDeviceInstance>>& instances) {
  std::vector<std::string> names;
  for (const MigDeviceInstance& instance : instances.value()) names.push_back(to_string(instance));
  return names;
}

TEST(MigDevice, TellsThePlainProfilesAndWhereTheyMayBe) {
  const FakeGpus machine(kDivided);
  const auto device = opened();
  ASSERT_TRUE(device.ok()) << device.status().to_string();
  const auto profiles = device.value().profiles();
  ASSERT_EQ(profiles.size(), 5U) << "without those of extra engines or memory";
  EXPECT_EQ(profiles[0].slices, 1U);
  EXPECT_EQ(profiles[2].slices, 3U);
  EXPECT_EQ(profiles[2].memory_slices, 4U);
  EXPECT_EQ(profiles[2].sms, 60U);
  EXPECT_EQ(profiles[2].starts, (std::vector<std::uint32_t>{0, 4}));
  EXPECT_EQ(profiles[4].sms, 132U);
}

TEST(MigDevice, MakesAnInstanceThatCudaCanNameAndDestroysIt) {
  const FakeGpus machine(kDivided);
  const auto device = opened();
  const auto large = device.value().create(3, 4);
  ASSERT_TRUE(large.ok()) << large.status().to_string();
  EXPECT_THAT(large.value().uuid, HasSubstr("MIG-"));
  EXPECT_EQ(large.value().sms, 60U);
  const auto small = device.value().create(1, 0);
  ASSERT_TRUE(small.ok()) << small.status().to_string();
  EXPECT_NE(small.value().uuid, large.value().uuid);
  EXPECT_EQ(device.value().instances().value(),
            (std::vector<MigDeviceInstance>{small.value(), large.value()}));

  EXPECT_TRUE(device.value().destroy(large.value()).ok());
  EXPECT_THAT(names(device.value().instances()), ElementsAre("1g@0"));
  EXPECT_TRUE(device.value().destroy(large.value()).ok()) << "it is gone already";
  const auto other = device.value().create(2, 4);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other.value().id, large.value().id) << "ids are given again";
  EXPECT_TRUE(device.value().destroy(large.value()).ok());
  EXPECT_THAT(names(device.value().instances()), ElementsAre("1g@0", "2g@4"));
}

TEST(MigDevice, RefusesWhatTheGpuDoesNotHaveAndWhatItHasNoPlaceFor) {
  const FakeGpus machine(kDivided);
  const auto device = opened();
  EXPECT_EQ(device.value().create(5, 0).status().code(), StatusCode::invalid);
  EXPECT_EQ(device.value().create(3, 2).status().code(), StatusCode::invalid);
  ASSERT_TRUE(device.value().create(3, 0).ok());
  const Status taken = device.value().create(1, 3).status();
  EXPECT_EQ(taken.code(), StatusCode::unavailable);
  EXPECT_THAT(taken.message(),
              AllOf(HasSubstr("1g@3"), HasSubstr("place is taken"), HasSubstr("GPU-aa")));
  EXPECT_TRUE(device.value().create(3, 4).ok());
}

TEST(MigDevice, SeesInstancesThatSomebodyElseMade) {
  const FakeGpus machine(kDivided);
  FakeMig others;
  others.add(0, 2, 4).whole = true;
  others.add(0, 9, 0).whole = true;  // 1g with twice the memory
  others.add(0, 0, 2);               // without a compute instance
  others.write();
  const auto device = opened();
  const auto instances = device.value().instances().value();
  ASSERT_EQ(instances.size(), 3U);
  EXPECT_EQ(instances[0].memory_slices, 2U);
  EXPECT_NE(instances[0].uuid, "");
  EXPECT_EQ(instances[1].uuid, "") << "nothing can run on it";
  EXPECT_EQ(to_string(instances[2]), "3g@4");
  for (const auto& instance : instances) EXPECT_TRUE(device.value().destroy(instance).ok());
  EXPECT_THAT(names(device.value().instances()), IsEmpty());
}

TEST(MigDevice, AnInstanceInUseStaysAndTheFailureSaysWhoseItIs) {
  const FakeGpus machine(kDivided);
  const auto device = opened();
  const auto made = device.value().create(2, 2);
  machine.write(kDivided + "mig_in_use 2\n");
  const Status refused = device.value().destroy(made.value());
  EXPECT_EQ(refused.code(), StatusCode::unavailable);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("2g@2 is in use by process 4711"), HasSubstr("DCGM")));
  EXPECT_EQ(device.value().instances().value(), std::vector{made.value()});
  machine.write(kDivided);
  EXPECT_TRUE(device.value().destroy(made.value()).ok());
}

TEST(MigDevice, LeavesNothingBehindWhereItsComputeInstanceCannotBeMade) {
  const FakeGpus machine("fail_nvmlGpuInstanceCreateComputeInstance 999\n" + kDivided);
  const auto device = opened();
  const Status failed = device.value().create(7, 0).status();
  EXPECT_EQ(failed.code(), StatusCode::internal);
  EXPECT_THAT(failed.message(), AllOf(HasSubstr("compute instance of 7g@0"), HasSubstr("999")));
  EXPECT_THAT(names(device.value().instances()), IsEmpty());
}

TEST(MigDevice, SaysWhatToRunWhereMigIsOffAndNeverChangesTheMode) {
  const FakeGpus machine(kGpu + "mig 0\n");
  const Status off = opened().status();
  EXPECT_EQ(off.code(), StatusCode::unavailable);
  EXPECT_THAT(off.message(), HasSubstr("nvidia-smi -i GPU-aa -mig 1 as root"));
  machine.write(kGpu + "mig 0\nmig_later 1\n");
  EXPECT_THAT(opened().status().message(), HasSubstr("nvidia-smi -r"));
  machine.write(kGpu + "mig -1\n");
  EXPECT_THAT(opened().status().message(), HasSubstr("knows no MIG"));
  EXPECT_EQ(opened("GPU-bb").status().code(), StatusCode::not_found);
  machine.write(kGpu + "mig 1\nmig_permission 0\n");
  const Status forbidden = opened().status();
  EXPECT_EQ(forbidden.code(), StatusCode::unavailable);
  EXPECT_THAT(forbidden.message(),
              AllOf(HasSubstr("Insufficient Permissions"), HasSubstr("as root")));
  machine.write(kGpu + "error 15\n");
  EXPECT_THAT(opened().status().message(), HasSubstr("GPU is lost"));
}

}  // namespace
}  // namespace gpulet::gpu

// Nvml and MigDevice against the fake NVML, which checks placements by its own bit masks.
#include "gpulet/gpu/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "tests/support/gpu/fake_gpus.h"
#include "tests/support/gpu/fake_mig.h"
#include "tests/support/names.h"

namespace gpulet::gpu::nvml_test {
namespace {

using support::FakeGpus;
using support::holds;
using support::names;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kTwo =
    "driver_version 580.95.05\n"
    "gpu\nuuid GPU-aa\nname NVIDIA H200\nmemory_mib 143771\nused_mib 771\n"
    "gpu\nuuid GPU-bb\nname NVIDIA A100-SXM4-80GB\nmemory_mib 81920\ncompute_major 8\nmig 1\n";

Result<Nvml> loaded() { return Nvml::load(FakeGpus::nvml()); }

TEST(Nvml, DescribesEveryGpu) {
  const FakeGpus machine(kTwo);
  const auto nvml = loaded();
  ASSERT_TRUE(nvml.ok()) << nvml.status().to_string();
  EXPECT_EQ(nvml.value().driver_version().value(), "580.95.05");
  const auto gpus = nvml.value().gpus().value();
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_EQ(gpus[0].uuid, "GPU-aa");
  EXPECT_EQ(gpus[0].name, "NVIDIA H200");
  EXPECT_EQ(gpus[0].memory_bytes, 143771ULL << 20U);
  EXPECT_EQ(gpus[0].compute_major, 9U);
  EXPECT_FALSE(gpus[0].mig_enabled);
  EXPECT_TRUE(gpus[0].shareable);
  EXPECT_EQ(gpus[1].number, 1U);
  EXPECT_TRUE(gpus[1].mig_enabled);
  EXPECT_EQ(gpus[1].fault, "");
}

TEST(Nvml, ReportsMemoryAndClocks) {
  const FakeGpus machine(kTwo);
  const auto nvml = loaded();
  const auto memory = nvml.value().memory("GPU-aa").value();
  EXPECT_EQ(memory.total_bytes, 143771ULL << 20U);
  EXPECT_EQ(memory.free_bytes, 143000ULL << 20U);
  const auto clocks = nvml.value().clocks("GPU-bb").value();
  EXPECT_EQ(clocks.sm_mhz, 1980U);
  EXPECT_EQ(clocks.memory_mhz, 3201U);
  EXPECT_EQ(nvml.value().memory("GPU-cc").status().code(), StatusCode::not_found);
}

TEST(Nvml, ReportsPowerWhereTheGpuDoes) {
  const FakeGpus machine(std::string(kTwo) +
                         "gpu\nuuid GPU-dd\npower_mw 312500\npower_limit_mw 700000\n"
                         "energy_mj 5000000000\n");
  const auto nvml = loaded();
  const GpuPower power = nvml.value().power("GPU-dd");
  EXPECT_EQ(power.usage_w, 312.5);
  EXPECT_EQ(power.limit_w, 700);
  EXPECT_EQ(power.energy_j, 5e6);
  EXPECT_EQ(nvml.value().power("GPU-aa").usage_w, std::nullopt);
  EXPECT_EQ(nvml.value().power("GPU-of-nobody").energy_j, std::nullopt);
}

TEST(Nvml, ReportsAMissingLibraryInOneLine) {
  const auto nvml = Nvml::load("libnvidia-ml-of-nobody.so.1");
  ASSERT_FALSE(nvml.ok());
  EXPECT_EQ(nvml.status().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(nvml.status(), "libnvidia-ml-of-nobody.so.1", "NVIDIA"));
  EXPECT_FALSE(holds(nvml.status(), "\n"));
}

TEST(Nvml, NamesTheMissingFunctionOfAnotherLibrary) {
  const FakeGpus machine("");
  const auto nvml = Nvml::load(FakeGpus::cuda());
  ASSERT_FALSE(nvml.ok());
  EXPECT_EQ(nvml.status().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(nvml.status(), "nvmlInit_v2"));
}

TEST(Nvml, ReportsAMissingDriverAndShutsNothingDown) {
  const FakeGpus machine("nvml_init 9\n");
  const auto nvml = loaded();
  ASSERT_FALSE(nvml.ok());
  EXPECT_EQ(nvml.status().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(nvml.status(), "Driver Not Loaded", "modprobe nvidia"));
  EXPECT_THAT(machine.calls(), ElementsAre("nvmlInit_v2"));
}

TEST(Nvml, ShutsDownOnceAfterAMove) {
  const FakeGpus machine(kTwo);
  {
    auto first = loaded();
    const Nvml second = std::move(first).value();
    EXPECT_EQ(second.gpus().value().size(), 2U);
  }
  EXPECT_THAT(machine.calls(), ElementsAre("nvmlInit_v2", "nvmlShutdown"));
}

TEST(Nvml, AcceptsAMachineWithoutGpus) {
  const FakeGpus machine("");
  EXPECT_THAT(loaded().value().gpus().value(), IsEmpty());
}

TEST(Nvml, ALostGpuHasAFaultAndTheOthersWork) {
  const FakeGpus machine(kTwo);
  const auto nvml = loaded();
  ASSERT_TRUE(nvml.value().memory("GPU-aa").ok());
  machine.write("gpu\nuuid GPU-aa\nerror 15\ngpu\nuuid GPU-bb\n");
  const Status lost = nvml.value().memory("GPU-aa").status();
  EXPECT_EQ(lost.code(), StatusCode::unavailable);
  EXPECT_TRUE(names(lost, "GPU-aa", "GPU is lost"));
  const auto gpus = nvml.value().gpus().value();
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_TRUE(names(gpus[0].fault, "GPU is lost"));
  EXPECT_EQ(gpus[1].fault, "");
  EXPECT_EQ(choose_gpu(gpus, "").value().uuid, "GPU-bb");
  EXPECT_EQ(choose_gpu(gpus, "0").status().code(), StatusCode::unavailable);
}

TEST(Nvml, ReportsGpusWithoutMigOrSharing) {
  const FakeGpus machine("gpu\nuuid GPU-aa\nmig -1\ncompute_mode 2\n");
  const auto gpus = loaded().value().gpus().value();
  EXPECT_EQ(gpus[0].fault, "");
  EXPECT_FALSE(gpus[0].mig_enabled);
  EXPECT_FALSE(gpus[0].shareable);
}

GpuInfo gpu(std::uint32_t number, const std::string& uuid, const std::string& fault = "") {
  GpuInfo info;
  info.number = number;
  info.uuid = uuid;
  info.fault = fault;
  return info;
}

const std::vector<GpuInfo> kThree = {gpu(0, "GPU-12ab-0"), gpu(1, "GPU-12cd-0"),
                                     gpu(2, "GPU-9fff-0")};

TEST(ChooseGpu, SelectsByNumberUuidOrPrefix) {
  EXPECT_EQ(choose_gpu(kThree, "").value().number, 0U);
  EXPECT_EQ(choose_gpu(kThree, "1").value().number, 1U);
  EXPECT_EQ(choose_gpu(kThree, "GPU-12cd-0").value().number, 1U);
  EXPECT_EQ(choose_gpu(kThree, "GPU-9").value().number, 2U);
}

TEST(ChooseGpu, ListsTheGpusWhereNoneMatches) {
  for (const char* const wanted : {"3", "99999999999", "GPU-7", "gpu"}) {
    const auto chosen = choose_gpu(kThree, wanted);
    ASSERT_FALSE(chosen.ok()) << wanted;
    EXPECT_EQ(chosen.status().code(), StatusCode::not_found);
    EXPECT_TRUE(names(chosen.status(), wanted, "GPU-12ab-0", "GPU-12cd-0"));
  }
  EXPECT_EQ(choose_gpu({}, "").status().code(), StatusCode::not_found);
}

TEST(ChooseGpu, RefusesAnAmbiguousPrefix) {
  const auto chosen = choose_gpu(kThree, "GPU-12");
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.status().code(), StatusCode::invalid);
  EXPECT_TRUE(names(chosen.status(), "GPU-12ab-0", "GPU-12cd-0"));
}

TEST(ChooseGpu, ReportsTheFaultWhereAllGpusAreFaulty) {
  const auto chosen = choose_gpu({gpu(0, "", "it is lost")}, "");
  EXPECT_EQ(chosen.status(), Status(StatusCode::unavailable, "it is lost"));
}

using support::FakeMig;

const std::string kGpu = "gpu\nuuid GPU-aa\nmemory_mib 81559\n";
const std::string kDivided = kGpu + "mig 1\n";

Result<MigDevice> opened(const std::string& uuid = "GPU-aa") {
  return MigDevice::open(uuid, FakeGpus::nvml());
}

std::vector<std::string> names(const Result<std::vector<MigDeviceInstance>>& instances) {
  std::vector<std::string> names;
  for (const MigDeviceInstance& instance : instances.value())
    names.push_back(std::to_string(instance.slices) + "g@" + std::to_string(instance.start));
  return names;
}

TEST(MigDevice, ListsThePlainProfilesAndTheirStarts) {
  const FakeGpus machine(kDivided);
  const auto device = opened();
  ASSERT_TRUE(device.ok()) << device.status().to_string();
  const auto profiles = device.value().profiles();
  ASSERT_EQ(profiles.size(), 5U) << "without profiles with extra engines or memory";
  EXPECT_EQ(profiles[0].slices, 1U);
  EXPECT_EQ(profiles[2].slices, 3U);
  EXPECT_EQ(profiles[2].memory_slices, 4U);
  EXPECT_EQ(profiles[2].sms, 60U);
  EXPECT_EQ(profiles[2].starts, (std::vector<std::uint32_t>{0, 4}));
  EXPECT_EQ(profiles[4].sms, 132U);
}

TEST(MigDevice, CreatesAndDestroysInstances) {
  const FakeGpus machine(kDivided);
  const auto device = opened();
  const auto large = device.value().create(3, 4);
  ASSERT_TRUE(large.ok()) << large.status().to_string();
  EXPECT_TRUE(large.value().uuid.starts_with("MIG-")) << large.value().uuid;
  EXPECT_EQ(large.value().sms, 60U);
  const auto small = device.value().create(1, 0);
  ASSERT_TRUE(small.ok()) << small.status().to_string();
  EXPECT_NE(small.value().uuid, large.value().uuid);
  EXPECT_EQ(device.value().instances().value(),
            (std::vector<MigDeviceInstance>{small.value(), large.value()}));

  EXPECT_TRUE(device.value().destroy(large.value()).ok());
  EXPECT_THAT(names(device.value().instances()), ElementsAre("1g@0"));
  EXPECT_TRUE(device.value().destroy(large.value()).ok()) << "already gone";
  const auto other = device.value().create(2, 4);
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other.value().id, large.value().id) << "ids are reused";
  EXPECT_TRUE(device.value().destroy(large.value()).ok());
  EXPECT_THAT(names(device.value().instances()), ElementsAre("1g@0", "2g@4"));
}

TEST(MigDevice, RefusesUnknownAndOverlappingInstances) {
  const FakeGpus machine(kDivided);
  const auto device = opened();
  EXPECT_EQ(device.value().create(5, 0).status().code(), StatusCode::invalid);
  EXPECT_EQ(device.value().create(3, 2).status().code(), StatusCode::invalid);
  ASSERT_TRUE(device.value().create(3, 0).ok());
  const Status taken = device.value().create(1, 3).status();
  EXPECT_EQ(taken.code(), StatusCode::unavailable);
  EXPECT_TRUE(names(taken, "1g@3", "GPU-aa"));
  EXPECT_TRUE(device.value().create(3, 4).ok());
}

TEST(MigDevice, SeesInstancesOfOtherPrograms) {
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
  EXPECT_EQ(instances[1].uuid, "") << "unusable as a whole";
  EXPECT_EQ(to_string(instances[2]), "3g@4");
  for (const auto& instance : instances) EXPECT_TRUE(device.value().destroy(instance).ok());
  EXPECT_THAT(names(device.value().instances()), IsEmpty());
}

TEST(MigDevice, DoesNotDestroyAnInstanceInUseAndNamesItsProcess) {
  const FakeGpus machine(kDivided);
  const auto device = opened();
  const auto made = device.value().create(2, 2);
  machine.write(kDivided + "mig_in_use 2\n");
  const Status refused = device.value().destroy(made.value());
  EXPECT_EQ(refused.code(), StatusCode::unavailable);
  EXPECT_TRUE(names(refused, "2g@2", "4711"));
  EXPECT_EQ(device.value().instances().value(), std::vector{made.value()});
  machine.write(kDivided);
  EXPECT_TRUE(device.value().destroy(made.value()).ok());
}

TEST(MigDevice, LeavesNothingBehindAfterAFailedCreation) {
  const FakeGpus machine("fail_nvmlGpuInstanceCreateComputeInstance 999\n" + kDivided);
  const auto device = opened();
  const Status failed = device.value().create(7, 0).status();
  EXPECT_EQ(failed.code(), StatusCode::internal);
  EXPECT_TRUE(names(failed, "7g@0", "999"));
  EXPECT_THAT(names(device.value().instances()), IsEmpty());
}

TEST(MigDevice, NamesTheCommandWhereMigIsOff) {
  const FakeGpus machine(kGpu + "mig 0\n");
  const Status off = opened().status();
  EXPECT_EQ(off.code(), StatusCode::unavailable);
  EXPECT_TRUE(names(off, "nvidia-smi -i GPU-aa -mig 1"));
  machine.write(kGpu + "mig 0\nmig_later 1\n");
  EXPECT_TRUE(names(opened().status(), "nvidia-smi -r"));
  machine.write(kGpu + "mig -1\n");
  EXPECT_EQ(opened().status().code(), StatusCode::unavailable);
  EXPECT_EQ(opened("GPU-bb").status().code(), StatusCode::not_found);
  machine.write(kGpu + "mig 1\nmig_permission 0\n");
  const Status forbidden = opened().status();
  EXPECT_EQ(forbidden.code(), StatusCode::unavailable);
  EXPECT_TRUE(names(forbidden, "Insufficient Permissions", "root"));
  machine.write(kGpu + "error 15\n");
  EXPECT_TRUE(names(opened().status(), "GPU is lost"));
}

}  // namespace

}  // namespace gpulet::gpu::nvml_test

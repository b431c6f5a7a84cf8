#include "gpulet/gpu/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/gpu/fake_gpus.h"

namespace gpulet::gpu {
namespace {

using support::FakeGpus;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* kTwo =
    "driver_version 580.95.05\n"
    "gpu\nuuid GPU-aa\nname NVIDIA H200\nmemory_mib 143771\nused_mib 771\n"
    "gpu\nuuid GPU-bb\nname NVIDIA A100-SXM4-80GB\nmemory_mib 81920\ncompute_major 8\nmig 1\n";

Result<Nvml> loaded() { return Nvml::load(FakeGpus::nvml()); }

TEST(Nvml, TellsOfEveryGpu) {
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

TEST(Nvml, TellsMemoryAndClocksOfOneGpu) {
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

TEST(Nvml, TellsWhatAGpuDrawsWhereItKnows) {
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

TEST(Nvml, WithoutALibraryOneLineSaysWhy) {
  const auto nvml = Nvml::load("libnvidia-ml-of-nobody.so.1");
  ASSERT_FALSE(nvml.ok());
  EXPECT_EQ(nvml.status().code(), StatusCode::unavailable);
  EXPECT_THAT(nvml.status().message(),
              AllOf(HasSubstr("libnvidia-ml-of-nobody.so.1"), HasSubstr("install NVIDIA's driver"),
                    Not(HasSubstr("\n"))));
}

TEST(Nvml, ALibraryOfSomethingElseNamesWhatItLacks) {
  const FakeGpus machine("");
  const auto nvml = Nvml::load(FakeGpus::cuda());
  ASSERT_FALSE(nvml.ok());
  EXPECT_EQ(nvml.status().code(), StatusCode::unavailable);
  EXPECT_THAT(nvml.status().message(), HasSubstr("has no nvmlInit_v2"));
}

TEST(Nvml, WithoutADriverOneLineSaysWhyAndNothingIsShutDown) {
  const FakeGpus machine("nvml_init 9\n");
  const auto nvml = loaded();
  ASSERT_FALSE(nvml.ok());
  EXPECT_EQ(nvml.status().code(), StatusCode::unavailable);
  EXPECT_THAT(nvml.status().message(),
              AllOf(HasSubstr("Driver Not Loaded"), HasSubstr("modprobe nvidia")));
  EXPECT_THAT(machine.calls(), ElementsAre("nvmlInit_v2"));
}

TEST(Nvml, IsShutDownOnceAlsoWhenMoved) {
  const FakeGpus machine(kTwo);
  {
    auto first = loaded();
    const Nvml second = std::move(first).value();
    EXPECT_EQ(second.gpus().value().size(), 2U);
  }
  EXPECT_THAT(machine.calls(), ElementsAre("nvmlInit_v2", "nvmlShutdown"));
}

TEST(Nvml, NoGpuIsNoFailure) {
  const FakeGpus machine("");
  EXPECT_THAT(loaded().value().gpus().value(), IsEmpty());
}

TEST(Nvml, AGpuThatIsPulledOutHasAFaultAndTheOthersGoOn) {
  const FakeGpus machine(kTwo);
  const auto nvml = loaded();
  ASSERT_TRUE(nvml.value().memory("GPU-aa").ok());
  machine.write("gpu\nuuid GPU-aa\nerror 15\ngpu\nuuid GPU-bb\n");
  const Status lost = nvml.value().memory("GPU-aa").status();
  EXPECT_EQ(lost.code(), StatusCode::unavailable);
  EXPECT_THAT(lost.message(), AllOf(HasSubstr("GPU-aa"), HasSubstr("GPU is lost")));
  const auto gpus = nvml.value().gpus().value();
  ASSERT_EQ(gpus.size(), 2U);
  EXPECT_THAT(gpus[0].fault, HasSubstr("GPU is lost"));
  EXPECT_EQ(gpus[1].fault, "");
  EXPECT_EQ(choose_gpu(gpus, "").value().uuid, "GPU-bb");
  EXPECT_EQ(choose_gpu(gpus, "0").status().code(), StatusCode::unavailable);
}

TEST(Nvml, AGpuWithoutMigOrSharingSaysSo) {
  const FakeGpus machine("gpu\nuuid GPU-aa\nmig -1\ncompute_mode 2\n");
  const auto gpus = loaded().value().gpus().value();
  EXPECT_EQ(gpus[0].fault, "");
  EXPECT_FALSE(gpus[0].mig_enabled);
  EXPECT_FALSE(gpus[0].shareable);
}

}  // namespace
}  // namespace gpulet::gpu

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <optional>

#include "gpulet/gpu/cuda_driver.h"
#include "tests/support/gpu/fake_gpus.h"

namespace gpulet::gpu {
namespace {

using support::FakeGpus;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kOneGpu = "gpu\nuuid GPU-00112233-4455-6677-8899-aabbccddeeff\n";

TEST(RegisteredMemory, IsRegisteredUnderAContextForAsLongAsItIsHeld) {
  const FakeGpus machine(kOneGpu);
  auto driver = CudaDriver::load(FakeGpus::cuda());
  ASSERT_TRUE(driver.ok()) << driver.status().to_string();
  std::array<std::byte, 4096> memory{};
  {
    std::optional<CudaDriver> dropped_first(std::move(driver).value());
    const auto registered = dropped_first->register_memory(0, memory);
    ASSERT_TRUE(registered.ok()) << registered.status().to_string();
    dropped_first.reset();
  }
  EXPECT_THAT(machine.calls(),
              ElementsAre("cuInit", "cuDevicePrimaryCtxRetain 0", "cuMemHostRegister_v2 4096",
                          "cuMemHostUnregister", "cuDevicePrimaryCtxRelease_v2 0"));
}

TEST(RegisteredMemory, WhatTheDriverRefusesIsToldAndLeavesNothingBehind) {
  const FakeGpus machine(std::string("fail_cuMemHostRegister_v2 801\n") + kOneGpu);
  const auto driver = CudaDriver::load(FakeGpus::cuda());
  std::array<std::byte, 64> memory{};
  const Status refused = driver.value().register_memory(0, memory).status();
  EXPECT_EQ(refused.code(), StatusCode::unavailable);
  EXPECT_THAT(refused.message(), HasSubstr("64 bytes of shared memory"));
  EXPECT_THAT(machine.calls(), ElementsAre("cuInit", "cuDevicePrimaryCtxRetain 0",
                                           "cuDevicePrimaryCtxRelease_v2 0"));
}

TEST(CudaDriver, IsHeldWhereItsContextsAreAnMpsDaemons) {
  const FakeGpus machine(std::string(kOneGpu) + "gpu\nuuid GPU-1\nin_mps 1\nsms 66\n");
  const auto driver = CudaDriver::load(FakeGpus::cuda());
  EXPECT_FALSE(driver.value().is_held(0).value());
  EXPECT_TRUE(driver.value().is_held(1).value());
  EXPECT_EQ(driver.value().is_held(2).status().code(), StatusCode::not_found);
}

TEST(CudaDriver, IsHeldOnTheMigInstanceThatItWasGivenAndInItsDaemonUnlessItHasNone) {
  const std::string instance = "MIG-00112233-4455-6677-8899-aabbccddeeff";
  const FakeGpus machine("gpu\nuuid " + instance + "\nsms 16\n");
  const auto driver = CudaDriver::load(FakeGpus::cuda());
  ::setenv("CUDA_VISIBLE_DEVICES", instance.c_str(), 1);
  EXPECT_FALSE(driver.value().is_held(0).value()) << "several would share it, and no daemon has it";
  ::setenv("CUDA_MPS_PIPE_DIRECTORY", kNoMpsDirectory, 1);
  EXPECT_TRUE(driver.value().is_held(0).value());
  ::unsetenv("CUDA_MPS_PIPE_DIRECTORY");
  machine.write("gpu\nuuid " + instance + "\nsms 16\nin_mps 1\n");
  EXPECT_TRUE(driver.value().is_held(0).value());
  machine.write("gpu\nuuid GPU-ffffffff-0000-0000-0000-000000000000\n");
  EXPECT_EQ(driver.value().is_held(0).status().code(), StatusCode::not_found) << "the whole GPU";
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

}  // namespace
}  // namespace gpulet::gpu

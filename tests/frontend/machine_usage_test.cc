#include "frontend/machine_usage.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/temporary_folder.h"

namespace gpulet::frontend {
namespace {

class MachineUsageTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) { folder_.write(name, text); }

  support::TemporaryFolder folder_;
  MachineWatch watch_{folder_.path()};
};

TEST_F(MachineUsageTest, CpuTimeCountsSinceTheLookBefore) {
  write("stat", "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n");
  EXPECT_EQ(watch_.look().cpu, std::nullopt);
  write("stat", "cpu  120 10 120 740 110 0 0 0 0 0\n");  // 100 more, 50 of them idle
  EXPECT_EQ(watch_.look().cpu, 0.5);
  EXPECT_EQ(watch_.look().cpu, 0.5);  // nothing has passed since
}

TEST_F(MachineUsageTest, MemoryThatIsAvailableIsNotUsed) {
  write("meminfo", "MemTotal:  1000 kB\nMemFree:  100 kB\nMemAvailable:  400 kB\nHugePages: 0\n");
  const MachineUsage usage = watch_.look();
  EXPECT_EQ(usage.memory_total_bytes, 1000U * 1024);
  EXPECT_EQ(usage.memory_used_bytes, 600U * 1024);
}

TEST_F(MachineUsageTest, WhatCannotBeReadIsLeftOut) {
  write("stat", "intr 5\n");
  write("meminfo", "MemTotal: many kB\n");
  const MachineUsage usage = watch_.look();
  EXPECT_EQ(usage.cpu, std::nullopt);
  EXPECT_EQ(usage.memory_total_bytes, std::nullopt);
  EXPECT_EQ(usage.memory_used_bytes, std::nullopt);
}

}  // namespace
}  // namespace gpulet::frontend

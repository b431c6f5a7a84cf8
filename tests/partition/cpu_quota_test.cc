// The contract of the cpu_quota driver, without time measurements.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "gpulet/partition/drivers/drivers.h"
#include "partition/drivers/cgroup.h"
#include "tests/support/names.h"

namespace gpulet::partition {
namespace {

using support::names;

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The CPU limit of a cgroup of either version, in cores.
double cores_of_cgroup(const std::filesystem::path& cgroup) {
  std::istringstream limits(text_of(cgroup / "cpu.max") + text_of(cgroup / "cpu.cfs_quota_us") +
                            " " + text_of(cgroup / "cpu.cfs_period_us"));
  double quota_us = 0;
  double period_us = 0;
  limits >> quota_us >> period_us;
  return quota_us / period_us;
}

// A child that sleeps until it is killed.
class IdleChild {
 public:
  IdleChild() : pid_(::fork()) {
    if (pid_ == 0) {
      for (;;) ::pause();
    }
  }
  ~IdleChild() { end(); }
  IdleChild(const IdleChild&) = delete;
  IdleChild& operator=(const IdleChild&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_;
};

// The cgroups of that backend below this process's own cgroup.
std::vector<std::filesystem::path> cgroups_of(pid_t backend) {
  std::vector<std::filesystem::path> found;
  for (const auto& place :
       find_cgroup_places(text_of("/proc/self/mountinfo"), text_of("/proc/self/cgroup"))) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(place.directory, error)) {
      if (owner_of_cgroup(entry.path().filename().string()) == backend)
        found.push_back(entry.path());
    }
  }
  return found;
}

class CpuQuotaDriverTest : public ::testing::TestWithParam<CpuMechanism> {
 protected:
  void SetUp() override {
    auto made = make_cpu_quota_driver({usable_cores().front()}, GetParam());
    if (!made.ok()) GTEST_SKIP() << made.status().to_string();
    driver_ = std::move(made).value();
  }

  std::unique_ptr<PartitionDriver> driver_;
};

INSTANTIATE_TEST_SUITE_P(Mechanisms, CpuQuotaDriverTest,
                         ::testing::Values(CpuMechanism::cgroup, CpuMechanism::pacing),
                         [](const auto& instance) {
                           return instance.param == CpuMechanism::cgroup ? "Cgroup" : "Pacing";
                         });

TEST_P(CpuQuotaDriverTest, RefusesInvalidSharesAndASecondGrant) {
  EXPECT_EQ(driver_->grant({{1}, {0}}).status().code(), StatusCode::invalid);
  EXPECT_EQ(driver_->grant({{1}, {101}}).status().code(), StatusCode::invalid);
  EXPECT_TRUE(driver_->grant({{1}, {40}}).ok());
  EXPECT_EQ(driver_->grant({{1}, {40}}).status().code(), StatusCode::internal);
}

TEST_P(CpuQuotaDriverTest, SetsThreadsToTheWholeCoresOfTheShare) {
  const auto granted = driver_->grant({{1}, {40}});
  ASSERT_TRUE(granted.ok());
  for (const auto* name : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}) {
    EXPECT_EQ(granted.value().environment.at(name), "1") << name;
  }
}

TEST_P(CpuQuotaDriverTest, SetsThreadsToAllCoresWithoutSpinningWhereAdjustable) {
  const auto granted = driver_->grant({.gpulet = {1}, .share = {1}, .adjustable = true});
  ASSERT_TRUE(granted.ok());
  EXPECT_EQ(granted.value().environment.at("OMP_NUM_THREADS"), "1") << "the device's";
  EXPECT_EQ(granted.value().environment.at("OMP_WAIT_POLICY"), "PASSIVE");
  EXPECT_TRUE(granted.value().read_at_start);
  const auto fixed = driver_->grant({{2}, {40}});
  ASSERT_TRUE(fixed.ok());
  EXPECT_FALSE(fixed.value().environment.contains("OMP_WAIT_POLICY"));
  EXPECT_FALSE(fixed.value().read_at_start);
}

TEST_P(CpuQuotaDriverTest, AdjustsTheCoresRepeatedly) {
  const IdleChild child;
  ASSERT_TRUE(driver_->grant({{1}, {40}}).ok());
  ASSERT_TRUE(driver_->attach({1}, child.pid()).ok());
  ASSERT_TRUE(driver_->adjust({1}, 0.2).ok());
  const auto expect_cores = [](double cores) {
    if (GetParam() != CpuMechanism::cgroup) return;  // pacing: partition_share measures it
    ASSERT_EQ(cgroups_of(::getpid()).size(), 1U);
    EXPECT_NEAR(cores_of_cgroup(cgroups_of(::getpid()).front()), cores, 1e-3);
  };
  expect_cores(1);  // loading
  ASSERT_TRUE(driver_->activate({1}).ok());
  expect_cores(0.2);
  for (const double cores : {0.35, 0.05, 0.001, 0.1, 1.0}) {
    const auto adjusted = driver_->adjust({1}, cores);
    ASSERT_TRUE(adjusted.ok()) << adjusted.to_string();
    expect_cores(cores);
  }
}

TEST_P(CpuQuotaDriverTest, RefusesInvalidCoresAndKeepsTheLimit) {
  const IdleChild child;
  EXPECT_EQ(driver_->adjust({1}, 0.5).code(), StatusCode::internal) << "it has no share";
  ASSERT_TRUE(driver_->grant({{1}, {40}}).ok());
  ASSERT_TRUE(driver_->attach({1}, child.pid()).ok());
  ASSERT_TRUE(driver_->activate({1}).ok());
  for (const double cores : {0.0, -1.0, 1.01, std::nan("")})
    EXPECT_EQ(driver_->adjust({1}, cores).code(), StatusCode::invalid) << cores;
  if (GetParam() == CpuMechanism::cgroup) {
    EXPECT_NEAR(cores_of_cgroup(cgroups_of(::getpid()).front()), 0.4, 1e-9);
  }
}

TEST_P(CpuQuotaDriverTest, ForgetsAdjustedCoresWithTheGrant) {
  if (GetParam() != CpuMechanism::cgroup) GTEST_SKIP() << "visible only in a cgroup";
  const IdleChild child;
  ASSERT_TRUE(driver_->grant({{1}, {40}}).ok());
  ASSERT_TRUE(driver_->adjust({1}, 0.9).ok());
  driver_->release({1});
  ASSERT_TRUE(driver_->grant({{1}, {40}}).ok());
  ASSERT_TRUE(driver_->attach({1}, child.pid()).ok());
  ASSERT_TRUE(driver_->activate({1}).ok());
  EXPECT_NEAR(cores_of_cgroup(cgroups_of(::getpid()).front()), 0.4, 1e-9);
}

TEST_P(CpuQuotaDriverTest, BindsAServingProcessToTheDevicesCores) {
  const IdleChild child;
  const auto cores_of_child = [&child] {
    cpu_set_t set;
    CPU_ZERO(&set);
    EXPECT_EQ(sched_getaffinity(child.pid(), sizeof set, &set), 0);
    return set;
  };
  ASSERT_TRUE(driver_->grant({{1}, {40}}).ok());
  const auto attached = driver_->attach({1}, child.pid());
  ASSERT_TRUE(attached.ok()) << attached.to_string();
  const cpu_set_t loading = cores_of_child();
  EXPECT_EQ(CPU_COUNT(&loading), static_cast<int>(usable_cores().size()));
  const auto activated = driver_->activate({1});
  ASSERT_TRUE(activated.ok()) << activated.to_string();
  const cpu_set_t serving = cores_of_child();
  EXPECT_EQ(CPU_COUNT(&serving), 1);
  EXPECT_TRUE(CPU_ISSET(usable_cores().front(), &serving));
}

TEST_P(CpuQuotaDriverTest, ForgetsReleasedIds) {
  IdleChild child;
  ASSERT_TRUE(driver_->grant({{1}, {40}}).ok());
  ASSERT_TRUE(driver_->attach({1}, child.pid()).ok());
  child.end();
  driver_->release({1});
  driver_->release({1});
  driver_->release({7});
  EXPECT_EQ(driver_->attach({1}, 1).code(), StatusCode::internal);
  EXPECT_EQ(driver_->activate({1}).code(), StatusCode::internal);
  EXPECT_TRUE(driver_->grant({{1}, {60}}).ok());
}

TEST_P(CpuQuotaDriverTest, LeavesNoCgroupBehind) {
  {
    IdleChild child;
    ASSERT_TRUE(driver_->grant({{1}, {40}}).ok());
    ASSERT_TRUE(driver_->attach({1}, child.pid()).ok());
    ASSERT_TRUE(driver_->activate({1}).ok());
    ASSERT_TRUE(driver_->grant({{2}, {60}}).ok());
    EXPECT_EQ(cgroups_of(::getpid()).size(), GetParam() == CpuMechanism::cgroup ? 2U : 0U);
  }
  driver_->release({1});
  driver_.reset();
  EXPECT_TRUE(cgroups_of(::getpid()).empty());
}

TEST(CpuQuota, RemovesTheCgroupsOfADeadBackend) {
  const auto cgroups = make_cpu_quota_driver({usable_cores().front()}, CpuMechanism::cgroup);
  if (!cgroups.ok()) GTEST_SKIP() << cgroups.status().to_string();
  const pid_t backend = ::fork();
  ASSERT_GE(backend, 0);
  if (backend == 0) {  // exits without clean-up
    auto driver = make_cpu_quota_driver({usable_cores().front()}, CpuMechanism::cgroup);
    ::_exit(driver.ok() && driver.value()->grant({{3}, {20}}).ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(backend, &status, 0), backend);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(cgroups_of(backend).size(), 1U);
  EXPECT_TRUE(make_cpu_quota_driver({usable_cores().front()}, CpuMechanism::cgroup).ok());
  EXPECT_TRUE(cgroups_of(backend).empty());
}

TEST(CpuQuota, RefusesCoresThatItDoesNotHave) {
  EXPECT_EQ(make_cpu_quota_driver({}).status().code(), StatusCode::invalid);
  const auto refused = make_cpu_quota_driver({100'000}).status();
  EXPECT_EQ(refused.code(), StatusCode::invalid);
  EXPECT_TRUE(names(refused, "100000"));
}

}  // namespace
}  // namespace gpulet::partition

// The devices with green contexts that a backend offers.
#include <gtest/gtest.h>

#include <string>

#include "backend/setup.h"
#include "tests/support/gpu/fake_gpus.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::backend {
namespace {

using support::FakeGpus;
using support::names;

const std::string kFirst = "GPU-11111111-2222-3333-4444-555555555555";
const std::string kSecond = "GPU-22222222-2222-3333-4444-555555555555";

std::string gpu(const std::string& uuid, const std::string& more = "") {
  return "gpu\nuuid " + uuid + "\n" + more;
}

class GreenSetupTest : public ::testing::Test {
 protected:
  static config::DeviceConfig described(std::vector<Share> sizes = {{20}, {80}}) {
    config::DeviceConfig device;
    device.type = "h200";
    device.partitioning = "green";
    device.sizes = std::move(sizes);
    return device;
  }
  Result<backend::Setup> set_up(const std::vector<config::DeviceConfig>& devices) {
    config::BackendConfig config;
    config.node = "n0";
    config.proxy_user = "root";
    config.model_store = folder_.path() / "store";
    config.proxy = folder_.write("proxy", "");
    config.devices = devices;
    return make_setup(config, {.nvml = FakeGpus::nvml(), .cuda = FakeGpus::cuda()});
  }
  StatusCode failure(const config::DeviceConfig& device) {
    return set_up({device}).status().code();
  }

  support::TemporaryFolder folder_;
  FakeGpus gpus_{gpu(kFirst, "memory_mib 143771\n") + gpu(kSecond)};
};

TEST_F(GreenSetupTest, OffersTheGpuWithItsTraits) {
  auto setup = set_up({described()});
  ASSERT_TRUE(setup.ok()) << setup.status().to_string();
  ASSERT_EQ(setup.value().devices.size(), 1U);
  const auto& device = setup.value().devices[0];
  EXPECT_EQ(device.gpu, kFirst);
  EXPECT_EQ(device.offer.mechanism, "green");
  EXPECT_NEAR(device.offer.traits.step_percent, 6.06, 0.01);
  EXPECT_EQ(device.offer.traits.change, partition::ChangeOfSize::in_place);
  EXPECT_EQ(device.offer.traits.fault, partition::FaultReach::device);
  EXPECT_DOUBLE_EQ(device.offer.device.memory_mb, 143771);
  EXPECT_EQ(device.offer.device.sizes, described().sizes) << "as configured";
  const auto granted = device.driver->grant({{1}, {20}});
  EXPECT_EQ(granted.value().environment.at("CUDA_VISIBLE_DEVICES"), kFirst);
}

TEST_F(GreenSetupTest, CountAssignsGpusInOrderAndGpuNamesOne) {
  auto both = described();
  both.count = 2;
  auto setup = set_up({both});
  ASSERT_TRUE(setup.ok()) << setup.status().to_string();
  EXPECT_EQ(setup.value().devices.at(1).gpu, kSecond);
  auto one = described();
  one.gpu = "GPU-2222";
  EXPECT_EQ(set_up({one}).value().devices.at(0).gpu, kSecond);
  EXPECT_EQ(set_up({both, one}).status().code(), StatusCode::invalid);
}

TEST_F(GreenSetupTest, ASizeBelowABlockIsInvalid) {
  const auto setup = set_up({described({{5}, {80}})});
  EXPECT_EQ(setup.status().code(), StatusCode::invalid);
  EXPECT_TRUE(names(setup.status(), "device 0 (h200)"));
}

TEST_F(GreenSetupTest, AGpuThatCannotBeDividedIsUnavailable) {
  gpus_.write("cuda_version 12020\n" + gpu(kFirst));
  EXPECT_EQ(failure(described()), StatusCode::unavailable);
  gpus_.write("cuda_init 100\n" + gpu(kFirst));
  EXPECT_EQ(failure(described()), StatusCode::unavailable);
  gpus_.write(gpu(kFirst, "mig 1\n"));
  EXPECT_EQ(failure(described()), StatusCode::unavailable);
  gpus_.write(gpu(kFirst, "compute_mode 2\n"));
  EXPECT_EQ(failure(described()), StatusCode::unavailable);
  gpus_.write(gpu(kFirst, "error 15\n"));
  EXPECT_EQ(failure(described()), StatusCode::unavailable);
}

TEST_F(GreenSetupTest, AnUnusableGpuIsAbsentAndOthersAreOffered) {
  gpus_.write(gpu(kFirst, "error 15\n") + gpu(kSecond));
  auto both = described();
  both.count = 2;
  auto setup = set_up({both});
  ASSERT_TRUE(setup.ok()) << setup.status().to_string();
  ASSERT_EQ(setup.value().devices.size(), 1U);
  EXPECT_EQ(setup.value().devices[0].gpu, kSecond);
  EXPECT_TRUE(names(setup.value().absent.at(0), "device 0 (h200)"));
}

}  // namespace
}  // namespace gpulet::backend

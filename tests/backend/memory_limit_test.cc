// A model that exceeds the memory limit of its gpulet, in a real backend.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/daemon.h"
#include "gpulet/base/sha256.h"
#include "gpulet/partition/drivers/drivers.h"
#include "tests/backend/frontend_end.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::backend::memory_limit_test {
namespace {

using support::names;

constexpr std::chrono::seconds kPatience(30);
constexpr std::uint64_t kMegabyte = std::uint64_t{1} << 20U;
const std::string kFile = "what stands in for the file of a model";

class MemoryLimitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto driver = partition::make_cpu_quota_driver(
        {partition::usable_cores().front()}, partition::CpuMechanism::automatic,
        partition::MemoryLimits{.factor = 1, .floor_bytes = 64 * kMegabyte});
    ASSERT_TRUE(driver.ok()) << driver.status().to_string();
    if (!driver.value()->traits().limits_memory)
      GTEST_SKIP() << "no cgroup with the memory controller may be written here";
    HostedDevice device;
    device.offer.device.key = {"n0", 0};
    device.offer.device.type = "cpu-core";
    device.offer.device.partitioning = "cpu_quota";
    device.offer.device.sizes = {{40}, {60}};
    device.offer.traits = driver.value()->traits();
    device.driver = std::move(driver).value();
    device.proxy_program = GPULET_PROXY_HOSTILE;
    config::BackendConfig config;
    config.node = "n0";
    config.frontends = {port_.address()};
    config.model_store = directory_.path();
    auto store = store::ModelStore::open(directory_.path());
    auto user = choose_proxy_user("");
    ASSERT_TRUE(store.ok() && user.ok());
    std::vector<HostedDevice> devices;
    devices.push_back(std::move(device));
    daemon_ = BackendDaemon::start(io_, {config, std::move(devices), std::move(store).value(),
                                         nullptr, std::move(user).value()});
    frontend_ = port_.accept(kPatience);
    ASSERT_NE(frontend_, nullptr);
    ASSERT_TRUE(run_until([this] { return !frontend_->heard<Hello>().empty(); }));
  }

  template <typename Condition>
  bool run_until(Condition condition) {
    return net::testing::run_until(io_, condition, kPatience);
  }

  // Starts a gpulet of the model "allocate", which allocates as many megabytes as its input says.
  void serve(std::uint64_t gpulet) {
    const TensorSpec number{"number", DataType::int64, {1}};
    CreateGpulet create{{gpulet}, 0, {40}, {{"allocate", sha256_of(kFile), {number}, {number}, 1}}};
    create.memory_mb = 64;
    frontend_->say(create);
    if (gpulet == 1) {
      ASSERT_TRUE(run_until([this] { return !frontend_->heard<ModelPieceRequest>().empty(); }));
      const auto bytes = std::as_bytes(std::span(kFile));
      frontend_->say(
          ModelPiece{sha256_of(kFile), 0, kFile.size(), Bytes::own({bytes.begin(), bytes.end()})});
    }
    ASSERT_TRUE(report_of(gpulet, GpuletState::ready));
  }
  std::optional<GpuletReport> report_of(std::uint64_t gpulet, GpuletState state) {
    std::optional<GpuletReport> found;
    run_until([&] {
      for (const auto& report : frontend_->heard<GpuletReport>()) {
        if (report.id.value == gpulet && report.state == state) found = report;
      }
      return found.has_value();
    });
    return found;
  }
  StatusCode take(std::uint64_t gpulet, std::int64_t megabytes) {
    Batch batch;
    batch.id = {++last_batch_};
    batch.gpulet = {gpulet};
    batch.model = "allocate";
    batch.count = 1;
    batch.start_within = kPatience;
    batch.expected_duration = std::chrono::milliseconds(100);
    std::vector<std::byte> input(sizeof megabytes);
    std::memcpy(input.data(), &megabytes, sizeof megabytes);
    batch.inputs = {Bytes::own(std::move(input))};
    frontend_->say(batch);
    EXPECT_TRUE(
        run_until([this] { return frontend_->heard<BatchResult>().size() == last_batch_; }));
    return frontend_->heard<BatchResult>().back().status.code();
  }

  support::TemporaryFolder directory_;
  net::asio::io_context io_{1};
  FrontendPort port_{io_};
  std::unique_ptr<BackendDaemon> daemon_;
  std::unique_ptr<FrontendEnd> frontend_;
  std::uint64_t last_batch_ = 0;
};

TEST_F(MemoryLimitTest, EndsAGpuletThatExceedsItsLimit) {
  serve(1);
  serve(2);
  EXPECT_EQ(take(1, 10), StatusCode::ok);
  EXPECT_EQ(take(1, 300), StatusCode::unavailable);
  const auto report = report_of(1, GpuletState::restarting);
  ASSERT_TRUE(report);
  EXPECT_TRUE(names(report->status, "\"proxy_memory\""));
  EXPECT_EQ(report->cause, FailureCause::model_crash) << "no fault of the node";
  EXPECT_EQ(take(2, 10), StatusCode::ok) << "its neighbour serves on";
}

}  // namespace
}  // namespace gpulet::backend::memory_limit_test

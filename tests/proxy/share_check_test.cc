// The check that a proxy has the share that it expects, alone and in a proxy.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>

#include "gpulet/executor/simulated_executor.h"
#include "gpulet/partition/driver.h"
#include "proxy/model_runner.h"
#include "proxy/proxy.h"
#include "tests/proxy/proxy_peer.h"

namespace gpulet::proxy {
namespace {

using partition::DeviceHealth;
using partition::FoundShare;

constexpr std::uint32_t kSms = 132;

TEST(ShareCheck, AcceptsAnythingWithoutAnExpectation) {
  EXPECT_TRUE(check_share({}, {}).ok());
  EXPECT_TRUE(check_share({}, {false, kSms, kSms}).ok());
}

TEST(ShareCheck, RejectsAShareThatIsNotHeld) {
  const auto outside = check_share({Share{40}, kSms}, {false, kSms, kSms});
  EXPECT_EQ(outside.status().code(), StatusCode::unavailable);
  EXPECT_FALSE(check_share({Share{100}, 0}, {}).ok()) << "a program that cannot find out";
}

TEST(ShareCheck, RejectsMoreThanTheShareAndAStep) {
  const ExpectedShare expected{Share{40}, kSms};
  EXPECT_TRUE(check_share(expected, {true, 52, 0}).ok());
  EXPECT_TRUE(check_share(expected, {true, 60, 0}).ok()) << "rounded to whole groups";
  EXPECT_FALSE(check_share(expected, {true, 64, 0}).ok());
  EXPECT_FALSE(check_share(expected, {true, kSms, 0}).ok());
  EXPECT_EQ(check_share(expected, {true, 52, 0}).value(), (FoundShare{true, 52, kSms}));
  EXPECT_TRUE(check_share({Share{40}, 0}, {true, 52, 0}).ok()) << "held; the SMs are not known";
}

TEST(ShareCheck, ParsesOnlyWholeNumbersInRange) {
  const auto expected = parse_expected_share("40", "132");
  ASSERT_TRUE(expected.ok());
  EXPECT_EQ(expected.value().share, Share{40});
  EXPECT_EQ(expected.value().device_sms, 132U);
  EXPECT_EQ(parse_expected_share(nullptr, nullptr).value().share, std::nullopt);
  for (const char* wrong : {"", "0", "101", "40%", "-1", "4e1"})
    EXPECT_EQ(parse_expected_share(wrong, nullptr).status().code(), StatusCode::invalid) << wrong;
}

// ---- in a proxy

// An executor with a scripted share, whose first batch loses the device.
class ScriptedExecutor final : public executor::Executor {
 public:
  explicit ScriptedExecutor(FoundShare found) : found_(found) {}
  Result<FoundShare> found_share() override { return found_; }
  DeviceHealth health() const override { return health_; }
  Result<std::uint32_t> load(const ModelToLoad& model) override { return simulated_.load(model); }
  Result<std::size_t> run(const executor::BatchToRun&) override {
    health_ = DeviceHealth::lost;
    return Status(StatusCode::internal, "an illegal memory access was encountered");
  }

 private:
  const FoundShare found_;
  executor::SimulatedExecutor simulated_;
  DeviceHealth health_ = DeviceHealth::works;
};

class ProxyOnADevice {
 public:
  explicit ProxyOnADevice(FoundShare found)
      : ended_(std::async(std::launch::async, [this, found] {
          Program program;
          program.make_executor = [found] { return std::make_unique<ScriptedExecutor>(found); };
          return serve({peer_.proxy_socket(), peer_.memory_fd()}, program);
        })) {
    const TensorSpec bytes{.name = "bytes", .type = DataType::uint8, .shape = {4}};
    LoadModels models{.models = {{.name = "echo",
                                  .file = "nowhere.pt",
                                  .inputs = {bytes},
                                  .outputs = {bytes},
                                  .max_batch = 8}}};
    models.environment = {{partition::kExpectedShareVariable, "40"},
                          {partition::kDeviceSmsVariable, "132"}};
    peer_.load(models);
  }
  ~ProxyOnADevice() {
    peer_.send(StopProxy{});
    EXPECT_TRUE(ended_.get().ok());
    ::unsetenv(partition::kExpectedShareVariable);
    ::unsetenv(partition::kDeviceSmsVariable);
  }
  ProxyOnADevice(const ProxyOnADevice&) = delete;
  ProxyOnADevice& operator=(const ProxyOnADevice&) = delete;
  [[nodiscard]] ProxyPeer& peer() { return peer_; }

 private:
  ProxyPeer peer_{4096};
  std::future<Status> ended_;
};

TEST(ServedProxyOnADevice, ReportsItsShare) {
  ProxyOnADevice proxy({true, 52, 0});
  const auto ready = proxy.peer().receive_ready();
  EXPECT_TRUE(ready.status.ok()) << ready.status.to_string();
  EXPECT_EQ(ready.found, (FoundShare{true, 52, kSms}));
  EXPECT_EQ(ready.device, DeviceHealth::works);
}

TEST(ServedProxyOnADevice, LoadsNothingIfItsShareIsNotHeld) {
  ProxyOnADevice proxy({false, kSms, kSms});
  const auto ready = proxy.peer().receive_ready();
  EXPECT_EQ(ready.status.code(), StatusCode::unavailable);
  EXPECT_TRUE(ready.variants.empty());
}

TEST(ServedProxyOnADevice, ReportsALostDevice) {
  ProxyOnADevice proxy({true, 52, 0});
  ASSERT_TRUE(proxy.peer().receive_ready().status.ok());
  RunBatch run;
  run.id = BatchId{7};
  run.model = "echo";
  run.count = 1;
  run.input_bytes = 4;
  run.output_offset = 1024;
  run.output_capacity = 4;
  run.start_within = std::chrono::hours(1);
  proxy.peer().send(run);
  const auto ran = proxy.peer().receive_ran();
  EXPECT_EQ(ran.status.code(), StatusCode::internal);
  EXPECT_EQ(ran.device, DeviceHealth::lost);
}

}  // namespace
}  // namespace gpulet::proxy

// A gpulet with controlled cores: a real backend, a proxy that runs TorchScript, and the kernel's
// limits. The frontend is scripted.
#include <gtest/gtest.h>
#include <torch/script.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>

#include "backend/daemon.h"
#include "gpulet/base/sha256.h"
#include "gpulet/partition/drivers/drivers.h"
#include "tests/backend/frontend_end.h"
#include "tests/support/busy_child.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::backend {
namespace {

namespace asio = net::asio;
using std::chrono::milliseconds;

constexpr std::chrono::seconds kPatience(60);
constexpr std::chrono::seconds kMeasured(1);
constexpr std::int64_t kWidth = 8;

// Takes tens of milliseconds of CPU time, in operations that several threads can share.
std::string busy_model(const std::filesystem::path& folder) {
  torch::jit::Module module("busy");
  module.register_parameter("weight", torch::eye(384), false);
  module.define(R"(
def forward(self, x):
    y = self.weight + x[0, 0]
    for i in range(10):
        y = torch.relu(torch.mm(y, self.weight))
    return x + y[0, 0]
)");
  const auto file = folder / "busy.pt";
  module.save(file.string());
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class ControlledCoresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config::BackendConfig config;
    config.node = "n0";
    config.warm_proxies = 0;
    config.frontends = {port_.address()};
    auto driver = partition::make_cpu_quota_driver(partition::usable_cores());
    ASSERT_TRUE(driver.ok()) << driver.status().to_string();
    HostedDevice device;
    device.offer.device.key = {"n0", 0};
    device.offer.device.type = "cpu";
    device.offer.device.partitioning = "cpu_quota";
    device.offer.device.cores = static_cast<double>(partition::usable_cores().size());
    device.driver = std::move(driver).value();
    device.proxy_program = std::string(GPULET_BINARY_DIR) + "/bin/gpulet-proxy";
    std::vector<HostedDevice> devices;
    devices.push_back(std::move(device));
    // If this runs as root, proxies run as another user.
    auto store = store::ModelStore::open(folder_.path() / "store", {.readable_by_others = true});
    auto user = choose_proxy_user("");
    ASSERT_TRUE(store.ok() && user.ok());
    daemon_ = BackendDaemon::start(io_, {config, std::move(devices), std::move(store).value(),
                                         nullptr, std::move(user).value()});
    frontend_ = port_.accept(kPatience);
    ASSERT_NE(frontend_, nullptr);
  }

  template <typename Condition>
  bool run_until(Condition condition) {
    return net::testing::run_until(io_, condition, kPatience);
  }

  // Starts a gpulet of one percent and returns its process.
  pid_t make_gpulet() {
    const std::string model = busy_model(folder_.path());
    const TensorSpec tensor{"x", DataType::fp32, {kWidth}};
    CreateGpulet create{{1}, 0, {1}, {{"busy", sha256_of(model), {tensor}, {tensor}, 1}}};
    create.part.service = partition::Service::controlled;
    frontend_->say(create);
    EXPECT_TRUE(run_until([this] { return !frontend_->heard<ModelPieceRequest>().empty(); }));
    const auto bytes = std::as_bytes(std::span(model));
    frontend_->say(
        ModelPiece{sha256_of(model), 0, bytes.size(), Bytes::own({bytes.begin(), bytes.end()})});
    const auto is_ready = [this] {
      const auto reports = frontend_->heard<GpuletReport>();
      return !reports.empty() && reports.back().state == GpuletState::ready;
    };
    EXPECT_TRUE(run_until(is_ready));
    return daemon_->proxies().at(0);
  }

  // The cores that the process uses under continuous load.
  double use_of(pid_t process) {
    const auto answered = [this] { return frontend_->heard<BatchResult>().size(); };
    const auto begin = std::chrono::steady_clock::now();
    const double before = support::cpu_seconds(process);
    while (std::chrono::steady_clock::now() < begin + kMeasured) {
      Batch batch;
      batch.id = {++batches_};
      batch.gpulet = {1};
      batch.model = "busy";
      batch.count = 1;
      batch.start_within = kPatience;
      batch.inputs = {Bytes::own(std::vector<std::byte>(kWidth * sizeof(float)))};
      frontend_->say(batch);
      EXPECT_TRUE(run_until([&] { return answered() == batches_; }));
    }
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    return (support::cpu_seconds(process) - before) / passed.count();
  }

  support::TemporaryFolder folder_;
  asio::io_context io_{1};
  FrontendPort port_{io_};
  std::unique_ptr<BackendDaemon> daemon_;
  std::unique_ptr<FrontendEnd> frontend_;
  std::uint64_t batches_ = 0;
};

TEST_F(ControlledCoresTest, ChangeWhileTheProcessServes) {
  const pid_t process = make_gpulet();
  const auto use_on = [this, process](double cores) {
    frontend_->say(SetCores{{1}, cores});
    return use_of(process);
  };
  constexpr int kAttempts = 20;  // other processes may leave it fewer cores for a while, never more
  const double little = use_on(0.1);
  double much = 0;
  for (int attempt = 0; attempt < kAttempts && much < 0.25; ++attempt) {
    much = use_on(0.5);
    EXPECT_LT(much, 0.6);
  }
  const double little_again = use_on(0.15);
  EXPECT_LT(little, 0.15);
  EXPECT_GE(much, 0.25);
  EXPECT_LT(little_again, 0.2);
  EXPECT_EQ(daemon_->proxies(), std::vector<pid_t>{process}) << "the process was not replaced";
  for (const BatchResult& result : frontend_->heard<BatchResult>())
    EXPECT_TRUE(result.status.ok()) << result.status.to_string();
  for (const GpuletReport& report : frontend_->heard<GpuletReport>())
    EXPECT_TRUE(report.status.ok()) << report.status.to_string();

  frontend_->say(SetCores{{1}, 1000});
  ASSERT_TRUE(run_until([this] { return !frontend_->heard<GpuletReport>().back().status.ok(); }));
  const auto refused = frontend_->heard<GpuletReport>().back();
  EXPECT_EQ(refused.state, GpuletState::ready);
  EXPECT_EQ(refused.status.code(), StatusCode::invalid);
}

}  // namespace
}  // namespace gpulet::backend

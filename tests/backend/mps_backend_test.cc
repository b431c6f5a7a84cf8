// A backend with a GPU divided by MPS, where NVML, the daemon and the processes on the GPU are all
// stand-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gpulet/backend/daemon.h"
#include "gpulet/backend/setup.h"
#include "gpulet/core/sha256.h"
#include "tests/backend/frontend_end.h"
#include "tests/support/gpu/fake_gpus.h"
#include "tests/support/gpu/fake_mps.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::backend {
namespace {

namespace asio = net::asio;
using serve::GpuletState;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience(30);
constexpr std::size_t kRequestBytes = 16;
const std::string kUuid = "GPU-11111111-2222-3333-4444-555555555555";
const std::string kOneGpu =
    "driver_version 580.95.05\ngpu\nuuid " + kUuid + "\nname NVIDIA H200\nmemory_mib 143771\n";
const std::string kModelText = "what stands in for the file of a model";

std::string model_sha256() {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(kModelText)));
  return hash.finish();
}

config::DeviceConfig described(const std::string& partitioning) {
  config::DeviceConfig device;
  device.type = "h200";
  device.partitioning = partitioning;
  device.sizes = {{20}, {40}, {80}, {100}};
  return device;
}

class MpsBackendTest : public ::testing::Test {
 protected:
  [[nodiscard]] GpuPlaces places() const {
    return {.nvml = support::FakeGpus::nvml(), .mps = mps_.options()};
  }
  [[nodiscard]] config::BackendConfig configured(const std::vector<config::DeviceConfig>& devices) {
    config::BackendConfig config;
    // Another user would not find the daemon in this test's folder.
    if (::geteuid() == 0) config.proxy_user = "root";
    config.node = "n0";
    config.frontend = {"127.0.0.1", acceptor_.local_endpoint().port()};
    config.model_store = directory_.path() / "store";
    config.proxy = GPULET_PROXY_FAKE_GPU;
    config.warm_proxies = 1;
    config.devices = devices;
    return config;
  }
  void start() {
    auto setup = make_setup(configured({described("mps")}), places());
    ASSERT_TRUE(setup.ok()) << setup.status().to_string();
    daemon_ = BackendDaemon::start(io_, std::move(setup).value());
    acceptor_.async_accept(
        [this](const boost::system::error_code& error, asio::ip::tcp::socket socket) {
          ASSERT_FALSE(error) << error.message();
          frontend_ = std::make_unique<FrontendEnd>(net::StreamSocket(std::move(socket)));
        });
    ASSERT_TRUE(run_until([this] { return frontend_ != nullptr; }));
    frontend_->say(serve::Welcome{std::chrono::seconds(60)});
    ASSERT_TRUE(run_until([this] { return !frontend_->heard<serve::Hello>().empty(); }));
  }
  bool run_until(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!condition() && std::chrono::steady_clock::now() < deadline) {
      io_.restart();
      io_.run_one_for(milliseconds(20));
      give_pieces();
    }
    return condition();
  }
  // The frontend has the model's file.
  void give_pieces() {
    if (frontend_ == nullptr) return;
    const auto wanted = frontend_->heard<serve::ModelWanted>();
    const auto bytes = std::as_bytes(std::span(kModelText));
    const auto text = Bytes::own({bytes.begin(), bytes.end()});
    for (; pieces_ < wanted.size(); ++pieces_)
      frontend_->say(serve::ModelPiece{model_sha256(), 0, text.size(), text});
  }
  void ask(std::uint64_t gpulet, int percent) {
    const TensorSpec tensor{"x", DataType::uint8, {kRequestBytes}};
    frontend_->say(serve::CreateGpulet{
        {gpulet}, 0, {percent}, {{"echo", model_sha256(), {tensor}, {tensor}, 4}}});
  }
  [[nodiscard]] std::optional<serve::GpuletReport> last_report(std::uint64_t gpulet) const {
    std::optional<serve::GpuletReport> last;
    for (const auto& report : frontend_->heard<serve::GpuletReport>()) {
      if (report.id == GpuletId{gpulet}) last = report;
    }
    return last;
  }
  [[nodiscard]] bool is(std::uint64_t gpulet, GpuletState state) const {
    const auto report = last_report(gpulet);
    return report && report->state == state;
  }
  void start_two() {
    start();
    ask(1, 20);
    ask(2, 80);
    ASSERT_TRUE(run_until([this] {
      return is(1, GpuletState::ready) && is(2, GpuletState::ready);
    })) << last_report(1)->status.to_string()
        << last_report(2)->status.to_string();
  }
  void send_batch(std::uint64_t id, std::uint64_t gpulet) {
    Batch batch;
    batch.id = {id};
    batch.gpulet = {gpulet};
    batch.model = "echo";
    batch.count = 2;
    batch.start_within = kPatience;
    batch.expected_duration = milliseconds(4);
    batch.inputs = {Bytes::own(std::vector<std::byte>(2 * kRequestBytes, std::byte{7}))};
    frontend_->say(batch);
  }
  [[nodiscard]] std::map<std::uint64_t, StatusCode> results() const {
    std::map<std::uint64_t, StatusCode> all;
    for (const auto& result : frontend_->heard<BatchResult>()) {
      EXPECT_TRUE(all.emplace(result.id.value, result.status.code()).second) << "answered twice";
    }
    return all;
  }
  // What a process found in its environment.
  [[nodiscard]] std::string environment_of(pid_t process) const {
    return mps_.recorded("proxy." + std::to_string(process));
  }

  const support::FakeGpus gpus_{kOneGpu};
  const support::FakeMps mps_;
  support::TemporaryFolder directory_;
  asio::io_context io_{1};
  asio::ip::tcp::acceptor acceptor_{io_,
                                    asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), 0)};
  std::unique_ptr<BackendDaemon> daemon_;
  std::unique_ptr<FrontendEnd> frontend_;
  std::size_t pieces_ = 0;
};

TEST_F(MpsBackendTest, OffersTheGpuThatNvmlFindsWithWhatItsPartitioningCanDo) {
  start();
  const auto devices = frontend_->heard<serve::Hello>().at(0).devices;
  ASSERT_EQ(devices.size(), 1U);
  EXPECT_EQ(devices[0].mechanism, "mps");
  EXPECT_EQ(devices[0].traits.fault, partition::FaultReach::device);
  EXPECT_TRUE(devices[0].traits.limits_memory);
  EXPECT_DOUBLE_EQ(devices[0].device.memory_mb, 143771);
}

TEST_F(MpsBackendTest, TwoGpuletsThatStartAtOnceGetTheirOwnShares) {
  start_two();
  EXPECT_EQ(last_report(1)->found, (partition::FoundShare{true, 26, 132}));
  EXPECT_EQ(last_report(2)->found, (partition::FoundShare{true, 105, 132}));
  ASSERT_EQ(daemon_->proxies().size(), 2U);
  EXPECT_THAT(environment_of(daemon_->proxies()[0]),
              HasSubstr("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=20\n"));
  EXPECT_THAT(environment_of(daemon_->proxies()[1]),
              HasSubstr("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=80\n"));
  send_batch(1, 1);
  send_batch(2, 2);
  ASSERT_TRUE(run_until([this] { return results().size() == 2; }));
  EXPECT_EQ(results().at(1), StatusCode::ok);
}

TEST_F(MpsBackendTest, AProcessThatIsNotHeldByMpsDoesNotServe) {
  mps_.tell("outside");
  start();
  ask(1, 20);
  ASSERT_TRUE(run_until([this] { return is(1, GpuletState::failed); }));
  EXPECT_THAT(last_report(1)->status.message(), HasSubstr("nothing holds it to that"));
}

TEST_F(MpsBackendTest, AFaultTakesAllAlongAndAllComeBackOnceTheServerTakesClients) {
  start_two();
  mps_.tell("fault");
  mps_.tell("status", "FAULT\n");
  const auto before = daemon_->proxies();
  send_batch(11, 1);
  send_batch(21, 2);
  ASSERT_TRUE(run_until([this] { return results().size() == 2; }));
  EXPECT_EQ(results().at(11), StatusCode::unavailable) << "so that it runs elsewhere";
  EXPECT_EQ(results().at(21), StatusCode::unavailable);
  // More often than a gpulet that cannot load is given before it is given up.
  ASSERT_TRUE(run_until([this] {
    const auto refused = mps_.recorded("refused");
    return std::count(refused.begin(), refused.end(), '\n') >= 7;
  }));
  EXPECT_TRUE(is(1, GpuletState::restarting));
  EXPECT_TRUE(is(2, GpuletState::restarting));
  for (const pid_t process : before) EXPECT_NE(::kill(process, 0), 0);
  EXPECT_FALSE(mps_.was_asked("terminate_client")) << "nothing runs on the GPU after a fault";
  mps_.forget("fault");
  mps_.forget("status");
  ASSERT_TRUE(run_until([this] { return is(1, GpuletState::ready) && is(2, GpuletState::ready); }));
  EXPECT_EQ(last_report(1)->found.sms, 26U);
  send_batch(12, 1);
  ASSERT_TRUE(run_until([this] { return results().size() == 3; }));
  EXPECT_EQ(results().at(12), StatusCode::ok);
}

TEST_F(MpsBackendTest, AProcessThatStillLoadsAndIsNoLongerWantedIsTerminatedThroughTheDaemon) {
  start();
  mps_.tell("slow");
  ask(1, 20);
  ASSERT_TRUE(run_until(
      [this] { return daemon_->proxies().size() == 1 && !mps_.recorded("servers").empty(); }));
  const auto process = daemon_->proxies()[0];
  frontend_->say(serve::RetireGpulet{{1}});
  ASSERT_TRUE(run_until([this] { return is(1, GpuletState::gone); }));
  EXPECT_TRUE(mps_.was_asked("terminate_client 701 " + std::to_string(process)));
  mps_.forget("slow");
}

TEST_F(MpsBackendTest, ADaemonThatDiesIsStartedAgainForWhateverComesAfterIt) {
  start();
  const auto file = mps_.pid_file(kUuid);
  const auto died = support::FakeMps::pid_in(file);
  support::FakeMps::kill_daemon(file);
  ASSERT_TRUE(run_until([&] {
    const auto now = support::FakeMps::pid_in(file);
    return now != 0 && now != died;
  }));
  ask(1, 20);
  ASSERT_TRUE(run_until([this] { return is(1, GpuletState::ready); }));
  EXPECT_TRUE(last_report(1)->found.held);
}

TEST_F(MpsBackendTest, DestroyedInTheMiddleItTerminatesAClientThatDoesNotEndAndQuitsTheDaemon) {
  start_two();
  const auto processes = daemon_->proxies();
  ::kill(processes.at(0), SIGSTOP);  // it does not see its channel close
  daemon_.reset();
  EXPECT_TRUE(mps_.was_asked("terminate_client 701 " + std::to_string(processes.at(0))));
  for (const pid_t process : processes) EXPECT_NE(::kill(process, 0), 0);
  EXPECT_TRUE(mps_.was_asked("quit -t"));
}

// ---- what a machine may lack

TEST_F(MpsBackendTest, AGpuThatIsNotThereIsAbsentWithTheReasonAndTheRestIsOffered) {
  auto absent = described("mps");
  absent.gpu = "3";
  auto setup = make_setup(configured({absent, described("mps")}), places());
  ASSERT_TRUE(setup.ok()) << setup.status().to_string();
  ASSERT_EQ(setup.value().devices.size(), 1U);
  EXPECT_EQ(setup.value().devices[0].offer.device.key.device, 0U);
  ASSERT_EQ(setup.value().absent.size(), 1U);
  EXPECT_THAT(setup.value().absent[0], HasSubstr("no GPU \"3\""));
}

TEST_F(MpsBackendTest, SaysWhatIsMissingWhereNothingIsLeft) {
  auto without_mps = places();
  without_mps.mps.control = "nvidia-cuda-mps-control-of-nobody";
  const auto no_control = make_setup(configured({described("mps")}), without_mps);
  EXPECT_THAT(no_control.status().message(), HasSubstr("install"));

  auto without_driver = places();
  without_driver.nvml = "libnvidia-ml-of-nobody.so.1";
  const auto no_driver = make_setup(configured({described("mps")}), without_driver);
  EXPECT_THAT(no_driver.status().message(), HasSubstr("device 0 (h200)"));
  EXPECT_THAT(no_driver.status().message(), HasSubstr("libnvidia-ml-of-nobody.so.1"));

  gpus_.write("gpu\nuuid " + kUuid + "\nmig 1\n");
  EXPECT_THAT(make_setup(configured({described("mps")}), places()).status().message(),
              HasSubstr("MIG"));
  gpus_.write("gpu\nuuid " + kUuid + "\ncompute_mode 2\n");
  EXPECT_THAT(make_setup(configured({described("mps")}), places()).status().message(),
              HasSubstr("compute mode"));
}

}  // namespace
}  // namespace gpulet::backend

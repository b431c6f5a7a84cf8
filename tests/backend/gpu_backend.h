// A backend with fakes of NVML, CUDA, MPS's daemon and the processes on the GPU, and a scripted
// frontend.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/daemon.h"
#include "backend/setup.h"
#include "gpulet/base/sha256.h"
#include "tests/backend/frontend_end.h"
#include "tests/support/gpu/fake_gpus.h"
#include "tests/support/gpu/fake_mps.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::backend {

namespace asio = net::asio;
using std::chrono::milliseconds;

inline constexpr std::chrono::seconds kPatience(30);
inline constexpr std::size_t kRequestBytes = 16;
inline const std::string kUuid = "GPU-11111111-2222-3333-4444-555555555555";
inline const std::string kOneGpu =
    "driver_version 580.95.05\ngpu\nuuid " + kUuid + "\nname NVIDIA H200\nmemory_mib 143771\n";
inline const std::string kModelText = "what stands in for the file of a model";

inline std::string model_sha256() {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(kModelText)));
  return hash.finish();
}

inline config::DeviceConfig described(const std::string& partitioning) {
  config::DeviceConfig device;
  device.type = "h200";
  device.partitioning = partitioning;
  device.sizes = {{20}, {40}, {80}, {100}};
  return device;
}

class GpuBackendTest : public ::testing::Test {
 protected:
  [[nodiscard]] GpuEnvironment gpu_environment() const {
    return {.nvml = support::FakeGpus::nvml(),
            .cuda = support::FakeGpus::cuda(),
            .mps = mps_.options(),
            .poll_interval = milliseconds(20)};
  }
  [[nodiscard]] config::BackendConfig configured(const std::vector<config::DeviceConfig>& devices) {
    config::BackendConfig config;
    // Another user has no access to the daemon in this test's directory.
    if (::geteuid() == 0) config.proxy_user = "root";
    config.node = "n0";
    config.frontends = {port_.address()};
    config.model_store = directory_.path() / "store";
    config.proxy = GPULET_PROXY_FAKE_GPU;
    config.warm_proxies = 1;
    config.parking = parking_;
    config.devices = devices;
    return config;
  }
  void start(const std::string& partitioning) { start({described(partitioning)}); }
  void start(const std::vector<config::DeviceConfig>& devices) {
    auto setup = make_setup(configured(devices), gpu_environment());
    ASSERT_TRUE(setup.ok()) << setup.status().to_string();
    setup.value().quiet_before_loading_ahead = milliseconds(20);
    daemon_ = BackendDaemon::start(io_, std::move(setup).value());
    frontend_ = port_.accept(kPatience);
    ASSERT_NE(frontend_, nullptr);
    ASSERT_TRUE(run_until([this] { return !frontend_->heard<Hello>().empty(); }));
  }
  bool run_until(const std::function<bool()>& condition) {
    const auto look = [&] {
      give_pieces();
      return condition();
    };
    return net::testing::run_until(io_, look, kPatience);
  }
  // The frontend sends the model's file.
  void give_pieces() {
    if (frontend_ == nullptr) return;
    const auto wanted = frontend_->heard<ModelPieceRequest>();
    const auto bytes = std::as_bytes(std::span(kModelText));
    const auto text = Bytes::own({bytes.begin(), bytes.end()});
    for (; pieces_ < wanted.size(); ++pieces_)
      frontend_->say(ModelPiece{model_sha256(), 0, text.size(), text});
  }
  void ask(std::uint64_t gpulet, int percent, double memory_mb = 0) {
    const TensorSpec tensor{"x", DataType::uint8, {kRequestBytes}};
    CreateGpulet asked{{gpulet}, 0, {percent}, {{"echo", model_sha256(), {tensor}, {tensor}, 4}}};
    asked.memory_mb = memory_mb;
    frontend_->say(std::move(asked));
  }
  [[nodiscard]] std::optional<GpuletReport> last_report(std::uint64_t gpulet) const {
    std::optional<GpuletReport> last;
    for (const auto& report : frontend_->heard<GpuletReport>()) {
      if (report.id == GpuletId{gpulet}) last = report;
    }
    return last;
  }
  [[nodiscard]] bool is(std::uint64_t gpulet, GpuletState state) const {
    const auto report = last_report(gpulet);
    return report && report->state == state;
  }
  // Starts gpulets 1 and 2 with these shares.
  void start_two(const std::string& partitioning, int first, int second) {
    start(partitioning);
    ask(1, first);
    ask(2, second);
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
  // The environment of a process.
  [[nodiscard]] std::string environment_of(pid_t process) const {
    return mps_.recorded("proxy." + std::to_string(process));
  }

  const support::FakeGpus gpus_{kOneGpu};
  const support::FakeMps mps_;
  support::TemporaryFolder directory_;
  config::Parking parking_;
  asio::io_context io_{1};
  FrontendPort port_{io_};
  std::unique_ptr<BackendDaemon> daemon_;
  std::unique_ptr<FrontendEnd> frontend_;
  std::size_t pieces_ = 0;
};

}  // namespace gpulet::backend

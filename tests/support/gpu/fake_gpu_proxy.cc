// gpulet-proxy-fake-gpu: the process of one gpulet under MPS or on a MIG instance, or of several on
// green contexts, on a GPU of 132 SMs that is not there. It computes what the simulated one
// computes. Under MPS it behaves as a CUDA program would: it finds the daemon by its environment,
// becomes its client, has as many SMs as it is let; on green contexts it divides the fake CUDA's
// GPU. It fails as files in $GPULET_FAKE_MPS say:
//   outside  MPS does not hold it        fault  the GPU fails under every batch, for good
//   status   "FAULT": the server takes no clients        slow  loading lasts until the file is gone
// There it also writes its environment (proxy.<pid>), that it is a client (servers, clients), and
// what all its gpulets together have loaded (loaded).
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "gpulet/executor/shared_device.h"
#include "gpulet/executor/simulated_executor.h"
#include "gpulet/gpu/cuda_driver.h"
#include "gpulet/gpu/green_lanes.h"
#include "gpulet/proxy/proxy.h"
#include "tests/support/gpu/fake_gpus.h"
#include "tests/support/gpu/fake_mig.h"

namespace {

using namespace gpulet;

constexpr std::uint32_t kSms = 132;
constexpr Duration kBatchTakes = std::chrono::milliseconds(4);

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// What a test says, and what it reads.
class Folder {
 public:
  [[nodiscard]] bool is_told(const std::string& name) const {
    std::error_code ignored;
    return std::filesystem::exists(folder_ / name, ignored);
  }
  [[nodiscard]] std::string text(const std::string& name) const {
    std::string line;
    std::ifstream file(folder_ / name);
    std::getline(file, line);
    return line;
  }
  void append(const std::string& name, const std::string& what) const {
    std::ofstream(folder_ / name, std::ios::app) << what;
  }
  void write_environment() const {
    std::string all;
    for (char** entry = environ; *entry != nullptr; ++entry) all += std::string(*entry) + "\n";
    append("proxy." + std::to_string(::getpid()), all);
  }
  void wait_while_slow() const {
    while (is_told("slow")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

 private:
  const std::filesystem::path folder_ = variable("GPULET_FAKE_MPS");
};

Status fault() { return {StatusCode::internal, "an illegal memory access was encountered (700)"}; }

// ---- under MPS

class FakeGpuExecutor final : public executor::Executor {
 public:
  Result<partition::FoundShare> found_share() override {
    if (folder_.text("status").starts_with("FAULT")) {
      health_ = partition::DeviceHealth::not_ready;
      folder_.append("refused", "a client\n");
      return Status(StatusCode::unavailable, "the MPS server takes no clients (807)");
    }
    if (variable("CUDA_VISIBLE_DEVICES").starts_with("MIG-")) return found_instance();
    become_client();
    const bool held = is_daemon_there() && !folder_.is_told("outside");
    const auto percent = variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    const auto share = static_cast<std::uint32_t>(percent.empty() ? 100 : std::stoi(percent));
    return partition::FoundShare{held, held ? kSms * share / 100 : kSms, kSms};
  }
  partition::DeviceHealth health() const override { return health_; }

  Result<std::uint32_t> load(const executor::ModelToLoad& model) override {
    folder_.wait_while_slow();
    return simulated_.load(model);
  }
  Result<std::size_t> run(const executor::BatchToRun& batch) override {
    if (folder_.is_told("fault")) health_ = partition::DeviceHealth::lost;
    if (health_ == partition::DeviceHealth::lost) return fault();
    auto timed = batch;
    timed.simulated_latency = kBatchTakes;
    return simulated_.run(timed);
  }

 private:
  // As CUDA: an instance is a device of its own, or it is not there at all.
  Result<partition::FoundShare> found_instance() const {
    const bool alone = variable("CUDA_MPS_PIPE_DIRECTORY") == gpu::kNoMpsDirectory;
    if (alone) {
      folder_.write_environment();
    } else {
      become_client();
    }
    for (const support::FakeMigInstance& one : support::FakeMig::read().instances) {
      if (one.uuid() != variable("CUDA_VISIBLE_DEVICES") || !one.whole) continue;
      for (const support::FakeMigProfile& profile : support::fake_mig_profiles(false)) {
        if (profile.number == one.profile)
          return partition::FoundShare{alone || is_daemon_there(), profile.sms, 0};
      }
    }
    return Status(StatusCode::unavailable, "no CUDA-capable device is detected (100)");
  }
  static bool is_daemon_there() {
    long process = 0;
    std::ifstream(variable("CUDA_MPS_PIPE_DIRECTORY") + "/nvidia-cuda-mps-control.pid") >> process;
    std::string name;
    std::ifstream file("/proc/" + std::to_string(process) + "/cmdline");
    std::getline(file, name);
    return process > 0 && !name.empty();  // of one that has ended there is no name left
  }
  void become_client() const {
    folder_.write_environment();
    folder_.append("clients", std::to_string(::getpid()) + "\n");
    std::ofstream(std::filesystem::path(variable("GPULET_FAKE_MPS")) / "servers") << "701\n";
  }

  const Folder folder_{};
  executor::SimulatedExecutor simulated_;
  partition::DeviceHealth health_ = partition::DeviceHealth::works;
};

// ---- on green contexts

// What the lanes have in common.
struct FakeGreenGpu {
  explicit FakeGreenGpu(gpu::GreenLanes divided) : lanes(std::move(divided)) {}

  // A model is there once, whoever loads it.
  void load(const std::string& model) {
    const std::lock_guard lock(mutex);
    if (loaded.insert(model).second) folder.append("loaded", model + "\n");
  }

  const Folder folder{};
  gpu::GreenLanes lanes;
  std::atomic<bool> lost{false};
  std::mutex mutex;
  std::set<std::string> loaded;  // guarded by mutex
};

class FakeGpuLane final : public executor::Executor {
 public:
  FakeGpuLane(FakeGreenGpu& gpu, gpu::GreenLane lane) : gpu_(gpu), lane_(std::move(lane)) {}

  Result<partition::FoundShare> found_share() override {
    return partition::FoundShare{true, lane_.sms(), gpu_.lanes.sizes().sms};
  }
  partition::DeviceHealth health() const override {
    return gpu_.lost ? partition::DeviceHealth::lost : partition::DeviceHealth::works;
  }
  Result<std::uint32_t> load(const executor::ModelToLoad& model) override {
    gpu_.folder.wait_while_slow();
    gpu_.load(model.name);
    return simulated_.load(model);
  }
  Result<std::size_t> run(const executor::BatchToRun& batch) override {
    auto running = begin(batch);
    return running.ok() ? running.value()->finish() : running.status();
  }
  std::size_t depth() const override { return 2; }
  Result<std::unique_ptr<executor::RunningBatch>> begin(
      const executor::BatchToRun& batch) override {
    if (gpu_.folder.is_told("fault")) gpu_.lost = true;
    if (gpu_.lost) return fault();
    if (under_way_ == 0 && lane_.stream() == nullptr)
      return Status(StatusCode::internal, "a lane without a stream");
    return std::unique_ptr<executor::RunningBatch>(std::make_unique<Running>(*this, batch));
  }

 private:
  class Running final : public executor::RunningBatch {
   public:
    Running(FakeGpuLane& lane, const executor::BatchToRun& batch)
        : lane_(lane), model_(batch.model), batch_(batch) {
      batch_.model = model_;
      batch_.simulated_latency = kBatchTakes;
      ++lane_.under_way_;
    }
    Result<std::size_t> finish() override {
      auto written = lane_.simulated_.run(batch_);
      --lane_.under_way_;
      return written;
    }

   private:
    FakeGpuLane& lane_;
    const std::string model_;
    executor::BatchToRun batch_;
  };

  FakeGreenGpu& gpu_;
  gpu::GreenLane lane_;
  executor::SimulatedExecutor simulated_;
  std::atomic<int> under_way_{0};
};

class FakeSharedDevice final : public executor::SharedDevice {
 public:
  explicit FakeSharedDevice(gpu::GreenLanes lanes) : gpu_(std::move(lanes)) {}
  Result<std::unique_ptr<executor::Executor>> add_lane(Share share) override {
    auto lane = gpu_.lanes.add(share);
    if (!lane.ok()) return lane.status();
    return std::unique_ptr<executor::Executor>(
        std::make_unique<FakeGpuLane>(gpu_, std::move(lane).value()));
  }

 private:
  FakeGreenGpu gpu_;
};

Result<std::unique_ptr<executor::SharedDevice>> make_shared_device() {
  Folder().write_environment();
  auto driver = gpu::CudaDriver::load(support::FakeGpus::cuda());
  if (!driver.ok()) return driver.status();
  const auto number = driver.value().number_of(variable("CUDA_VISIBLE_DEVICES"));
  if (!number.ok()) return number.status();
  auto lanes = gpu::GreenLanes::make(driver.value(), number.value());
  if (!lanes.ok()) return lanes.status();
  return std::unique_ptr<executor::SharedDevice>(
      std::make_unique<FakeSharedDevice>(std::move(lanes).value()));
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(argc));
  proxy::Program program;
  program.make_executor = [] { return std::make_unique<FakeGpuExecutor>(); };
  program.make_shared_device = make_shared_device;
  return proxy::run(arguments.subspan(1), program);
}

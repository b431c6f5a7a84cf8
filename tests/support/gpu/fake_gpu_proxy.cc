// gpulet-proxy-fake-gpu: a proxy on a fake GPU of 132 SMs, for one gpulet under MPS or on a MIG
// instance, or for several on green contexts. It computes like the simulated proxy. Under MPS it
// behaves like a CUDA program: it finds the daemon by its environment, becomes its client, and gets
// the SMs of its share. On green contexts it divides the GPU of the fake CUDA. Files in
// $GPULET_FAKE_MPS make it fail:
//   outside  MPS does not limit it       fault  the GPU fails permanently at every batch
//   status   "FAULT": the server accepts no clients      slow  loading lasts while the file exists
// It also writes its environment (proxy.<pid>), its MPS client (servers, clients), and the models
// that its gpulets loaded (loaded) there.
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

#include "gpulet/executor/executor.h"
#include "gpulet/executor/simulated_executor.h"
#include "gpulet/gpu/cuda_driver.h"
#include "gpulet/gpu/green_streams.h"
#include "proxy/proxy.h"
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

// The folder that a test uses to control and observe the proxy.
class Folder {
 public:
  [[nodiscard]] bool has(const std::string& name) const {
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
    while (has("slow")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

 private:
  const std::filesystem::path folder_ = variable("GPULET_FAKE_MPS");
};

Status fault() { return {StatusCode::internal, "an illegal memory access was encountered (700)"}; }

// ---- MPS and MIG

class FakeGpuExecutor final : public executor::Executor {
 public:
  Result<partition::FoundShare> found_share() override {
    if (folder_.text("status").starts_with("FAULT")) {
      health_ = partition::DeviceHealth::not_ready;
      folder_.append("refused", "a client\n");
      return Status(StatusCode::unavailable, "the MPS server accepts no clients (807)");
    }
    if (variable("CUDA_VISIBLE_DEVICES").starts_with("MIG-")) return found_instance();
    become_client();
    const bool held = is_daemon_there() && !folder_.has("outside");
    const auto percent = variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    const auto share = static_cast<std::uint32_t>(percent.empty() ? 100 : std::stoi(percent));
    return partition::FoundShare{held, held ? kSms * share / 100 : kSms, kSms};
  }
  partition::DeviceHealth health() const override { return health_; }

  Result<std::uint32_t> load(const ModelToLoad& model) override {
    folder_.wait_while_slow();
    return simulated_.load(model);
  }
  Result<std::size_t> run(const executor::BatchToRun& batch) override {
    if (folder_.has("fault")) health_ = partition::DeviceHealth::lost;
    if (health_ == partition::DeviceHealth::lost) return fault();
    auto timed = batch;
    timed.simulated_latency = kBatchTakes;
    return simulated_.run(timed);
  }

 private:
  // Like CUDA: a visible instance is the only device.
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
    return process > 0 && !name.empty();  // a zombie has no name
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

// ---- green contexts

// The shared state of the streams.
struct FakeGreenGpu {
  explicit FakeGreenGpu(gpu::GreenStreamPool divided) : pool(std::move(divided)) {}

  // The gpulets share one copy of a model.
  void load(const std::string& model) {
    const std::lock_guard lock(mutex);
    if (loaded.insert(model).second) folder.append("loaded", model + "\n");
  }

  const Folder folder{};
  gpu::GreenStreamPool pool;
  std::atomic<bool> lost{false};
  std::mutex mutex;
  std::set<std::string> loaded;  // guarded by mutex
};

class FakeGreenExecutor final : public executor::Executor {
 public:
  FakeGreenExecutor(FakeGreenGpu& gpu, gpu::PooledGreenStream stream)
      : gpu_(gpu), stream_(std::move(stream)) {}

  Result<partition::FoundShare> found_share() override {
    return partition::FoundShare{true, stream_.sms(), gpu_.pool.sizes().sms};
  }
  partition::DeviceHealth health() const override {
    return gpu_.lost ? partition::DeviceHealth::lost : partition::DeviceHealth::works;
  }
  Result<std::uint32_t> load(const ModelToLoad& model) override {
    gpu_.folder.wait_while_slow();
    gpu_.load(model.name);
    update_condition();
    return simulated_.load(model);
  }
  std::optional<partition::ProcessCondition> condition() const override {
    return partition::ProcessCondition{.sms = sms_, .shared_sms = shared_sms_};
  }
  Result<std::size_t> run(const executor::BatchToRun& batch) override {
    auto running = begin(batch);
    return running.ok() ? running.value()->finish() : running.status();
  }
  std::size_t depth() const override { return 2; }
  Result<std::unique_ptr<executor::RunningBatch>> begin(
      const executor::BatchToRun& batch) override {
    if (gpu_.folder.has("fault")) gpu_.lost = true;
    if (gpu_.lost) return fault();
    if (in_flight_ == 0 && stream_.move_due()) (void)stream_.move();
    update_condition();
    return std::unique_ptr<executor::RunningBatch>(std::make_unique<Running>(*this, batch));
  }

 private:
  class Running final : public executor::RunningBatch {
   public:
    Running(FakeGreenExecutor& executor, const executor::BatchToRun& batch)
        : executor_(executor), model_(batch.model), batch_(batch) {
      batch_.model = model_;
      batch_.simulated_latency = kBatchTakes;
      ++executor_.in_flight_;
    }
    Result<std::size_t> finish() override {
      auto written = executor_.simulated_.run(batch_);
      --executor_.in_flight_;
      return written;
    }

   private:
    FakeGreenExecutor& executor_;
    const std::string model_;
    executor::BatchToRun batch_;
  };

  void update_condition() {
    sms_ = stream_.sms();
    shared_sms_ = stream_.shared_sms();
  }

  FakeGreenGpu& gpu_;
  gpu::PooledGreenStream stream_;
  std::atomic<std::uint32_t> sms_{0};
  std::atomic<std::uint32_t> shared_sms_{0};
  executor::SimulatedExecutor simulated_;
  std::atomic<int> in_flight_{0};
};

class FakeSharedDevice final : public executor::SharedDevice {
 public:
  explicit FakeSharedDevice(gpu::GreenStreamPool pool) : gpu_(std::move(pool)) {}
  Result<std::unique_ptr<executor::Executor>> add_executor(
      Share share, std::span<const std::string> models) override {
    auto stream = gpu_.pool.add(share, models);
    if (!stream.ok()) return stream.status();
    return std::unique_ptr<executor::Executor>(
        std::make_unique<FakeGreenExecutor>(gpu_, std::move(stream).value()));
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
  auto pool = gpu::GreenStreamPool::make(driver.value(), number.value());
  if (!pool.ok()) return pool.status();
  return std::unique_ptr<executor::SharedDevice>(
      std::make_unique<FakeSharedDevice>(std::move(pool).value()));
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(argc));
  proxy::Program program;
  program.make_executor = [] { return std::make_unique<FakeGpuExecutor>(); };
  program.make_shared_device = make_shared_device;
  return proxy::run(arguments.subspan(1), program);
}

// gpulet-proxy-fake-gpu: a gpulet's process on a GPU of 132 SMs that is not there. It computes what
// the simulated one computes, and behaves to MPS as a CUDA program would: it finds the daemon by
// its environment, becomes its client, has as many SMs as it is let, and fails as files in
// $GPULET_FAKE_MPS say:
//   outside  MPS does not hold it        fault  the GPU fails under every batch, for good
//   status   "FAULT": the server takes no clients        slow  loading lasts until the file is gone
// There it also writes its environment (proxy.<pid>) and that it is a client (servers, clients).
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "gpulet/executor/simulated_executor.h"
#include "gpulet/proxy/proxy.h"

namespace {

using namespace gpulet;

constexpr std::uint32_t kSms = 132;
constexpr Duration kBatchTakes = std::chrono::milliseconds(4);

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

class FakeGpuExecutor final : public executor::Executor {
 public:
  Result<partition::FoundShare> found_share() override {
    if (text("status").starts_with("FAULT")) {
      health_ = partition::DeviceHealth::not_ready;
      write("refused", "a client\n");
      return Status(StatusCode::unavailable, "the MPS server takes no clients (807)");
    }
    become_client();
    const bool held = is_daemon_there() && !is_told("outside");
    const auto percent = variable("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
    const auto share = static_cast<std::uint32_t>(percent.empty() ? 100 : std::stoi(percent));
    return partition::FoundShare{held, held ? kSms * share / 100 : kSms, kSms};
  }
  partition::DeviceHealth health() const override { return health_; }

  Result<std::uint32_t> load(const executor::ModelToLoad& model) override {
    while (is_told("slow")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return simulated_.load(model);
  }
  Result<std::size_t> run(const executor::BatchToRun& batch) override {
    if (is_told("fault")) health_ = partition::DeviceHealth::lost;
    if (health_ == partition::DeviceHealth::lost)
      return Status(StatusCode::internal, "an illegal memory access was encountered (700)");
    auto timed = batch;
    timed.simulated_latency = kBatchTakes;
    return simulated_.run(timed);
  }

 private:
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
  void write(const std::string& name, const std::string& what) const {
    std::ofstream(folder_ / name, std::ios::app) << what;
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
    const auto self = std::to_string(::getpid());
    std::string all;
    for (char** entry = environ; *entry != nullptr; ++entry) all += std::string(*entry) + "\n";
    write("proxy." + self, all);
    write("clients", self + "\n");
    std::ofstream(folder_ / "servers") << "701\n";
  }

  const std::filesystem::path folder_ = variable("GPULET_FAKE_MPS");
  executor::SimulatedExecutor simulated_;
  partition::DeviceHealth health_ = partition::DeviceHealth::works;
};

}  // namespace

int main(int argc, char** argv) {
  const std::span<const char* const> arguments(argv, static_cast<std::size_t>(argc));
  proxy::Program program;
  program.make_executor = [] { return std::make_unique<FakeGpuExecutor>(); };
  return proxy::run(arguments.subspan(1), program);
}

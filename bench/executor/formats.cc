// The example models as ONNX and as TorchScript: the CPU time of a batch on one thread, the load
// time, and the resident memory of warm proxies of both programs.
//
//   bench_executor_formats [--models config/models.json] [--only lenet bert] [--batches 1 8]
//                          [--seconds 2]
//
// Batches of both executors take turns in one process, so that other load affects both. A time is
// the median of the CPU times of its batches.
#include <fmt/format.h>
#include <stdlib.h>  // setenv
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/support/options.h"
#include "gpulet/backend/proxy_process.h"
#include "gpulet/config/model_config.h"
#include "gpulet/executor/onnx/onnx_executor.h"
#include "gpulet/executor/torch/torch_executor.h"
#include "gpulet/net/asio.h"

namespace {

using namespace gpulet;  // NOLINT(google-build-using-namespace)

using Clock = std::chrono::steady_clock;

struct Settings {
  std::string models = "config/models.json";
  std::vector<std::string> only;
  std::vector<std::uint32_t> batches{1};
  double seconds = 2;
};

double cpu_ms() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e6;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// One format of one model.
class Side {
 public:
  Side(std::unique_ptr<executor::Executor> executor, const config::ModelConfig& model,
       std::filesystem::path file, std::uint32_t largest)
      : executor_(std::move(executor)), name_(model.name) {
    const double begin = cpu_ms();
    const auto loaded = executor_->load({.name = model.name,
                                         .file = std::move(file),
                                         .inputs = model.inputs,
                                         .outputs = model.outputs,
                                         .max_batch = largest});
    if (!loaded.ok()) throw std::runtime_error(loaded.status().to_string());
    load_ms_ = cpu_ms() - begin;
    input_.resize(byte_size(model.inputs).value() * largest);
    output_.resize(byte_size(model.outputs).value() * largest);
    largest_ = largest;
  }

  [[nodiscard]] double load_ms() const { return load_ms_; }
  double run(std::uint32_t batch) {
    const double begin = cpu_ms();
    const auto ran =
        executor_->run({.model = name_,
                        .count = batch,
                        .input = std::span(input_).first(input_.size() / largest_ * batch),
                        .output = output_});
    if (!ran.ok()) throw std::runtime_error(ran.status().to_string());
    return cpu_ms() - begin;
  }

 private:
  std::unique_ptr<executor::Executor> executor_;
  std::string name_;
  double load_ms_ = 0;
  std::uint32_t largest_ = 1;
  std::vector<std::byte> input_;
  std::vector<std::byte> output_;
};

void measure(const config::ModelConfig& model, const Settings& settings) {
  auto onnx_file = model.file;
  onnx_file.replace_extension(".onnx");
  if (!std::filesystem::exists(model.file) || !std::filesystem::exists(onnx_file)) {
    fmt::print("{:18} is not exported in both formats\n", model.name);
    return;
  }
  const std::uint32_t largest = *std::max_element(settings.batches.begin(), settings.batches.end());
  Side torchscript(executor::make_torch_executor(), model, model.file, largest);
  Side onnx(executor::make_onnx_executor(), model, onnx_file, largest);
  for (const std::uint32_t batch : settings.batches) {
    std::vector<double> torchscript_ms;
    std::vector<double> onnx_ms;
    const auto end = Clock::now() + std::chrono::duration<double>(settings.seconds);
    do {
      torchscript_ms.push_back(torchscript.run(batch));
      onnx_ms.push_back(onnx.run(batch));
    } while (Clock::now() < end || torchscript_ms.size() < 3);
    fmt::print("{:18} {:5} {:12.3f} {:9.3f} {:7.2f} {:12.0f} {:9.0f}\n", model.name, batch,
               median(torchscript_ms), median(onnx_ms), median(onnx_ms) / median(torchscript_ms),
               torchscript.load_ms(), onnx.load_ms());
  }
  std::fflush(stdout);
}

std::uint64_t resident_bytes(pid_t process) {
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  std::ifstream("/proc/" + std::to_string(process) + "/statm") >> total >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

void measure_warm(const std::string& name) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / name;
  net::asio::io_context io;
  backend::ProxyCallbacks callbacks;
  bool idle = false;
  callbacks.on_idle = [&idle] { idle = true; };
  const auto begin = Clock::now();
  const auto process =
      backend::ProxyProcess::start(io.get_executor(), {.program = program}, std::move(callbacks));
  if (!process.ok()) throw std::runtime_error(process.status().to_string());
  while (!idle && Clock::now() < begin + std::chrono::minutes(1))
    io.run_one_for(std::chrono::seconds(1));
  const std::chrono::duration<double, std::milli> took = Clock::now() - begin;
  fmt::print("{:18} {:6.1f} MB resident, warm after {:.0f} ms\n", name,
             static_cast<double>(resident_bytes(process.value()->pid())) / 1e6, took.count());
}

void run(const Settings& settings) {
  for (const char* name : {"gpulet-proxy", "gpulet-proxy-onnx"}) measure_warm(name);
  const auto models = config::load_models(settings.models);
  if (!models.ok()) throw std::runtime_error(models.status().to_string());
  fmt::print("\n{:18} {:>5} {:>12} {:>9} {:>7} {:>12} {:>9}\n", "CPU time in ms", "batch",
             "TorchScript", "ONNX", "ratio", "to load", "ONNX");
  for (const config::ModelConfig& model : models.value()) {
    const auto& only = settings.only;
    if (only.empty() || std::find(only.begin(), only.end(), model.name) != only.end())
      measure(model, settings);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  bench::Options options("Latency and memory of ONNX and TorchScript models");
  options.add("--models", settings.models, "the models file; .onnx files lie beside its files");
  options.add("--only", settings.only, "names of models");
  options.add("--batches", settings.batches, "batch sizes");
  options.add("--seconds", settings.seconds, "for each model and batch size").positive();
  if (const auto exit_code = options.parse(argc, argv)) return *exit_code;
  for (const char* variable : {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"})
    ::setenv(variable, "1", 1);  // NOLINT(concurrency-mt-unsafe): no other thread yet
  try {
    run(settings);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_executor_formats: {}\n", error.what());
    return 1;
  }
  return 0;
}

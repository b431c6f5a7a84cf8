// gpulet-kernels: runs batches of models in one process, without the path of requests.
//   try        checks that the LibTorch executor can be loaded and runs a small model
//   run        runs batches of one model for a profiler, and prints their median time
//   bandwidth  prints the bandwidth from host to GPU in 10^9 bytes per second
//   check      compares the outputs of a device with those of the CPU
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gpulet/base/text.h"
#include "gpulet/base/time.h"
#include "gpulet/executor/torch/torch_executor.h"
#include "gpulet/gpu/cuda_driver.h"
#include "gpulet/load/client.h"
#include "gpulet/version/version.h"
#include "tools/cli/command.h"
#include "tools/measure/scratch_folder.h"
#include "tools/report/format.h"

namespace {

using namespace gpulet;
using namespace gpulet::tools;

constexpr int kWarmUpBatches = 5;
constexpr std::uint64_t kSeed = 1;
constexpr std::uint32_t kCheckedBatch = 2;

struct Options {
  std::string models;
  std::string model;
  std::vector<std::string> only;
  std::string device = "cuda:0";
  std::uint32_t batch = 1;
  int batches = 100;
  double tolerance = 0.01;
};

// One model on one device with a batch of random inputs.
class ModelRunner {
 public:
  [[nodiscard]] static Result<ModelRunner> load(executor::Executor& executor,
                                                const config::ModelConfig& model,
                                                std::uint32_t batch) {
    ModelRunner loaded(executor, model.name, batch);
    GPULET_TRY(const auto output_bytes, byte_size(model.outputs));
    loaded.outputs_.resize(output_bytes * batch);
    std::vector<TensorSpec> inputs = model.inputs;
    for (TensorSpec& input : inputs) {
      if (input.image) input = model_input(input);  // executors get decoded images
      // The inputs of a batch follow one another, each with all requests (core/request.h).
      TensorSpec whole = input;
      whole.shape.insert(whole.shape.begin(), batch);
      GPULET_TRY(const auto made, load::random_inputs({whole}, kSeed));
      const auto bytes = made.requests.front().view();
      loaded.inputs_.insert(loaded.inputs_.end(), bytes.begin(), bytes.end());
    }
    const auto variant = executor.load({.name = model.name,
                                        .file = model.file,
                                        .inputs = inputs,
                                        .outputs = model.outputs,
                                        .max_batch = batch,
                                        .numerics = model.numerics});
    if (!variant.ok()) return variant.status();
    return loaded;
  }

  [[nodiscard]] Status run() {
    return executor_.run({model_, batch_, inputs_, outputs_, {}}).status();
  }
  [[nodiscard]] std::span<const std::byte> outputs() const { return outputs_; }

 private:
  ModelRunner(executor::Executor& executor, std::string model, std::uint32_t batch)
      : executor_(executor), model_(std::move(model)), batch_(batch) {}

  executor::Executor& executor_;
  std::string model_;
  std::uint32_t batch_;
  std::vector<std::byte> inputs_;
  std::vector<std::byte> outputs_;
};

Status run_batches(ModelRunner& model, int count, std::vector<double>& took_ms) {
  for (int i = 0; i < count; ++i) {
    const auto before = std::chrono::steady_clock::now();
    if (Status ran = model.run(); !ran.ok()) return ran;
    took_ms.push_back(to_ms(std::chrono::steady_clock::now() - before));
  }
  return {};
}

int run(const Options& options) {
  const auto models = choose_models(options.models, {options.model});
  if (!models.ok()) return bad_input(models.status());
  const auto executor = executor::make_torch_executor(options.device);
  auto model = ModelRunner::load(*executor, models.value().front(), options.batch);
  if (!model.ok()) return run_failed(model.status());
  std::vector<double> took_ms;
  if (Status warm = run_batches(model.value(), kWarmUpBatches, took_ms); !warm.ok())
    return run_failed(warm);
  took_ms.clear();
  {
    // Has no effect without a driver.
    const auto range = gpu::ProfiledRange::begin();
    const Status ran = run_batches(model.value(), options.batches, took_ms);
    if (!ran.ok()) return run_failed(ran);
  }
  std::sort(took_ms.begin(), took_ms.end());
  const double median_ms = took_ms[took_ms.size() / 2];
  std::cout << R"({"model":)" << json_string(options.model) << R"(,"device":)"
            << json_string(options.device) << R"(,"batch":)" << options.batch << R"(,"median_ms":)"
            << shortest(median_ms, 4) << "}\n";
  return kSucceeded;
}

constexpr std::size_t kCopiedBytes = std::size_t{64} << 20;
constexpr std::uint32_t kCopies = 16;

// The GPU's number of "cuda:0"; empty for other devices.
std::optional<std::uint32_t> gpu_number(std::string_view device) {
  constexpr std::string_view kPrefix = "cuda:";
  if (!device.starts_with(kPrefix)) return std::nullopt;
  return parse_number<std::uint32_t>(device.substr(kPrefix.size()));
}

int bandwidth(const Options& options) {
  const auto gpu = gpu_number(options.device);
  if (!gpu) {
    return bad_input(
        {StatusCode::invalid, "--device " + options.device + ": not a GPU; give cuda:NUMBER"});
  }
  const auto driver = gpu::CudaDriver::load();
  if (!driver.ok()) return run_failed(driver.status());
  std::vector<std::byte> memory(kCopiedBytes);
  const auto registered = driver.value().register_memory(*gpu, memory);
  if (!registered.ok()) return run_failed(registered.status());
  const auto took = driver.value().time_copies(*gpu, memory, kCopies);
  if (!took.ok()) return run_failed(took.status());
  std::cout << shortest(kCopiedBytes / (to_ms(took.value()) * 1e6), 4) << '\n';
  return kSucceeded;
}

// Writes the outputs of every model on that device to a file.
Status write_outputs(const std::vector<config::ModelConfig>& models, const std::string& device,
                     const std::filesystem::path& folder) {
  const auto executor = executor::make_torch_executor(device);
  for (const config::ModelConfig& each : models) {
    auto model = ModelRunner::load(*executor, each, kCheckedBatch);
    Status ran = model.ok() ? model.value().run() : model.status();
    std::ofstream file(folder / (each.name + "." + device), std::ios::binary);
    if (!ran.ok()) {
      std::ofstream(folder / (each.name + "." + device + ".failed")) << ran.message();
      continue;
    }
    const auto outputs = model.value().outputs();
    file.write(reinterpret_cast<const char*>(outputs.data()),
               static_cast<std::streamsize>(outputs.size()));
    if (!file.flush()) return {StatusCode::unavailable, "cannot write to " + folder.string()};
  }
  return {};
}

// The largest difference in an output as a fraction of its largest magnitude; outputs that are not
// FP32 must be equal. Empty if a value is not finite.
std::optional<double> largest_difference(const config::ModelConfig& model,
                                         const std::string& expected, const std::string& found) {
  if (expected.size() != found.size()) return std::nullopt;
  double worst = 0;
  std::size_t at = 0;
  for (const TensorSpec& output : model.outputs) {
    const std::size_t bytes = byte_size(output).value() * kCheckedBatch;
    if (output.type != DataType::fp32) {
      if (expected.compare(at, bytes, found, at, bytes) != 0) worst = 1;
      at += bytes;
      continue;
    }
    double largest = 0;
    double apart = 0;
    for (const std::size_t end = at + bytes; at < end; at += sizeof(float)) {
      float a = 0;
      float b = 0;
      std::memcpy(&a, expected.data() + at, sizeof a);
      std::memcpy(&b, found.data() + at, sizeof b);
      if (!std::isfinite(a) || !std::isfinite(b)) return std::nullopt;
      largest = std::max<double>(largest, std::abs(a));
      apart = std::max<double>(apart, std::abs(a - b));
    }
    if (apart > 0) worst = std::max(worst, largest > 0 ? apart / largest : 1);
  }
  return worst;
}

// Runs the work in a child process, because LibTorch's settings are per process.
Status run_in_child(const std::function<Status()>& work) {
  const pid_t child = ::fork();
  if (child < 0) return {StatusCode::unavailable, "cannot start a process"};
  if (child == 0) {
    const Status worked = work();
    if (!worked.ok()) std::cerr << "gpulet-kernels: " << worked.message() << '\n';
    std::cerr.flush();
    ::_exit(worked.ok() ? 0 : 1);
  }
  int ended = 0;
  while (::waitpid(child, &ended, 0) != child) {
  }
  if (ended == 0) return {};
  return {StatusCode::internal, "the process that computes the outputs failed"};
}

int check(const Options& options) {
  const auto models = choose_models(options.models, options.only);
  if (!models.ok()) return bad_input(models.status());
  const auto folder = ScratchFolder::make("gpulet-kernels-");
  if (!folder.ok()) return run_failed(folder.status());
  const auto& place = folder.value().path();
  for (const std::string& device : {std::string("cpu"), options.device}) {
    const Status written =
        run_in_child([&] { return write_outputs(models.value(), device, place); });
    if (!written.ok()) return run_failed(written.within(device));
  }
  Table table({{"model", Table::Align::left}, {"difference"}, {"bound"}, {"", Table::Align::left}});
  bool all_good = true;
  for (const config::ModelConfig& model : models.value()) {
    const auto file = place / (model.name + "." + options.device);
    const std::string why = content_of(file.string() + ".failed");
    const double bound =
        options.tolerance +
        (model.numerics.precision == Precision::full ? 0.0 : model.numerics.largest_error);
    const auto apart =
        largest_difference(model, content_of(place / (model.name + ".cpu")), content_of(file));
    const bool good = why.empty() && apart && *apart <= bound;
    all_good = all_good && good;
    table.add_row({model.name, apart ? shortest(*apart, 6) : "-", shortest(bound, 6),
                   good ? "ok" : (why.empty() ? "DIFFERS" : why)});
  }
  std::cout << table.to_string();
  return all_good ? kSucceeded : kRunFailed;
}

void add_commands(CLI::App& app, Options& options, Action& chosen) {
  app.add_subcommand("try", "load the LibTorch executor and run a small model on the CPU")
      ->callback([&] {
        chosen = [] {
          executor::prepare_torch();  // creates, saves, loads and runs a small model
          std::cout << "the LibTorch executor works\n";
          return kSucceeded;
        };
      });
  CLI::App* const runs = app.add_subcommand("run", "run batches of one model");
  runs->add_option("--models", options.models, "the models file")->required();
  runs->add_option("--model", options.model, "the model")->required();
  runs->add_option("--batch", options.batch, "requests in a batch")->check(CLI::Range(1, 1024));
  runs->add_option("--batches", options.batches, "number of batches after the warm-up")
      ->check(CLI::Range(1, 1000000));
  runs->add_option("--device", options.device, "cpu, or cuda:NUMBER")->capture_default_str();
  runs->callback([&] { chosen = [&] { return run(options); }; });
  CLI::App* const copies =
      app.add_subcommand("bandwidth", "print the bandwidth from host to GPU in 10^9 bytes/s");
  copies->add_option("--device", options.device, "cuda:NUMBER")->capture_default_str();
  copies->callback([&] { chosen = [&] { return bandwidth(options); }; });
  CLI::App* const checks =
      app.add_subcommand("check", "compare the outputs of a device with those of the CPU");
  checks->add_option("--models", options.models, "the models file")->required();
  checks->add_option("--only", options.only, "only these models of the file")->delimiter(',');
  checks->add_option("--device", options.device, "cuda:NUMBER")->capture_default_str();
  checks
      ->add_option(
          "--tolerance", options.tolerance,
          "largest allowed difference in an output, as a fraction of its largest magnitude; the "
          "largest_error of models with reduced precision is added")
      ->capture_default_str();
  checks->callback([&] { chosen = [&] { return check(options); }; });
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"gpulet-kernels runs batches of models in one process.", "gpulet-kernels"};
  app.set_version_flag("--version", [] { return version::text("gpulet-kernels"); });
  app.require_subcommand(1);
  Options options;
  Action chosen;
  add_commands(app, options, chosen);
  return run_main(app, chosen, argc, argv);
}

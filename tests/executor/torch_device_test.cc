// Model cache, shared device, pipeline and graph cache, on the CPU, which has no streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/irparser.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "executor/torch/batch_sizes.h"
#include "executor/torch/cuda_graph_cache.h"
#include "executor/torch/model.h"
#include "executor/torch/pipeline.h"
#include "executor/torch/preparer.h"
#include "executor/torch/process.h"
#include "executor/torch/shape_arithmetic.h"
#include "gpulet/executor/torch/torch_executor.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::executor {
namespace {

using support::holds;
using support::names;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kTwice = "def forward(self, x):\n    return x * 2\n";

torch::jit::Module module_of(const std::string& forward) {
  torch::jit::Module module("m");
  module.define(forward);
  module.eval();
  return module;
}

std::filesystem::path saved(const support::TemporaryFolder& folder, const std::string& forward) {
  const auto file = folder.path() / "m.pt";
  module_of(forward).save(file.string());
  return file;
}

ModelToLoad to_load(const std::filesystem::path& file) {
  const TensorSpec one{.name = "x", .type = DataType::fp32, .shape = {2}};
  return {.name = "m", .file = file, .inputs = {one}, .outputs = {one}, .max_batch = 4};
}

TorchModel in_memory(const std::string& forward) {
  const ModelToLoad request = to_load({});
  TorchModel model;
  model.name = request.name;
  model.inputs = request.inputs;
  model.outputs = request.outputs;
  model.input_sizes = tensor_sizes(request.inputs).value();
  model.output_sizes = tensor_sizes(request.outputs).value();
  model.network.module = module_of(forward);
  return model;
}

TEST(ModelCache, LoadsAFileOnceForConcurrentCallers) {
  const support::TemporaryFolder folder;
  const auto file = saved(folder, kTwice);
  const auto link = folder.path() / "by-another-name";
  std::filesystem::create_symlink(file, link);
  ModelCache cache;
  std::atomic<int> loads = 0;
  const auto load = [&loads]() -> Result<TorchModel> {
    ++loads;
    return in_memory(kTwice);
  };
  std::vector<std::shared_ptr<const TorchModel>> models(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < models.size(); ++i) {
    threads.emplace_back(
        [&, i] { models[i] = cache.get(to_load(i % 2 == 0 ? file : link), load).value(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(loads, 1);
  EXPECT_EQ(models[0], models[3]);
  ModelToLoad other = to_load(file);
  other.numerics.precision = Precision::bfloat16;
  EXPECT_NE(cache.get(other, load).value(), models[0]) << "other numerics make another model";
  EXPECT_EQ(loads, 2);
  models.clear();
  EXPECT_TRUE(cache.get(to_load(file), load).ok());
  EXPECT_EQ(loads, 3) << "nobody held the model any more";
}

TEST(ModelCache, DoesNotCacheFailures) {
  const support::TemporaryFolder folder;
  const auto file = saved(folder, kTwice);
  ModelCache cache;
  EXPECT_EQ(
      cache.get(to_load(file), [] { return Status(StatusCode::invalid, "no"); }).status().message(),
      "no");
  EXPECT_TRUE(cache.get(to_load(file), [] { return in_memory(kTwice); }).ok());
}

TEST(ModelCache, DoesNotShareModelsThatChangeThemselves) {
  const support::TemporaryFolder folder;
  const auto file = saved(folder, kTwice);
  ModelCache cache;
  const auto load = []() -> Result<TorchModel> {
    TorchModel model = in_memory(kTwice);
    model.network.changes_itself = true;
    return model;
  };
  const auto one = cache.get(to_load(file), load).value();
  EXPECT_NE(cache.get(to_load(file), load).value(), one);
}

TEST(TorchSharedDevice, ExecutorsOnSeveralThreadsShareAModel) {
  const support::TemporaryFolder folder;
  const auto file = saved(folder, kTwice);
  auto device = make_torch_shared_device("cpu");
  ASSERT_TRUE(device.ok()) << device.status().to_string();
  std::atomic<int> right = 0;
  const auto serve = [&](float first) {
    auto executor = device.value()->add_executor(Share{50}, {});
    ASSERT_TRUE(executor.ok());
    EXPECT_EQ(executor.value()->found_share().value(), partition::FoundShare{});
    ASSERT_TRUE(executor.value()->load(to_load(file)).ok());
    for (int i = 0; i < 50; ++i) {
      const std::vector<float> input{first, first + 1, first + 2, static_cast<float>(i)};
      std::vector<float> output(4);
      const auto written =
          executor.value()->run({.model = "m",
                                 .count = 2,
                                 .input = std::as_bytes(std::span(input)),
                                 .output = std::as_writable_bytes(std::span(output))});
      if (written.ok() && output[0] == 2 * first && output[3] == static_cast<float>(2 * i)) ++right;
    }
  };
  std::thread one(serve, 1.F);
  std::thread other(serve, 100.F);
  one.join();
  other.join();
  EXPECT_EQ(right, 100);
}

TEST(TorchSharedDevice, MeasuresTheStagesOfEachLoad) {
  const support::TemporaryFolder folder;
  const auto file = saved(folder, kTwice);
  auto device = make_torch_shared_device("cpu");
  ASSERT_TRUE(device.ok()) << device.status().to_string();
  const std::vector<std::string> names{"m"};
  auto executor = device.value()->add_executor(Share{50}, names);
  ASSERT_TRUE(executor.ok());
  ModelToLoad request = to_load(file);
  request.planned_batches = {3};
  ASSERT_TRUE(executor.value()->load(request).ok());
  const partition::LoadStages first = executor.value()->load_stages();
  EXPECT_GT(first.read, Duration::zero());
  EXPECT_GT(first.copy, Duration::zero());
  EXPECT_GT(first.warm, Duration::zero());
  auto second = device.value()->add_executor(Share{50}, names);
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE(second.value()->load(request).ok());
  EXPECT_EQ(second.value()->load_stages().read, Duration::zero()) << "the model is in memory";
  executor.value()->serving();
  EXPECT_EQ(executor.value()->condition(), std::nullopt) << "of a CPU";
}

TEST(TorchSharedDevice, RejectsUnknownDevices) {
  EXPECT_EQ(make_torch_shared_device("toaster").status().code(), StatusCode::invalid);
}

TEST(DevicePipeline, BeginsABatchBeforeAnotherHasFinished) {
  const TorchModel model = in_memory(kTwice);
  DevicePipeline pipeline(c10::kCPU, 2);
  const auto work = [&model](std::vector<c10::IValue> inputs) {
    return run_network(model.network, model, 2, std::move(inputs));
  };
  const std::vector<float> input{1, 2, 3, 4};
  std::vector<float> first(4);
  std::vector<float> second(5);
  const auto batch = [&input](std::vector<float>& output) {
    return BatchToRun{.model = "m",
                      .count = 2,
                      .input = std::as_bytes(std::span(input)),
                      .output = std::as_writable_bytes(std::span(output))};
  };
  EXPECT_TRUE(pipeline.empty());
  auto one = pipeline.begin(model, batch(first), {}, {}, work);
  auto two = pipeline.begin(model, batch(second), {}, {}, work);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_FALSE(pipeline.begin(model, batch(first), {}, {}, work).ok()) << "a third";
  std::thread other([&one] { EXPECT_EQ(one.value()->finish().value(), 4 * sizeof(float)); });
  other.join();
  one.value().reset();
  EXPECT_EQ(two.value()->finish().value(), 4 * sizeof(float));
  EXPECT_THAT(first, ElementsAre(2, 4, 6, 8));
  EXPECT_THAT(second, ElementsAre(2, 4, 6, 8, 0));
  two.value().reset();
  EXPECT_TRUE(pipeline.empty());
}

TEST(DevicePipeline, AFailedBatchFreesItsSlot) {
  const TorchModel model = in_memory(kTwice);
  DevicePipeline pipeline(c10::kCPU, 1);
  const std::vector<float> input{1, 2};
  std::vector<float> output(2);
  const BatchToRun batch{.model = "m",
                         .count = 1,
                         .input = std::as_bytes(std::span(input)),
                         .output = std::as_writable_bytes(std::span(output))};
  const auto failed = pipeline.begin(model, batch, {}, {}, [](std::vector<c10::IValue>) {
    return Status(StatusCode::internal, "no");
  });
  EXPECT_EQ(failed.status().message(), "no");
  EXPECT_TRUE(pipeline.empty());
}

// Imitates a CUDA graph on the CPU: replay() repeats the work with the same tensors.
class Recorded final : public CapturedWork {
 public:
  Recorded(std::function<void()> work, int& replays) : work_(std::move(work)), replays_(replays) {
    work_();
  }
  void replay() override {
    ++replays_;
    work_();
  }

 private:
  std::function<void()> work_;
  int& replays_;
};

std::vector<c10::IValue> row(float a, float b) { return {at::tensor({a, b}).reshape({1, 2})}; }

CudaGraphCache::Capture recording(int& replays) {
  return [&replays](const std::function<void()>& work) {
    return std::make_unique<Recorded>(work, replays);
  };
}

TEST(CudaGraphCache, ReplaysCapturedSizesWithOutputsOfTheirOwn) {
  const TorchModel model = in_memory(kTwice);
  int replays = 0;
  CudaGraphCache graphs(recording(replays));
  EXPECT_TRUE(graphs.run(model, 1, row(1, 2)).ok());
  EXPECT_EQ(replays, 0) << "nothing is captured yet";
  graphs.add(model, std::vector<std::uint32_t>{1, 2}, c10::kCPU);
  EXPECT_EQ(graphs.size(), 2U);
  const auto first = graphs.run(model, 1, row(3, 4)).value();
  const auto second = graphs.run(model, 1, row(5, 6)).value();
  EXPECT_EQ(replays, 2);
  EXPECT_EQ(first[0][0][1].item<float>(), 8) << "unchanged by the next replay";
  EXPECT_EQ(second[0][0][1].item<float>(), 12);
  graphs.erase(model);
  EXPECT_EQ(graphs.size(), 0U);
}

TEST(CudaGraphCache, ReplaysTheNextLargerSizeAndReturnsTheRowsOfTheBatch) {
  const TorchModel model = in_memory(kTwice);
  const TorchModel other = in_memory("def forward(self, x):\n    return x * 3\n");
  int replays = 0;
  CudaGraphCache graphs(recording(replays));
  graphs.add(model, std::vector<std::uint32_t>{1, 4}, c10::kCPU);
  graphs.add(other, std::vector<std::uint32_t>{8}, c10::kCPU);
  const std::vector<c10::IValue> three{at::arange(6, at::kFloat).reshape({3, 2})};
  const at::Tensor outputs = graphs.run(model, 3, three).value()[0];
  EXPECT_EQ(replays, 1);
  EXPECT_TRUE(outputs.equal(three[0].toTensor() * 2)) << outputs;
  const std::vector<c10::IValue> five{at::arange(10, at::kFloat).reshape({5, 2})};
  EXPECT_TRUE(graphs.run(model, 5, five).value()[0].equal(five[0].toTensor() * 2));
  EXPECT_EQ(replays, 1) << "larger than every captured size of this model";
}

TEST(CudaGraphCache, FindsTheSizesThatCanBeReplayed) {
  constexpr std::array<std::uint32_t, 3> kSizes{1, 2, 4};
  int replays = 0;
  TorchModel model = in_memory(kTwice);
  EXPECT_THAT(replayable_sizes(recording(replays), model, kSizes, c10::kCPU), ElementsAre(1, 2, 4));
  EXPECT_EQ(replays, 3);

  int captures = 0;
  const auto refuse = [&captures](const std::function<void()>&) -> std::unique_ptr<CapturedWork> {
    ++captures;
    throw std::runtime_error("operation not permitted when stream is capturing");
  };
  EXPECT_THAT(replayable_sizes(refuse, model, kSizes, c10::kCPU), IsEmpty());
  EXPECT_EQ(captures, 1);

  // A replay that does not read its inputs.
  const auto frozen = [](const std::function<void()>& work) {
    work();
    struct Nothing final : CapturedWork {
      void replay() override {}
    };
    return std::make_unique<Nothing>();
  };
  EXPECT_THAT(replayable_sizes(frozen, model, kSizes, c10::kCPU), IsEmpty());

  model.network.changes_itself = true;
  EXPECT_THAT(replayable_sizes(recording(replays), model, kSizes, c10::kCPU), IsEmpty());
}

TEST(SizesToPrepare, GrowByAtMostAHalf) {
  EXPECT_THAT(sizes_to_prepare(1), ElementsAre(1));
  EXPECT_THAT(sizes_to_prepare(2), ElementsAre(1, 2));
  EXPECT_THAT(sizes_to_prepare(5), ElementsAre(1, 2, 3, 4, 5));
  EXPECT_THAT(sizes_to_prepare(32), ElementsAre(1, 2, 3, 4, 6, 8, 12, 16, 24, 32));
}

TEST(WarmUpSizes, RunsEachSizeOrReportsWhyNot) {
  constexpr std::array<std::uint32_t, 2> kSizes{1, 3};
  const TorchModel model = in_memory(kTwice);
  EXPECT_THAT(warm_up_sizes(model, kSizes, c10::kCPU).value(), ElementsAre(1, 3));
  const TorchModel wrong = in_memory("def forward(self, x):\n    return x.sum()\n");
  EXPECT_EQ(warm_up_sizes(wrong, kSizes, c10::kCPU).status().code(), StatusCode::invalid);
}

TEST(Preparer, RunsTasksInOrderOnOneThreadAndReturnsWhatTheyThrow) {
  std::vector<int> order;
  std::future<std::thread::id> first;
  std::future<std::thread::id> second;
  std::future<void> failing;
  {
    Preparer preparer;
    const auto task = [&order](int number) {
      return [&order, number] {
        order.push_back(number);
        return std::this_thread::get_id();
      };
    };
    first = preparer.post(task(1));
    failing = preparer.post([] { throw std::runtime_error("no"); });
    second = preparer.post(task(2));
  }
  EXPECT_THAT(order, ElementsAre(1, 2)) << "its end waits for the tasks";
  const auto thread = first.get();
  EXPECT_EQ(thread, second.get());
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_THROW(failing.get(), std::runtime_error);
}

TEST(ShapeArithmetic, FindsTheConstantsThatMeetOnlySizes) {
  const auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(R"(
graph(%x : Tensor, %divisor : Tensor):
  %dimension : int = prim::Constant[value=1]()
  %size : int = aten::size(%x, %dimension)
  %length : Tensor = prim::NumToTensor(%size)
  %part : Tensor = aten::floor_divide(%length, %divisor)
  %half : Tensor = aten::floor_divide(%part, %divisor)
  %scaled : Tensor = aten::mul(%x, %divisor)
  %ratio : Tensor = aten::mul(%x, %half)
  %constant : Tensor = aten::mul(%divisor, %divisor)
  return (%half, %scaled, %ratio, %constant))",
                      graph.get());
  torch::jit::Value* const divisor = graph->inputs()[1];
  {
    const torch::jit::WithInsertPoint begin(*graph->nodes().begin());
    divisor->replaceAllUsesWith(graph->insertConstant(at::scalar_tensor(12, at::kLong)));
  }
  std::vector<ConstantUse> expected;
  for (torch::jit::Node* const node : graph->nodes()) {
    if (node->kind() == at::aten::floor_divide) expected.push_back({node, 1});
  }
  ASSERT_EQ(expected.size(), 2U);
  EXPECT_EQ(constants_of_shape_arithmetic(*graph), expected) << graph->toString();
  const std::string before = graph->toString();
  keep_shape_arithmetic_on_cpu(*graph);
  EXPECT_EQ(graph->toString(), before) << "they are on the CPU already";
}

// The proxy prepares its process before it knows its device.
TEST(ConfigureProcess, OnAGpuNoExecutorCompilesKernels) {
  prepare_process();
  EXPECT_FALSE(torch::jit::getExecutorMode());
  (void)configure_process(c10::Device(c10::kCUDA, 0));
  EXPECT_TRUE(torch::jit::getExecutorMode());
  EXPECT_FALSE(torch::jit::getProfilingMode());
  (void)configure_process(c10::kCPU);
  EXPECT_FALSE(torch::jit::getExecutorMode());
}

TEST(TorchExecutor, AGpuWithoutCudaFailsWithOneLine) {
  if (built_with_cuda()) GTEST_SKIP() << "this LibTorch has CUDA";
  const auto executor = make_torch_executor("cuda:0");
  const Status status = executor->found_share().status();
  EXPECT_EQ(status.code(), StatusCode::unavailable);
  EXPECT_TRUE(names(status, "'cuda:0'"));
  EXPECT_FALSE(holds(status, "\n"));
  EXPECT_EQ(make_torch_shared_device("cuda:0").status().code(), StatusCode::unavailable);
  EXPECT_EQ(executor->health(), partition::DeviceHealth::works);
}

}  // namespace
}  // namespace gpulet::executor

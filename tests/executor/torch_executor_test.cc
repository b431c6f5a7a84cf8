#include "gpulet/executor/torch/torch_executor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <torch/script.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "executor/torch/conversions.h"
#include "executor/torch/package_file.h"
#include "executor/torch/tensors.h"
#include "gpulet/base/files.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torchscript_archive.h"
#include "tests/support/variable.h"

namespace gpulet::executor {
namespace {

using support::names;

// A temporary folder for model files.
class Folder {
 public:
  Folder()
      : path_(std::filesystem::temp_directory_path() /
              ("gpulet-torch-test-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  // Writes a TorchScript file with that source of forward().
  [[nodiscard]] std::filesystem::path module(std::string_view forward) const {
    torch::jit::Module module("m");
    module.register_parameter("weight", at::arange(6, at::kFloat).reshape({2, 3}) - 2, false);
    module.define(std::string(forward) + "\n");
    const std::filesystem::path file = path_ / "module.pt";
    module.save(file.string());
    return file;
  }
  [[nodiscard]] std::filesystem::path text(std::string_view content) const {
    const std::filesystem::path file = path_ / "text.pt";
    std::ofstream(file) << content;
    return file;
  }

 private:
  std::filesystem::path path_;
};

TensorSpec fp32(std::vector<std::int64_t> shape) {
  return {.name = "x", .type = DataType::fp32, .shape = std::move(shape)};
}
TensorSpec int64(std::vector<std::int64_t> shape) {
  return {.name = "i", .type = DataType::int64, .shape = std::move(shape)};
}

ModelToLoad model(std::filesystem::path file, std::vector<TensorSpec> inputs,
                  std::vector<TensorSpec> outputs) {
  return {.name = "m",
          .file = std::move(file),
          .inputs = std::move(inputs),
          .outputs = std::move(outputs),
          .max_batch = 4};
}

template <typename T>
std::vector<T> run(Executor& executor, std::uint32_t count, std::span<const std::byte> input,
                   std::size_t numbers) {
  std::vector<T> output(numbers + 1);  // the number beyond the outputs must not change
  const Result<std::size_t> written =
      executor.run({.model = "m",
                    .count = count,
                    .input = input,
                    .output = std::as_writable_bytes(std::span(output))});
  EXPECT_TRUE(written.ok()) << written.status().to_string();
  if (!written.ok()) return {};
  EXPECT_EQ(written.value(), numbers * sizeof(T));
  EXPECT_EQ(output.back(), T{});
  output.pop_back();
  return output;
}

constexpr std::string_view kLinear = R"(
def forward(self, x):
    return torch.matmul(x, self.weight.t()))";  // weight: [[-2,-1,0],[1,2,3]]

TEST(TorchExecutor, MatchesLibTorchForEveryBatchSize) {
  const Folder folder;
  const auto file = folder.module(kLinear);
  const auto executor = make_torch_executor();
  const Status loaded = executor->load(model(file, {fp32({3})}, {fp32({2})})).status();
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  torch::jit::Module direct = torch::jit::load(file.string());
  for (const std::uint32_t count : {1U, 2U, 3U, 4U, 9U}) {
    at::Tensor input = at::linspace(-1, 1, 3 * count).reshape({count, 3});
    const at::Tensor expected = direct.forward({input}).toTensor().contiguous();
    const auto bytes = std::span(static_cast<const std::byte*>(input.data_ptr()), input.nbytes());
    const std::vector<float> output = run<float>(*executor, count, bytes, 2 * count);
    ASSERT_EQ(output.size(), 2 * count);
    for (std::size_t i = 0; i < output.size(); ++i)
      EXPECT_FLOAT_EQ(output[i], expected.data_ptr<float>()[i]);
  }
}

// What clients send for an image of 2 x 2 pixels.
TensorSpec bytes_of_image(bool from_last, bool to_last) {
  TensorSpec spec{.name = "x", .type = DataType::uint8, .shape = {3, 2, 2}};
  if (from_last) spec.shape = {2, 2, 3};
  spec.conversion = InputConversion{.from_channels_last = from_last,
                                    .to_channels_last = to_last,
                                    .mean = {0.485, 0.456, 0.406},
                                    .deviation = {0.229, 0.224, 0.225}};
  return spec;
}

at::Tensor any_bytes(const TensorSpec& spec, std::int64_t count) {
  std::vector<std::int64_t> shape{count};
  shape.insert(shape.end(), spec.shape.begin(), spec.shape.end());
  return (at::arange(c10::multiply_integers(shape), at::kLong) * 29).to(at::kByte).reshape(shape);
}

// As torchvision does it.
at::Tensor normalised(const at::Tensor& bytes, bool from_last, bool to_last) {
  const at::Tensor image = from_last ? bytes.permute({0, 3, 1, 2}) : bytes;
  const at::Tensor mean = at::tensor({0.485F, 0.456F, 0.406F}).view({3, 1, 1});
  const at::Tensor deviation = at::tensor({0.229F, 0.224F, 0.225F}).view({3, 1, 1});
  const at::Tensor made = (image.to(at::kFloat) / 255 - mean) / deviation;
  return (to_last ? made.permute({0, 2, 3, 1}) : made).contiguous();
}

TEST(TorchExecutor, ConvertsTheBytesOfAnImage) {
  const Folder folder;
  const auto file = folder.module("def forward(self, x):\n    return x + x");
  for (const bool from_last : {false, true}) {
    for (const bool to_last : {false, true}) {
      const TensorSpec spec = bytes_of_image(from_last, to_last);
      const auto executor = make_torch_executor();
      const Status loaded =
          executor->load(model(file, {spec}, {fp32(model_input(spec).shape)})).status();
      ASSERT_TRUE(loaded.ok()) << loaded.to_string();
      for (const std::uint32_t count : {1U, 3U, 5U}) {
        const at::Tensor input = any_bytes(spec, count);
        const at::Tensor expected = 2 * normalised(input, from_last, to_last);
        const auto bytes =
            std::span(static_cast<const std::byte*>(input.data_ptr()), input.nbytes());
        const std::vector<float> output = run<float>(*executor, count, bytes, bytes.size());
        ASSERT_EQ(output.size(), bytes.size());
        for (std::size_t i = 0; i < output.size(); ++i)
          EXPECT_NEAR(output[i], expected.data_ptr<float>()[i], 1e-5) << i;
      }
    }
  }
}

// A model that writes to its input writes to the converted one.
TEST(TorchExecutor, AConvertedInputLeavesTheBytesAsTheyWere) {
  const Folder folder;
  const auto file = folder.module("def forward(self, x):\n    return x.mul_(2)");
  TensorSpec spec{.name = "x", .type = DataType::uint8, .shape = {2}};
  spec.conversion = InputConversion{.scale = 1};
  const auto executor = make_torch_executor();
  const Status loaded = executor->load(model(file, {spec}, {fp32({2})})).status();
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  const std::vector<std::uint8_t> input{1, 2, 3, 4};
  EXPECT_EQ(run<float>(*executor, 2, std::as_bytes(std::span(input)), 4),
            (std::vector<float>{2, 4, 6, 8}));
  EXPECT_EQ(input, (std::vector<std::uint8_t>{1, 2, 3, 4}));
}

// A GPU converts by operations; a CPU can run them, too.
TEST(TorchExecutor, OperationsConvertAsTheCpuDoes) {
  for (const DataType type : {DataType::fp32, DataType::fp16}) {
    for (const bool from_last : {false, true}) {
      for (const bool to_last : {false, true}) {
        TensorSpec spec = bytes_of_image(from_last, to_last);
        spec.conversion->type = type;
        const at::Tensor input = any_bytes(spec, 4);
        const at::Tensor made = DeviceConversion(spec, c10::kCPU)(input);
        EXPECT_TRUE(made.is_contiguous());
        EXPECT_EQ(made.scalar_type(), scalar_type(type));
        std::vector<c10::IValue> inputs{input};
        InputConversions::of({spec}, c10::kCPU).value().apply(inputs);
        const at::Tensor expected = inputs[0].toTensor();
        ASSERT_EQ(made.sizes(), expected.sizes());
        EXPECT_TRUE(at::allclose(made.to(at::kFloat), expected.to(at::kFloat),
                                 type == DataType::fp16 ? 1e-3 : 1e-5, 1e-6));
      }
    }
  }
}

TEST(TorchExecutor, AConversionOfOneNumberServesEveryShape) {
  TensorSpec spec{.name = "x", .type = DataType::uint8, .shape = {2, 5}};
  spec.conversion = InputConversion{.scale = 1, .mean = {3}, .deviation = {0.5}};
  const at::Tensor input = any_bytes(spec, 3);
  EXPECT_TRUE(at::equal(DeviceConversion(spec, c10::kCPU)(input), (input.to(at::kFloat) - 3) * 2));
}

TEST(TorchExecutor, RefusesAConversionThatIsNone) {
  const Folder folder;
  TensorSpec spec{.name = "x", .type = DataType::uint8, .shape = {3}};
  spec.conversion = InputConversion{.mean = {1, 2, 3}};
  const auto executor = make_torch_executor();
  EXPECT_EQ(executor->load(model(folder.module(kLinear), {spec}, {fp32({2})})).status().code(),
            StatusCode::invalid);
}

TEST(TorchExecutor, WritesSeveralOutputsOneAfterAnother) {
  const Folder folder;
  for (const std::string_view answer : {"(y, y + 10)", "[y, y + 10]"}) {
    const auto executor = make_torch_executor();
    const auto file = folder.module(
        "def forward(self, x):\n    y = torch.flip(x, [1])\n    return " + std::string(answer));
    const Status loaded = executor->load(model(file, {fp32({2})}, {fp32({2}), fp32({2})})).status();
    ASSERT_TRUE(loaded.ok()) << loaded.to_string();
    const std::vector<float> input{1, 2, 3, 4};
    EXPECT_EQ(run<float>(*executor, 2, std::as_bytes(std::span(input)), 8),
              (std::vector<float>{2, 1, 4, 3, 12, 11, 14, 13}));
  }
}

TEST(TorchExecutor, AcceptsInputsOfSeveralTypesAtAnyAlignment) {
  const Folder folder;
  const auto executor = make_torch_executor();
  const auto file = folder.module("def forward(self, a, b):\n    return a.long().sum(1, True) + b");
  const TensorSpec odd{.name = "a", .type = DataType::uint8, .shape = {3}};
  const Status loaded = executor->load(model(file, {odd, int64({1})}, {int64({1})})).status();
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  std::vector<std::byte> input{std::byte{1}, std::byte{2},
                               std::byte{3}};  // leaves the INT64 unaligned
  const std::int64_t number = 1'000'000'000'000;
  input.resize(input.size() + sizeof(number));
  std::memcpy(input.data() + 3, &number, sizeof(number));
  EXPECT_EQ(run<std::int64_t>(*executor, 1, input, 1),
            std::vector<std::int64_t>{1'000'000'000'006});
}

TEST(TorchExecutor, RejectsAModelThatDiffersFromItsDeclaration) {
  const Folder folder;
  const auto executor = make_torch_executor();
  struct Case {
    std::string forward;
    std::vector<TensorSpec> inputs;
    std::vector<TensorSpec> outputs;
    std::vector<std::string> values;  // that the message names
  };
  const std::string linear(kLinear);
  const std::vector<Case> cases{
      {linear, {fp32({3})}, {fp32({5})}, {"Float[1,2]", "FP32[5]"}},
      {linear, {fp32({3})}, {int64({2})}, {"Float[1,2]", "INT64[2]"}},
      {linear, {{"text", DataType::bytes, {1}, 64}}, {fp32({2})}, {"text", "BYTES"}},
      {linear, {fp32({3})}, {fp32({2}), fp32({2})}, {"1 tensors", "2 outputs"}},
      {linear, {fp32({4})}, {fp32({2})}, {"FP32[4]"}},
      {linear, {fp32({3}), fp32({3})}, {fp32({2})}, {"FP32[3], FP32[3]"}},
      {"def forward(self, x):\n    return 'words'", {fp32({3})}, {fp32({2})}, {"str"}},
      // Returns one row for any batch size; the warm-up with a batch of two detects it.
      {"def forward(self, x):\n    return x[:1]",
       {fp32({3})},
       {fp32({3})},
       {"batch of 2", "Float[1,3]", "Float[2,3]"}},
  };
  for (const Case& wrong : cases) {
    const auto file = folder.module(wrong.forward);
    const Status status = executor->load(model(file, wrong.inputs, wrong.outputs)).status();
    EXPECT_EQ(status.code(), StatusCode::invalid) << status.to_string();
    EXPECT_TRUE(names(status, file.string()));
    for (const std::string& value : wrong.values) EXPECT_TRUE(names(status, value));
    EXPECT_EQ(executor->run({.model = "m", .count = 1, .input = {}, .output = {}}).status().code(),
              StatusCode::not_found);
  }
}

TEST(TorchExecutor, RejectsFilesThatAreNotTorchScript) {
  const Folder folder;
  const auto executor = make_torch_executor();
  EXPECT_EQ(executor->load(model("/nowhere/m.pt", {fp32({3})}, {fp32({2})})).status().code(),
            StatusCode::not_found);
  for (const std::string_view content : {"", "not a zip archive", "PK\x03\x04 cut short"}) {
    const Status status =
        executor->load(model(folder.text(content), {fp32({3})}, {fp32({2})})).status();
    EXPECT_EQ(status.code(), StatusCode::invalid) << status.to_string();
    EXPECT_TRUE(names(status, "text.pt"));
  }
  EXPECT_THROW((void)make_torch_executor("toaster"), std::invalid_argument);
}

TEST(TorchExecutor, ReportsTheErrorOfTheModelAndContinues) {
  const Folder folder;
  const auto executor = make_torch_executor();
  const auto file = folder.module(R"(
def forward(self, x):
    assert bool((x <= 100).all()), 'too hot'
    if bool((x < -100).any()):
        return x[:, :1]
    return x * 2)");
  const Status loaded = executor->load(model(file, {fp32({2})}, {fp32({2})})).status();
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  const auto answer_to = [&executor](const std::vector<float>& input) {
    std::vector<float> output(2);
    return executor->run({.model = "m",
                          .count = 1,
                          .input = std::as_bytes(std::span(input)),
                          .output = std::as_writable_bytes(std::span(output))});
  };
  const Status raised = answer_to({1, 101}).status();
  EXPECT_EQ(raised.code(), StatusCode::invalid);
  EXPECT_TRUE(names(raised, "too hot"));
  EXPECT_EQ(answer_to({1, -101}).status().code(), StatusCode::invalid)
      << "another shape than declared";
  EXPECT_EQ(answer_to({1}).status().code(), StatusCode::internal)
      << "wrong sizes are a bug of the proxy";
  EXPECT_TRUE(answer_to({1, 2}).ok());
}

TEST(TorchExecutor, ReportsAnInvalidInputWithoutInternalSizes) {
  const Folder folder;
  const auto file = folder.module(R"(
def forward(self, i):
    rows = torch.embedding(self.weight, i.reshape(-1)).reshape(i.size(0), -1)
    wide = torch.ones([int(i.max()) + 3])
    return rows * wide[:3] if int(i.min()) == 0 else rows * wide)");
  const auto executor = make_torch_executor();
  const Status loaded = executor->load(model(file, {int64({1})}, {fp32({3})})).status();
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  const auto answer_to = [&executor](std::int64_t index) {
    std::vector<float> output(3);
    return executor->run({.model = "m",
                          .count = 1,
                          .input = std::as_bytes(std::span(&index, 1)),
                          .output = std::as_writable_bytes(std::span(output))});
  };
  for (const std::int64_t index :
       {std::int64_t{2}, std::int64_t{1}}) {  // no such row; sizes 3 and 4 do not match
    const Status status = answer_to(index).status();
    EXPECT_EQ(status.code(), StatusCode::invalid) << index << ": " << status.to_string();
    EXPECT_EQ(status.message().find_first_of("0123456789"), std::string::npos)
        << status.to_string();
  }
  EXPECT_TRUE(answer_to(0).ok());
}

TEST(TorchExecutor, AFailureForEveryInputIsInternal) {
  const Folder folder;
  // Loads, because max_batch is 4, and fails on any larger batch.
  const auto file = folder.module(R"(
def forward(self, x):
    assert x.size(0) <= 4, 'too many'
    return x * 2)");
  const auto executor = make_torch_executor();
  const Status loaded = executor->load(model(file, {fp32({1})}, {fp32({1})})).status();
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  const std::vector<float> input(9);
  std::vector<float> output(9);
  const Status ran = executor
                         ->run({.model = "m",
                                .count = 9,
                                .input = std::as_bytes(std::span(input)),
                                .output = std::as_writable_bytes(std::span(output))})
                         .status();
  EXPECT_EQ(ran.code(), StatusCode::internal) << ran.to_string();
}

TEST(TorchExecutor, ReplacesAModelOfTheSameName) {
  const Folder folder;
  const auto executor = make_torch_executor();
  ASSERT_TRUE(executor
                  ->load(model(folder.module("def forward(self, x):\n    return x + 1"),
                               {fp32({1})}, {fp32({1})}))
                  .ok());
  ASSERT_TRUE(executor
                  ->load(model(folder.module("def forward(self, x):\n    return x + 2"),
                               {fp32({1})}, {fp32({1})}))
                  .ok());
  const std::vector<float> input{1};
  EXPECT_EQ(run<float>(*executor, 1, std::as_bytes(std::span(input)), 1), std::vector<float>{3});
}

TEST(TorchExecutor, LoadsTheVariantOfAnEarlierLoad) {
  const Folder folder;
  prepare_torch();
  const auto file = folder.module(kLinear);
  ModelToLoad again = model(file, {fp32({3})}, {fp32({2})});
  const std::vector<float> input{1, 2, 3};
  const Result<std::uint32_t> found = make_torch_executor()->load(again);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  for (const std::uint32_t variant : {found.value(), 1U, 2U, 77U}) {
    const auto executor = make_torch_executor();
    again.variant = variant;
    const Result<std::uint32_t> loaded = executor->load(again);
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    if (variant <= 2) {
      EXPECT_EQ(loaded.value(), variant);
    }
    EXPECT_EQ(run<float>(*executor, 1, std::as_bytes(std::span(input)), 2),
              (std::vector<float>{-4, 14}));
  }
}

TEST(TorchExecutor, MatchesLibTorchOnTheExportedLeNet) {
  const std::filesystem::path file = std::filesystem::path(GPULET_SOURCE_DIR) / "models/lenet.pt";
  const std::filesystem::path digits =
      std::filesystem::path(GPULET_SOURCE_DIR) / "models/generated/digits.f32";
  if (!std::filesystem::exists(file) || !std::filesystem::exists(digits)) {
    GTEST_SKIP() << file << " is missing; run scripts/export_models.py";
  }
  const auto executor = make_torch_executor();
  const Status loaded = executor->load(model(file, {fp32({1, 28, 28})}, {fp32({10})})).status();
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  constexpr std::uint32_t kCount = 7;
  std::vector<float> input(kCount * 28 * 28);
  std::ifstream stream(digits, std::ios::binary);
  ASSERT_TRUE(stream.read(reinterpret_cast<char*>(input.data()),
                          static_cast<std::streamsize>(input.size() * sizeof(float))));
  const std::vector<float> output =
      run<float>(*executor, kCount, std::as_bytes(std::span(input)), kCount * 10);

  torch::jit::Module direct = torch::jit::load(file.string());
  const at::Tensor expected =
      direct.forward({at::from_blob(input.data(), {kCount, 1, 28, 28})}).toTensor().contiguous();
  const float largest = expected.abs().max().item<float>();
  ASSERT_EQ(output.size(), static_cast<std::size_t>(expected.numel()));
  for (std::size_t i = 0; i < output.size(); ++i)
    EXPECT_NEAR(output[i], expected.data_ptr<float>()[i], 1e-4 * largest);
}

// ---- packages

// Stands in for what AOTInductor makes: the archive, without code.
std::string package_without_code() {
  return support::archive({"data/aotinductor/model/m.so", "data/aotinductor/model/m_metadata.json"},
                          false);
}

TEST(TorchPackages, AreRefusedUnlessTheyAreAllowed) {
  const Folder folder;
  const ModelToLoad request = model(folder.text(package_without_code()), {fp32({3})}, {fp32({3})});
  for (const char* const value : {"", "off", "yes"}) {
    const support::Variable native(kNativeModelsVariable, value);
    const auto loaded = make_torch_executor()->load(request);
    EXPECT_EQ(loaded.status().code(), StatusCode::invalid);
    EXPECT_TRUE(names(loaded.status(), "native_models"));
  }
}

TEST(TorchPackages, ThatCannotBeLoadedAreInvalid) {
  const Folder folder;
  const support::Variable native(kNativeModelsVariable, "on");
  ModelToLoad request = model(folder.text(package_without_code()), {fp32({3})}, {fp32({3})});
  const auto executor = make_torch_executor();
  EXPECT_EQ(executor->load(request).status().code(), StatusCode::invalid);
  EXPECT_EQ(executor->run({"m", 1, {}, {}}).status().code(), StatusCode::not_found);
  request.numerics.precision = Precision::bfloat16;
  EXPECT_EQ(executor->load(request).status().code(), StatusCode::invalid);
}

TEST(TorchPackages, AreReadWithoutALibrary) {
  const support::TemporaryFolder folder;
  const auto opened = [&folder](const std::vector<std::string>& members) {
    const auto file = folder.write("m.pt2", support::archive(members, true));
    return FileDescriptor(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  };
  const std::string model = "m/data/aotinductor/model/";
  const auto read = read_package(opened({"m/version", model + "a.so", "m/data/weights/b"}).get());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().library.name, model + "a.so");
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {model + "a.cpp"}, {model + "a.so", model + "b.so"}, {model + "a.so", model + "a.json"}})
    EXPECT_EQ(read_package(opened(wrong).get()).status().code(), StatusCode::invalid) << wrong[0];
  EXPECT_TRUE(is_package(folder.path() / "m.pt2"));
  EXPECT_TRUE(is_archive(folder.path() / "m.pt2"));
  EXPECT_FALSE(is_package(folder.write("m.pt", support::archive(support::kMembers, true))));
  EXPECT_FALSE(is_archive(folder.write("m.onnx", "no archive")));
  EXPECT_FALSE(is_package(folder.path() / "none"));
}

}  // namespace
}  // namespace gpulet::executor

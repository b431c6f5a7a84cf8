// ONNX models on a GPU, with a library whose CUDA execution provider is a fake that computes on the
// CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "executor/onnx/onnx_library.h"
#include "executor/onnx/onnx_model.h"
#include "executor/onnx/onnx_sessions.h"
#include "tests/support/onnx_file.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/variable.h"

namespace gpulet::executor::onnx_gpu_test {
namespace {

namespace onnx = support::onnx;
using ::testing::Contains;
using ::testing::Not;

class OnnxOnGpu : public ::testing::Test {
 protected:
  [[nodiscard]] Result<OnnxLibrary> open() const {
    std::filesystem::copy_file(GPULET_CUDA_ONNXRUNTIME, folder_.path() / "libonnxruntime.so",
                               std::filesystem::copy_options::skip_existing);
    return OnnxLibrary::open((folder_.path() / "libonnxruntime.so").string(),
                             [](void*, int, const char*, const char*, const char*, const char*) {});
  }
  [[nodiscard]] Result<OnnxModel> load(const OnnxLibrary& library, const OnnxTarget& target) {
    sessions_ = std::make_unique<OnnxSessions>(target);
    return OnnxModel::load(library,
                           {.name = "m",
                            .file = folder_.write("m.onnx", network()),
                            .inputs = {{"x", DataType::fp32, {2}}},
                            .outputs = {{"y", DataType::fp32, {2}}},
                            .max_batch = 4},
                           *sessions_);
  }
  // What the provider was told, in order.
  [[nodiscard]] std::vector<std::string> told() const {
    std::vector<std::string> lines;
    std::ifstream file(folder_.path() / "options");
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  [[nodiscard]] static std::string network() {
    onnx::Model model;
    model.inputs = {{"x", onnx::kFloat, {{"batch", 2}}}};
    model.outputs = {{"y", onnx::kFloat, {{"batch", 2}}}};
    model.nodes = {{"Identity", {"x"}, {"y"}}};
    return onnx::encode(model);
  }

  support::TemporaryFolder folder_;

 private:
  const support::Variable real_{"GPULET_TEST_ONNXRUNTIME", GPULET_REAL_ONNXRUNTIME};
  const support::Variable options_{"GPULET_TEST_CUDA_OPTIONS",
                                   (folder_.path() / "options").string()};
  std::unique_ptr<OnnxSessions> sessions_;
};

TEST_F(OnnxOnGpu, TheProviderGetsTheDeviceAndWhatFitsALimitedShare) {
  const auto library = open();
  ASSERT_TRUE(library.ok()) << library.status().message();
  const auto model = load(library.value(), {.gpu = 1});
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::vector<std::string> options = told();
  EXPECT_THAT(options, Contains("device_id=1"));
  EXPECT_THAT(options, Contains("arena_extend_strategy=kSameAsRequested"));
  EXPECT_THAT(options, Contains("cudnn_conv_algo_search=HEURISTIC"));
  EXPECT_EQ(options.back(), "used");

  const std::vector<float> input{1, 2, 3, 4};
  std::vector<float> output(4);
  const OnnxOutcome outcome = model.value().run(2, std::as_bytes(std::span(input)),
                                                std::as_writable_bytes(std::span(output)));
  EXPECT_TRUE(outcome.failure.ok()) << outcome.failure.message;
  EXPECT_EQ(output, input);
}

TEST_F(OnnxOnGpu, TheCpuNeedsNoProvider) {
  const auto library = open();
  ASSERT_TRUE(library.ok()) << library.status().message();
  EXPECT_TRUE(load(library.value(), {}).ok());
  EXPECT_THAT(told(), Not(Contains("used")));
}

TEST_F(OnnxOnGpu, AProviderThatFailsIsTheFaultOfTheMachine) {
  const auto library = open();
  ASSERT_TRUE(library.ok()) << library.status().message();
  EXPECT_EQ(load(library.value(), {.gpu = 9}).status().code(), StatusCode::internal);
}

TEST_F(OnnxOnGpu, TheProviderHasToBeBesideTheLibrary) {
  const auto library = open();
  ASSERT_TRUE(library.ok()) << library.status().message();
  EXPECT_EQ(check_cuda_provider(library.value()).code(), StatusCode::unavailable);
  folder_.write("libonnxruntime_providers_cuda.so", "");
  EXPECT_TRUE(check_cuda_provider(library.value()).ok());
}

}  // namespace
}  // namespace gpulet::executor::onnx_gpu_test

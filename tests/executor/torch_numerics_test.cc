// Models that compute with other numerics than their files.
#include <gtest/gtest.h>
#include <torch/script.h>

#include <cmath>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "gpulet/executor/torch/torch_executor.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::executor {
namespace {

using support::names;

// A network with a convolution, a normalisation, a classifier, and integers that must not change.
std::filesystem::path image_model(const std::filesystem::path& folder) {
  torch::jit::Module module("m");
  at::manual_seed(3);
  module.register_parameter("filters", at::randn({8, 3, 3, 3}), false);
  module.register_parameter("weights", at::randn({5, 8}), false);
  module.register_buffer("mean", at::full({8}, 0.1));
  module.register_buffer("variance", at::full({8}, 2.0));
  module.register_buffer("order", at::tensor({4, 3, 2, 1, 0}, at::kLong));
  module.define(R"(
def forward(self, x):
    x = torch.conv2d(x, self.filters, None, [1, 1], [1, 1])
    x = torch.batch_norm(x, None, None, self.mean, self.variance, False, 0.1, 1e-5, True)
    x = torch.flatten(torch.adaptive_avg_pool2d(torch.relu(x), [1, 1]), 1)
    return torch.linear(x, self.weights, None)[:, self.order]
)");
  module.eval();
  const std::filesystem::path file = folder / "image.pt";
  module.save(file.string());
  return file;
}

constexpr std::size_t kImageNumbers = 3 * 12 * 12;
constexpr std::size_t kClasses = 5;

ModelToLoad image_load(const std::filesystem::path& file, Numerics numerics) {
  return {.name = "m",
          .file = file,
          .inputs = {{.name = "image", .type = DataType::fp32, .shape = {3, 12, 12}}},
          .outputs = {{.name = "classes", .type = DataType::fp32, .shape = {kClasses}}},
          .max_batch = 2,
          .numerics = numerics};
}

std::vector<float> answer(Executor& executor) {
  std::vector<float> input(2 * kImageNumbers);
  std::iota(input.begin(), input.end(), 0.F);
  for (float& number : input) number = std::sin(number);
  std::vector<float> output(2 * kClasses);
  const auto written = executor.run({.model = "m",
                                     .count = 2,
                                     .input = std::as_bytes(std::span(input)),
                                     .output = std::as_writable_bytes(std::span(output))});
  EXPECT_TRUE(written.ok()) << written.status().to_string();
  return output;
}

double largest_difference(const std::vector<float>& left, const std::vector<float>& right) {
  double largest = 0;
  for (std::size_t i = 0; i < left.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(left[i]) - right[i]));
  return largest;
}

TEST(TorchNumerics, ReturnsTheDeclaredTypesWithinTheError) {
  const support::TemporaryFolder folder;
  const auto file = image_model(folder.path());
  const auto full = make_torch_executor();
  ASSERT_TRUE(full->load(image_load(file, {})).ok());
  const std::vector<float> expected = answer(*full);
  double magnitude = 0;
  for (const float number : expected) magnitude = std::max<double>(magnitude, std::abs(number));
  ASSERT_GT(magnitude, 0);
  for (const bool channels_last : {false, true}) {
    const auto executor = make_torch_executor();
    const auto variant =
        executor->load(image_load(file, {Precision::bfloat16, channels_last, 0.05}));
    ASSERT_TRUE(variant.ok()) << variant.status().to_string();
    const double error = executor->error_of(variant.value());
    EXPECT_GT(error, 0) << "bfloat16 has 8 significant bits";
    EXPECT_LE(error, 0.05);
    const double difference = largest_difference(answer(*executor), expected);
    EXPECT_GT(difference, 0);
    EXPECT_LE(difference, 0.1 * magnitude);
  }
  const auto last = make_torch_executor();
  ASSERT_TRUE(last->load(image_load(file, {Precision::full, true, 1e-4})).ok());
  EXPECT_LE(largest_difference(answer(*last), expected), 1e-4 * magnitude);
}

TEST(TorchNumerics, RejectsAnErrorAboveTheBound) {
  const support::TemporaryFolder folder;
  const auto file = image_model(folder.path());
  const auto executor = make_torch_executor();
  const Status status =
      executor->load(image_load(file, {Precision::bfloat16, false, 1e-7})).status();
  EXPECT_EQ(status.code(), StatusCode::invalid);
  EXPECT_TRUE(names(status, "'m'", file.string(), "bfloat16", "largest_error", "1e-05 %"));
  EXPECT_EQ(executor->run({.model = "m", .count = 1, .input = {}, .output = {}}).status().code(),
            StatusCode::not_found);
}

TEST(TorchNumerics, TheCpuKeepsFullPrecisionInPlaceOfHalf) {
  const support::TemporaryFolder folder;
  const auto file = image_model(folder.path());
  const auto full = make_torch_executor();
  ASSERT_TRUE(full->load(image_load(file, {})).ok());
  const auto half = make_torch_executor();
  const auto variant = half->load(image_load(file, {Precision::half, false, 0}));
  ASSERT_TRUE(variant.ok()) << variant.status().to_string();
  EXPECT_EQ(half->error_of(variant.value()), 0);
  EXPECT_LE(largest_difference(answer(*half), answer(*full)), 1e-4);
}

// A variant is only reused for the numerics with which it was chosen.
TEST(TorchNumerics, AVariantIsReusedForItsNumericsOnly) {
  const support::TemporaryFolder folder;
  const auto file = image_model(folder.path());
  const Numerics bfloat16{Precision::bfloat16, false, 0.05};
  const auto first = make_torch_executor();
  const auto variant = first->load(image_load(file, bfloat16));
  ASSERT_TRUE(variant.ok()) << variant.status().to_string();
  const std::vector<float> found = answer(*first);

  const auto again = make_torch_executor();
  ModelToLoad known = image_load(file, bfloat16);
  known.variant = variant.value();
  EXPECT_EQ(again->load(known).value(), variant.value());
  EXPECT_EQ(answer(*again), found);

  const auto stricter = make_torch_executor();
  known.numerics.largest_error = 1e-7;
  EXPECT_EQ(stricter->load(known).status().code(), StatusCode::invalid);

  const auto full = make_torch_executor();
  known.numerics = {};
  const auto other = full->load(known);
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  EXPECT_NE(other.value(), variant.value());
  EXPECT_EQ(full->error_of(other.value()), 0);
}

TEST(TorchNumerics, RejectsAModelThatCannotComputeInTheseNumerics) {
  const support::TemporaryFolder folder;
  torch::jit::Module module("m");
  module.define("def forward(self, x):\n    return torch.linalg_inv(x + 2)\n");
  const auto file = folder.path() / "inverse.pt";
  module.save(file.string());
  ModelToLoad inverse{.name = "m",
                      .file = file,
                      .inputs = {{.name = "x", .type = DataType::fp32, .shape = {1, 1}}},
                      .outputs = {{.name = "y", .type = DataType::fp32, .shape = {1, 1}}},
                      .max_batch = 1,
                      .numerics = {Precision::bfloat16, false, 0.05}};
  const auto executor = make_torch_executor();
  const Status status = executor->load(inverse).status();
  EXPECT_EQ(status.code(), StatusCode::invalid);
  EXPECT_TRUE(names(status, file.string(), "bfloat16", "\"precision\""));
}

}  // namespace
}  // namespace gpulet::executor

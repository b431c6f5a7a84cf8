// What a TorchScript model answers: only what its own batch computed, and each row by itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/executor/torch/torch_executor.h"
#include "tests/support/names.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::executor::torch_answers_test {
namespace {

using support::holds;
using support::names;
using ::testing::ElementsAre;

class TorchAnswers : public ::testing::Test {
 protected:
  // A model from x FP32[3] to y FP32[3] whose forward() has these lines; weight:
  // [[-2,-1,0],[1,2,3]].
  Status load(std::string_view body, std::uint32_t max_batch = 4) {
    torch::jit::Module module("m");
    module.register_parameter("weight", at::arange(6, at::kFloat).reshape({2, 3}) - 2, false);
    module.register_buffer("ones", at::ones({3}));
    module.define("def forward(self, x):\n" + std::string(body) + "\n");
    const auto file = folder_.path() / "m.pt";
    module.save(file.string());
    return executor_
        ->load({.name = "m",
                .file = file,
                .inputs = {{"x", DataType::fp32, {3}}},
                .outputs = {{"y", DataType::fp32, {3}}},
                .max_batch = max_batch})
        .status();
  }
  Result<std::size_t> try_run(std::vector<float>& input, std::vector<float>& output) {
    return executor_->run({.model = "m",
                           .count = static_cast<std::uint32_t>(input.size() / 3),
                           .input = std::as_bytes(std::span(input)),
                           .output = std::as_writable_bytes(std::span(output))});
  }
  // The outputs, in memory that held other numbers.
  std::vector<float> run(std::vector<float> input) {
    std::vector<float> output(input.size(), 77);
    const auto written = try_run(input, output);
    EXPECT_TRUE(written.ok()) << written.status().to_string();
    return output;
  }

  support::TemporaryFolder folder_;
  std::unique_ptr<Executor> executor_ = make_torch_executor();
};

TEST_F(TorchAnswers, OutputsThatAreInputsOrParametersAreWritten) {
  ASSERT_TRUE(load("    return x").ok());
  EXPECT_THAT(run({1, 2, 3, 4, 5, 6}), ElementsAre(1, 2, 3, 4, 5, 6));
  ASSERT_TRUE(load("    return self.weight[1].expand(x.size(0), 3)").ok());
  EXPECT_THAT(run({0, 0, 0, 0, 0, 0}), ElementsAre(1, 2, 3, 1, 2, 3));
  ASSERT_TRUE(load("    return x.t().contiguous().t().flip([1])").ok());
  EXPECT_THAT(run({1, 2, 3, 4, 5, 6}), ElementsAre(3, 2, 1, 6, 5, 4));
}

// The imaginary part of a conjugate is a view of other numbers, with a mark that they are negative.
TEST_F(TorchAnswers, LazyNegativesAreResolved) {
  const Status loaded = load("    return torch.imag(torch.conj(torch.complex(x, x)))");
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  EXPECT_THAT(run({1, 2, 3, 4, 5, 6}), ElementsAre(-1, -2, -3, -4, -5, -6));
}

TEST_F(TorchAnswers, OutputsOfAnotherKindAreRefused) {
  EXPECT_EQ(load("    return x.to_sparse()").code(), StatusCode::invalid);
  EXPECT_EQ(load("    return x.double()").code(), StatusCode::invalid);
  EXPECT_EQ(load("    return x[:1]").code(), StatusCode::invalid);
}

TEST_F(TorchAnswers, AnOutputOfAnotherSizeIsAFailure) {
  ASSERT_TRUE(load("    return x if bool(x.max() < 9) else x[:, :2]").ok());
  std::vector<float> input{1, 2, 30};
  std::vector<float> output(3, 77);
  EXPECT_EQ(try_run(input, output).status().code(), StatusCode::invalid);
  EXPECT_TRUE(names(executor_->failure_text(), "[1,2]"));
  EXPECT_THAT(run({1, 2, 3}), ElementsAre(1, 2, 3));
}

TEST_F(TorchAnswers, ModelsWhoseRowsDependOnEachOtherAreServedOneByOne) {
  for (const char* body :
       {"    return torch.cumsum(x, 0)", "    return torch.softmax(x, 0)",
        "    return x - x.mean()", "    return x + 0.02 * x.mean()",
        "    return torch.flip(x, [0])", "    return torch.sort(x, 0)[0]",
        "    return torch.sort(x, 0, True)[0]", "    return torch.roll(x, 1, 0)",
        "    return x * x.size(0)", "    return x - x[0]", "    return torch.max(x, x.max())"}) {
    const Status alone = load(body, 1);
    EXPECT_TRUE(alone.ok()) << body << alone.to_string();
    for (const std::uint32_t max_batch : {2U, 4U}) {
      const Status status = load(body, max_batch);
      EXPECT_EQ(status.code(), StatusCode::invalid) << body;
      EXPECT_TRUE(names(status, "--max-batch 1"));
    }
  }
}

TEST_F(TorchAnswers, ModelsOfIndependentRowsAreServed) {
  for (const char* body :
       {"    return torch.matmul(x, torch.matmul(self.weight.t(), self.weight))",
        "    return torch.log(x)", "    return torch.softmax(x, 1)", "    return x / (x - x)",
        "    return x + torch.rand_like(x)", "    return torch.dropout(x, 0.5, True)"}) {
    const Status status = load(body);
    EXPECT_TRUE(status.ok()) << body << status.to_string();
  }
}

TEST_F(TorchAnswers, ModelsForOneBatchSizeAreRefusedWithTheFix) {
  EXPECT_TRUE(load("    return x.reshape(1, 3) + 1", 1).ok());
  EXPECT_TRUE(names(load("    return x.reshape(1, 3) + 1", 2), "--max-batch 1"));
}

TEST_F(TorchAnswers, ModelsThatKeepWhatEarlierBatchesLeftAreRefused) {
  for (const std::uint32_t max_batch : {1U, 4U}) {
    const Status status = load("    self.ones.add_(x[0])\n    return x + self.ones", max_batch);
    EXPECT_EQ(status.code(), StatusCode::invalid);
    EXPECT_TRUE(names(status, "'y'"));
    EXPECT_FALSE(holds(status, "--max-batch")) << "no smaller batch helps";
  }
}

TEST_F(TorchAnswers, ModelsThatReturnUnwrittenMemoryAreRefused) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer fills new memory itself";
#endif
  for (const char* body : {"    return torch.empty_like(x)",
                           "    y = torch.empty_like(x)\n    y[:, :2] = x[:, :2]\n    return y"}) {
    const Status status = load(body, 1);
    EXPECT_EQ(status.code(), StatusCode::invalid) << body;
  }
}

TEST_F(TorchAnswers, LoadingLeavesRandomNumbersAsTheyWere) {
  at::manual_seed(5);
  ASSERT_TRUE(load("    return x + torch.rand_like(x)").ok());
  EXPECT_NE(run({0, 0, 0}), run({0, 0, 0}));
}

TEST_F(TorchAnswers, AModelThatWritesToItsInputsDoesNotChangeTheBatch) {
  ASSERT_TRUE(load("    x.add_(1)\n    return x").ok());
  std::vector<float> input{1, 2, 3};
  std::vector<float> output(3);
  ASSERT_TRUE(try_run(input, output).ok());
  EXPECT_THAT(output, ElementsAre(2, 3, 4));
  EXPECT_THAT(input, ElementsAre(1, 2, 3));
}

TEST_F(TorchAnswers, TheModelsWordsAreForTheLogOnly) {
  ASSERT_TRUE(load("    assert bool(x.max() <= 100), 'unlucky token 13'\n    return x").ok());
  std::vector<float> input{1, 2, 300};
  std::vector<float> output(3);
  const auto refused = try_run(input, output);
  EXPECT_EQ(refused.status().code(), StatusCode::invalid);
  EXPECT_FALSE(holds(refused.status(), "unlucky"));
  EXPECT_TRUE(names(executor_->failure_text(), "13"));
  EXPECT_THAT(run({1, 2, 3}), ElementsAre(1, 2, 3));
  EXPECT_EQ(executor_->failure_text(), "");
}

}  // namespace
}  // namespace gpulet::executor::torch_answers_test

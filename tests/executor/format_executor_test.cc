#include "gpulet/executor/formats/format_executor.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace gpulet::executor {
namespace {

// Writes one character to the output of each batch and logs the calls.
class LettersExecutor final : public Executor {
 public:
  LettersExecutor(char letter, std::size_t depth, std::string& log)
      : letter_(letter), depth_(depth), log_(log) {}
  void use_memory(std::span<std::byte> memory) override {
    log_ += std::string{letter_} + ":memory" + std::to_string(memory.size()) + " ";
  }
  [[nodiscard]] Result<partition::FoundShare> found_share() override {
    return partition::FoundShare{.held = true};
  }
  [[nodiscard]] Result<std::uint32_t> load(const ModelToLoad& model) override {
    log_ += std::string{letter_} + ":" + model.name + " ";
    if (model.name == "bad") return Status(StatusCode::invalid, "bad");
    return static_cast<std::uint32_t>(letter_);
  }
  [[nodiscard]] double error_of(std::uint32_t variant) const override { return variant; }
  [[nodiscard]] Result<std::size_t> run(const BatchToRun& batch) override {
    batch.output.front() = static_cast<std::byte>(letter_);
    return std::size_t{1};
  }
  [[nodiscard]] std::size_t depth() const override { return depth_; }
  [[nodiscard]] Result<std::unique_ptr<RunningBatch>> begin(const BatchToRun& batch) override {
    (void)run(batch);
    log_ += std::string{letter_} + ":begin ";
    return std::unique_ptr<RunningBatch>(std::make_unique<Batch>());
  }

 private:
  class Batch final : public RunningBatch {
    [[nodiscard]] Result<std::size_t> finish() override { return std::size_t{1}; }
  };

  char letter_;
  std::size_t depth_;
  std::string& log_;
};

class FormatExecutorTest : public ::testing::Test {
 protected:
  [[nodiscard]] MakeExecutor letters(char letter, std::size_t depth = 1) {
    return [this, letter, depth] {
      log_ += std::string{letter} + ":made ";
      return std::make_unique<LettersExecutor>(letter, depth, log_);
    };
  }
  [[nodiscard]] ModelToLoad torchscript(const std::string& name) const {
    return {.name = name, .file = folder_.write(name, "PK\x03\x04 an archive")};
  }
  [[nodiscard]] ModelToLoad onnx(const std::string& name) const {
    return {.name = name, .file = folder_.write(name, "\x08\x07 anything else")};
  }
  static char letter_of(Executor& executor, const std::string& model) {
    std::byte output{};
    (void)executor.run({.model = model, .count = 1, .output = {&output, 1}});
    return static_cast<char>(output);
  }

  support::TemporaryFolder folder_;
  std::string log_;
};

TEST_F(FormatExecutorTest, ChoosesByTheContentOfTheFile) {
  const auto executor = make_format_executor(letters('t'), letters('o'), false);
  std::vector<std::byte> memory(8);
  executor->use_memory(memory);
  EXPECT_TRUE(executor->found_share().ok());
  EXPECT_EQ(log_, "");
  EXPECT_EQ(executor->load(onnx("a")).value(), std::uint32_t{'o'});
  EXPECT_EQ(executor->load(torchscript("b")).value(), std::uint32_t{'t'});
  EXPECT_TRUE(executor->load(onnx("c")).ok());
  EXPECT_EQ(log_, "o:made o:memory8 o:a t:made t:memory8 t:b o:c ");
  EXPECT_EQ(letter_of(*executor, "a"), 'o');
  EXPECT_EQ(letter_of(*executor, "b"), 't');
  EXPECT_EQ(executor->error_of(3), 3);
  EXPECT_EQ(executor->depth(), 1U);
}

TEST_F(FormatExecutorTest, ServesOneFormatWithoutTheLibraryOfTheOther) {
  const auto missing = []() -> std::unique_ptr<Executor> {
    throw std::runtime_error("no such library");
  };
  const auto executor = make_format_executor(missing, letters('o'), false);
  EXPECT_EQ(executor->load(torchscript("b")).status().code(), StatusCode::internal);
  EXPECT_TRUE(executor->load(onnx("a")).ok());
  EXPECT_EQ(letter_of(*executor, "a"), 'o');
  EXPECT_THROW((void)make_format_executor(missing, letters('o'), true), std::runtime_error);
}

TEST_F(FormatExecutorTest, ReportsFailures) {
  const auto executor = make_format_executor(letters('t'), letters('o'), false);
  EXPECT_EQ(executor->load(onnx("bad")).status().code(), StatusCode::invalid);
  ModelToLoad none = onnx("none");
  std::filesystem::remove(none.file);
  EXPECT_EQ(executor->load(none).status().code(), StatusCode::not_found);
  std::byte output{};
  for (const char* name : {"bad", "none"}) {
    const auto ran = executor->run({.model = name, .count = 1, .output = {&output, 1}});
    EXPECT_EQ(ran.status().code(), StatusCode::not_found);
  }
}

TEST_F(FormatExecutorTest, OnAGpuEndsOnnxBatchesAtOnce) {
  const auto executor = make_format_executor(letters('t', 2), letters('o'), true);
  EXPECT_EQ(log_, "t:made ");
  EXPECT_TRUE(executor->found_share().value().held);
  EXPECT_EQ(executor->depth(), 2U);
  ASSERT_TRUE(executor->load(onnx("a")).ok());
  ASSERT_TRUE(executor->load(torchscript("b")).ok());
  log_.clear();
  for (const char* name : {"a", "b"}) {
    std::byte output{};
    auto running = executor->begin({.model = name, .count = 1, .output = {&output, 1}});
    ASSERT_TRUE(running.ok());
    EXPECT_EQ(running.value()->finish().value(), 1U);
  }
  EXPECT_EQ(log_, "t:begin ");
  EXPECT_EQ(executor->begin({.model = "c"}).status().code(), StatusCode::not_found);
}

}  // namespace
}  // namespace gpulet::executor

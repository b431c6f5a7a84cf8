#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "gpulet/config/onnx_signature.h"
#include "tests/support/onnx_file.h"
#include "tests/support/temporary_folder.h"

namespace gpulet::config::onnx_ranges_test {
namespace {

namespace onnx = support::onnx;
using Limits = std::map<std::string, std::int64_t>;

Limits limits_of(const onnx::Model& model) {
  const std::string file = encode(model);
  const auto limits = parse_index_limits(std::as_bytes(std::span(file)));
  EXPECT_TRUE(limits.ok()) << limits.status().message();
  return limits.ok() ? limits.value() : Limits();
}

onnx::Weight table(const std::string& name, std::int64_t rows, std::int64_t columns) {
  return {name, {rows, columns}, std::vector<float>(static_cast<std::size_t>(rows * columns))};
}

const std::vector<onnx::Tensor> kTokens = {{"tokens", onnx::kInt64, {{"n", 8}}},
                                           {"types", onnx::kInt64, {{"n", 8}}},
                                           {"mask", onnx::kInt64, {{"n", 8}}}};
const std::vector<onnx::Tensor> kOutput = {{"y", onnx::kFloat, {{"n", 8, 4}}}};

TEST(OnnxRanges, AnInputThatIndexesATableHasItsRows) {
  const onnx::Model model{.inputs = kTokens,
                          .outputs = kOutput,
                          .nodes = {{"Gather", {"words", "tokens"}, {"a"}},
                                    {"Gather", {"kinds", "types"}, {"b"}},
                                    {"Add", {"a", "b"}, {"y"}}},
                          .weights = {table("words", 100, 4), table("kinds", 2, 4)}};
  EXPECT_EQ(limits_of(model), (Limits{{"tokens", 100}, {"types", 2}}));
}

TEST(OnnxRanges, IndexAndTableAreFoundBehindOtherOperations) {
  const std::string constant = onnx::content_field(1, "value") +
                               onnx::content_field(5, encode(table("", 7, 4))) +
                               onnx::number_field(20, 4);
  const onnx::Model model{
      .inputs = kTokens,
      .outputs = kOutput,
      .nodes = {{"Cast", {"tokens"}, {"cast"}},
                {"Reshape", {"cast", "shape"}, {"flat"}},
                {"Identity", {"words"}, {"table"}},
                {"Gather", {"table", "flat"}, {"a"}},
                {"Constant", {}, {"kinds"}, {constant}},
                {"Gather", {"kinds", "types"}, {"b"}},
                {"Gather", {"columns", "mask"}, {"c"}, {onnx::integer_attribute("axis", 1)}},
                {"Add", {"a", "b"}, {"y"}}},
      .weights = {table("words", 50, 4), table("columns", 9, 3)},
      .constants = {onnx::integers_constant("shape", {-1})}};
  EXPECT_EQ(limits_of(model), (Limits{{"tokens", 50}, {"types", 7}, {"mask", 3}}));
}

TEST(OnnxRanges, TheSmallestTableCounts) {
  const onnx::Model model{.inputs = kTokens,
                          .outputs = kOutput,
                          .nodes = {{"Gather", {"large", "tokens"}, {"a"}},
                                    {"Gather", {"small", "tokens"}, {"b"}},
                                    {"Add", {"a", "b"}, {"y"}}},
                          .weights = {table("large", 100, 4), table("small", 10, 4)}};
  EXPECT_EQ(limits_of(model), (Limits{{"tokens", 10}}));
}

TEST(OnnxRanges, OtherOperationsSayNothing) {
  const onnx::Model model{.inputs = kTokens,
                          .outputs = kOutput,
                          .nodes = {{"Gather", {"tokens", "types"}, {"a"}},
                                    {"Add", {"tokens", "offset"}, {"b"}},
                                    {"Gather", {"words", "b"}, {"y"}}},
                          .weights = {table("words", 100, 4)}};
  EXPECT_EQ(limits_of(model), Limits());
}

TEST(OnnxRanges, ReadsFilesAndRefusesOthers) {
  const support::TemporaryFolder folder;
  const auto file = folder.path() / "model.onnx";
  std::ofstream(file) << "not a model";
  EXPECT_FALSE(read_index_limits(file).ok());
  EXPECT_EQ(read_index_limits(folder.path() / "none").status().code(), StatusCode::unavailable);
  std::ofstream(file, std::ios::binary)
      << encode(onnx::Model{.inputs = kTokens,
                            .outputs = kOutput,
                            .nodes = {{"Gather", {"words", "tokens"}, {"y"}}},
                            .weights = {table("words", 6, 4)}});
  EXPECT_EQ(read_index_limits(file).value(), (Limits{{"tokens", 6}}));
}

}  // namespace
}  // namespace gpulet::config::onnx_ranges_test

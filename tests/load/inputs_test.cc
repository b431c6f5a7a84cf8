#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "gpulet/core/bucket.h"
#include "gpulet/core/tensor.h"
#include "gpulet/load/client.h"
#include "tests/support/names.h"

namespace gpulet::load {
namespace {

using support::names;
using ::testing::StartsWith;

template <typename Number>
Bytes bytes_of(const std::vector<Number>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(Number));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return Bytes::own(std::move(bytes));
}

template <typename Number>
std::vector<Number> numbers_of(const Bytes& bytes) {
  std::vector<Number> numbers(bytes.size() / sizeof(Number));
  std::memcpy(numbers.data(), bytes.view().data(), numbers.size() * sizeof(Number));
  return numbers;
}

class InputFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = std::filesystem::path(::testing::TempDir()) / ("load_inputs_" + name);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }

  std::filesystem::path folder_;
  const std::vector<TensorSpec> pixels_{{"image", DataType::uint8, {2, 2}}};
};

TEST(RandomInputs, FillTheDeclaredTensorsInOrder) {
  const std::vector<TensorSpec> specs = {{"ids", DataType::int64, {14}},
                                         {"image", DataType::fp32, {3, 5}}};
  const InputPool pool = random_inputs(specs, 1).value();
  EXPECT_GT(pool.requests.size(), 1U);
  EXPECT_TRUE(pool.labels.empty());
  for (const Bytes& request : pool.requests) {
    ASSERT_EQ(request.size(), 14U * 8 + 15U * 4);
    for (const std::int64_t id : numbers_of<std::int64_t>(request.slice(0, 112)))
      EXPECT_TRUE(id >= 0 && id < 1000);
    for (const float value : numbers_of<float>(request.slice(112, 60)))
      EXPECT_TRUE(value >= 0 && value < 1);
  }
}

TEST(RandomInputs, HaveSlotsOfShortWords) {
  const std::vector<TensorSpec> inputs{{"text", DataType::bytes, {3}, 64},
                                       {"n", DataType::int64, {1}},
                                       {"tiny", DataType::bytes, {2}, 9}};
  const Result<InputPool> pool = random_inputs(inputs, 1);
  ASSERT_TRUE(pool.ok()) << pool.status().to_string();
  std::set<std::string> words;
  for (const Bytes& request : pool.value().requests) {
    ASSERT_EQ(request.size(), 64U + 8 + 9);
    ASSERT_TRUE(to_slots(inputs, request).ok());
    const auto elements = elements_in(request.view(), 3);
    for (const std::string_view word : elements.value()) words.emplace(word);
  }
  EXPECT_GT(words.size(), 10U);
}

TEST(RandomInputs, DependOnTheSeedOnly) {
  const std::vector<TensorSpec> specs = {{"x", DataType::fp32, {8}}};
  const auto first = [&](std::uint64_t seed) {
    return numbers_of<float>(random_inputs(specs, seed).value().requests.front());
  };
  EXPECT_EQ(first(5), first(5));
  EXPECT_NE(first(5), first(6));
}

TEST(RandomInputs, StayInTheirRanges) {
  const std::vector<TensorSpec> specs = {{"types", DataType::int64, {64}},
                                         {"flags", DataType::boolean, {64}},
                                         {"bytes", DataType::uint8, {64}},
                                         {"small", DataType::int8, {64}},
                                         {"x", DataType::fp32, {64}}};
  const ValueRanges ranges = {{"types", {0, 1}},
                              {"flags", {1, 1}},
                              {"bytes", {250, 255}},
                              {"small", {-128, -127}},
                              {"x", {-3, -2}}};
  const Bytes request = random_inputs(specs, 1, {}, ranges).value().requests.front();
  const auto types = numbers_of<std::int64_t>(request.slice(0, 512));
  EXPECT_EQ(std::set<std::int64_t>(types.begin(), types.end()), (std::set<std::int64_t>{0, 1}));
  for (const auto one : numbers_of<std::uint8_t>(request.slice(512, 64))) EXPECT_EQ(one, 1);
  for (const auto one : numbers_of<std::uint8_t>(request.slice(576, 64))) EXPECT_GE(one, 250);
  for (const auto one : numbers_of<std::int8_t>(request.slice(640, 64))) EXPECT_LE(one, -127);
  for (const auto one : numbers_of<float>(request.slice(704, 256))) {
    EXPECT_GE(one, -3);
    EXPECT_LE(one, -2);
  }
}

TEST(RandomInputs, HalfPrecisionHasRanges) {
  const auto bits = [](DataType type, double value) {
    const std::vector<TensorSpec> specs = {{"x", type, {1}}};
    const auto pool = random_inputs(specs, 1, {}, {{"x", {value, value}}});
    return numbers_of<std::uint16_t>(pool.value().requests.front()).front();
  };
  EXPECT_EQ(bits(DataType::fp16, 0), 0x0000);
  EXPECT_EQ(bits(DataType::fp16, 1), 0x3C00);
  EXPECT_EQ(bits(DataType::fp16, -2), 0xC000);
  EXPECT_EQ(bits(DataType::fp16, 1e6), 0x7BFF) << "the largest one";
  EXPECT_EQ(bits(DataType::bf16, 1), 0x3F80);
}

TEST(RandomInputs, RefuseRangesThatDoNotFit) {
  const std::vector<TensorSpec> specs = {{"x", DataType::uint8, {4}},
                                         {"text", DataType::bytes, {1}, 64}};
  for (const ValueRanges& wrong :
       {ValueRanges{{"x", {0, 256}}}, ValueRanges{{"x", {-1, 3}}}, ValueRanges{{"x", {2, 1}}},
        ValueRanges{{"x", {0.5, 1}}}, ValueRanges{{"y", {0, 1}}}, ValueRanges{{"text", {0, 1}}}})
    EXPECT_EQ(random_inputs(specs, 1, {}, wrong).status().code(), StatusCode::invalid);
}

TEST(RandomInputs, HaveLengthsOfTheGivenOnes) {
  const std::vector<TensorSpec> specs = {{"x", DataType::fp32, {kAnyLength, 2}}};
  const InputPool pool = random_inputs(specs, 1, {3, 5}).value();
  std::set<std::int64_t> seen;
  for (std::size_t i = 0; i < pool.requests.size(); ++i) {
    const std::int64_t length = pool.inputs_of(i).at(0).shape.at(0);
    seen.insert(length);
    EXPECT_EQ(pool.requests[i].size(), static_cast<std::size_t>(8 * length));
  }
  EXPECT_EQ(seen, (std::set<std::int64_t>{3, 5}));
  EXPECT_EQ(random_inputs(specs, 1).status().code(), StatusCode::invalid);
}

TEST(RandomInputs, RefuseASizeThatNoFrameCarries) {
  const std::vector<TensorSpec> specs = {{"x", DataType::fp32, {1 << 20, 1 << 20}}};
  EXPECT_EQ(random_inputs(specs, 1).status().code(), StatusCode::invalid);
  EXPECT_EQ(random_inputs({}, 1).status().code(), StatusCode::invalid);
}

TEST_F(InputFiles, AreSplitIntoRequestsWithLabels) {
  const InputPool pool =
      read_inputs({write("in", "abcdEFGH"), write("labels", "3\n-1\n")}, pixels_).value();
  ASSERT_EQ(pool.requests.size(), 2U);
  EXPECT_EQ(std::memcmp(pool.requests[1].view().data(), "EFGH", 4), 0);
  EXPECT_EQ(pool.labels, (std::vector<std::int64_t>{3, -1}));
}

TEST_F(InputFiles, OfAWrongSizeAreRejectedWithNameAndSizes) {
  const Status status = read_inputs({write("in", "abcdE"), {}}, pixels_).status();
  EXPECT_THAT(status.message(), StartsWith((folder_ / "in").string()));
  EXPECT_TRUE(names(status, "4 bytes", "5"));
  EXPECT_EQ(read_inputs({write("empty", ""), {}}, pixels_).status().code(), StatusCode::invalid);
  EXPECT_EQ(read_inputs({folder_ / "missing", {}}, pixels_).status().code(), StatusCode::not_found);
  EXPECT_FALSE(read_inputs({folder_, {}}, pixels_).ok());
}

TEST_F(InputFiles, RejectLabelsThatAreNotOneIntegerPerRequest) {
  const std::filesystem::path in = write("in", "abcdEFGH");
  EXPECT_TRUE(
      names(read_inputs({in, write("labels", "3\nfour\n")}, pixels_).status(), "labels:2:"));
  EXPECT_THAT(read_inputs({in, write("labels", "3\n")}, pixels_).status().message(),
              StartsWith((folder_ / "labels").string()));
}

TEST(ArgMax, FindsTheFirstLargestOfEveryNumericType) {
  EXPECT_EQ(arg_max(DataType::fp32, bytes_of<float>({-3, -1, -1, -2})), 1);
  EXPECT_EQ(arg_max(DataType::fp64, bytes_of<double>({1, 2, 3})), 2);
  EXPECT_EQ(arg_max(DataType::int8, bytes_of<std::int8_t>({-128, 127, 0})), 1);
  EXPECT_EQ(arg_max(DataType::uint8, bytes_of<std::uint8_t>({0, 127, 255})), 2);
  EXPECT_EQ(arg_max(DataType::int64, bytes_of<std::int64_t>({5, -6})), 0);
  // Half precision: -2, -1, 0.5, 0.25.
  EXPECT_EQ(arg_max(DataType::fp16, bytes_of<std::uint16_t>({0xC000, 0xBC00, 0x3800, 0x3400})), 2);
  EXPECT_EQ(arg_max(DataType::bf16, bytes_of<std::uint16_t>({0xC000, 0xBF80})), 1);
  EXPECT_EQ(arg_max(DataType::boolean, bytes_of<std::uint8_t>({1})), std::nullopt);
  EXPECT_EQ(arg_max(DataType::fp32, Bytes()), std::nullopt);
}

ModelInfo bert() {
  ModelInfo model;
  model.name = "bert";
  model.inputs = {{"ids", DataType::int64, {14}}};
  model.slo_ms = 400;
  return model;
}

config::WorkloadModel workload_of(const std::string& name) {
  config::WorkloadModel model;
  model.name = name;
  model.rate = 10;
  return model;
}

TEST(Prepare, JoinsTheWorkloadWithWhatTheTargetServes) {
  const PreparedModel prepared =
      prepare({workload_of("bert")}, {bert()}, {2.5, 1}, 1).value().at(0);
  EXPECT_EQ(prepared.load.rate, 25);
  EXPECT_EQ(prepared.load.slo,
            std::chrono::milliseconds(400));      // the server's
  EXPECT_EQ(prepared.timeout, Duration::zero());  // which the server applies itself
  EXPECT_EQ(prepared.load.inputs, prepared.pool.requests.size());

  config::WorkloadModel strict = workload_of("bert");
  strict.slo_ms = 90;
  EXPECT_EQ(prepare({strict}, {bert()}, {1, 3}, 1).value().at(0).timeout,
            std::chrono::milliseconds(270));
}

TEST(Prepare, NamesAModelThatTheTargetDoesNotServe) {
  const Status status =
      prepare({workload_of("bert"), workload_of("brat")}, {bert()}, {}, 1).status();
  EXPECT_EQ(status.code(), StatusCode::not_found);
  EXPECT_THAT(status.message(), StartsWith("/models/1/name: "));
  EXPECT_TRUE(names(status, "bert"));
}

TEST(Prepare, RejectsLabelsForOutputsWithoutArgMax) {
  config::WorkloadModel labelled = workload_of("bert");
  labelled.input = config::WorkloadInput{"in", "labels"};
  const Status status = prepare({labelled}, {bert()}, {}, 1).status();
  EXPECT_THAT(status.message(), StartsWith("/models/0/input: "));
}

}  // namespace
}  // namespace gpulet::load

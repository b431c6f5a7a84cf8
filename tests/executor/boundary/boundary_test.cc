// An executor of the other C++ ABI, in a shared library, through the boundary.
#include "gpulet/executor/boundary/boundary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/executor/boundary/inside.h"
#include "tests/support/names.h"

namespace gpulet::executor::boundary {
namespace {

using support::names;
using ::testing::ElementsAre;

constexpr const char* kModel = "a name that is too long for the small string optimization";

// Two requests of "ab" and "cd" are answered with "aba" and "cdc".
ModelToLoad model() {
  return {
      .name = kModel,
      .file = "/where/it/lies.pt",
      .inputs = {{.name = "x", .type = DataType::uint8, .shape = {1, 2}}},
      .outputs = {{.name = "y", .type = DataType::uint8, .shape = {3}}},
      .max_batch = 4,
      .variant = 30,
      .numerics = {.precision = Precision::half, .channels_last = true, .largest_error = 0.125}};
}

struct Areas {
  std::array<std::byte, 4> input{std::byte{'a'}, std::byte{'b'}, std::byte{'c'}, std::byte{'d'}};
  std::array<std::byte, 6> output{};

  [[nodiscard]] BatchToRun batch(std::string_view name) {
    return {.model = name, .count = 2, .input = input, .output = output};
  }
  [[nodiscard]] std::string answer() const {
    return {reinterpret_cast<const char*>(output.data()), output.size()};
  }
};

TEST(Boundary, TheOtherSideHasTheOtherAbi) {
  EXPECT_NE(test_boundary_abi(), _GLIBCXX_USE_CXX11_ABI);
}

TEST(Boundary, AnExecutorBehavesAsOnTheInnerSide) {
  const auto executor = make_executor(*test_boundary(), "cpu");
  std::array<std::byte, 80> memory{};
  executor->use_memory(memory);
  EXPECT_EQ(executor->found_share().value(),
            (partition::FoundShare{.held = true, .sms = 100, .device_sms = 80}));
  EXPECT_EQ(executor->health(), partition::DeviceHealth::not_ready);
  EXPECT_EQ(executor->condition(), std::nullopt);
  ModelToLoad planned = model();
  planned.planned_batches = {2, 3};
  const auto variant = executor->load(planned);
  ASSERT_TRUE(variant.ok()) << variant.status().to_string();
  EXPECT_EQ(variant.value(), 34U);
  EXPECT_EQ(executor->load_stages(),
            (partition::LoadStages{.read = std::chrono::milliseconds(2),
                                   .capture = std::chrono::milliseconds(3)}));
  executor->serving();
  EXPECT_EQ(executor->condition(),
            (partition::ProcessCondition{.sms = 3, .shared_sms = 2, .sizes_to_capture = 1}));
  EXPECT_EQ(executor->error_of(2), 0.25);
  EXPECT_EQ(executor->failure_text(), "its own words: 13");
  EXPECT_EQ(executor->depth(), 2U);
  Areas areas;
  const auto written = executor->run(areas.batch(kModel));
  ASSERT_TRUE(written.ok()) << written.status().to_string();
  EXPECT_EQ(written.value(), 6U);
  EXPECT_EQ(areas.answer(), "abacdc");
}

TEST(Boundary, AConversionArrivesOnTheInnerSide) {
  const auto executor = make_executor(*test_boundary(), "cpu");
  ModelToLoad converted = model();
  converted.inputs[0].shape = {4, 6, 3};
  converted.inputs[0].conversion = InputConversion{.type = DataType::fp16,
                                                   .from_channels_last = true,
                                                   .scale = 0.25,
                                                   .mean = {1, 2, 3},
                                                   .deviation = {0.5}};
  ASSERT_TRUE(executor->load(converted).ok());
  EXPECT_EQ(executor->failure_text(), conversion_text(converted.inputs[0]));
  ASSERT_TRUE(executor->load(model()).ok());
  EXPECT_EQ(executor->failure_text(), "its own words: 13");
}

TEST(Boundary, ABatchMayFinishOnAnotherThread) {
  const auto executor = make_executor(*test_boundary(), "cpu");
  ASSERT_TRUE(executor->load(model()).ok());
  Areas first;
  Areas second;
  second.input[0] = std::byte{'z'};
  std::vector<std::unique_ptr<RunningBatch>> begun;
  for (Areas* const each : {&first, &second}) {
    const std::string name = kModel;  // need not outlive the call
    begun.push_back(executor->begin(each->batch(name)).value());
  }
  std::vector<std::size_t> written;
  std::thread([&] {
    for (const auto& each : begun) written.push_back(each->finish().value());
  }).join();
  EXPECT_THAT(written, ElementsAre(6, 6));
  EXPECT_EQ(first.answer(), "abacdc");
  EXPECT_EQ(second.answer(), "zbzcdc");

  BatchToRun empty = first.batch(kModel);
  empty.count = 0;
  const auto nothing = executor->begin(empty);
  EXPECT_EQ(nothing.status(), Status(StatusCode::invalid, "a batch of nothing"));
  const auto unknown = executor->begin(first.batch("unknown")).value()->finish();
  EXPECT_EQ(unknown.status().code(), StatusCode::not_found);
}

TEST(Boundary, FailuresKeepTheirCodeAndMessage) {
  const auto executor = make_executor(*test_boundary(), "cpu");
  ModelToLoad bad = model();
  bad.name.assign(100'000, 'n');
  bad.outputs[0].shape = {3, 0};
  const Status refused = executor->load(bad).status();
  EXPECT_EQ(refused.code(), StatusCode::invalid);
  EXPECT_TRUE(names(refused, bad.name));
  bad.file.clear();
  EXPECT_EQ(executor->load(bad).status(), Status(StatusCode::not_found, "no file"));
  Areas areas;
  EXPECT_EQ(executor->run(areas.batch("unknown")).status().code(), StatusCode::not_found);
}

TEST(Boundary, ExceptionsInsideBecomeFailures) {
  const auto executor = make_executor(*test_boundary(), "cpu");
  ModelToLoad bad = model();
  bad.name = "throws";
  EXPECT_EQ(executor->load(bad).status(),
            Status(StatusCode::internal, "thrown while 'throws' loads"));
  bad.name = "throws a number";
  EXPECT_EQ(executor->load(bad).status().code(), StatusCode::internal);
  EXPECT_THROW(prepare(*test_boundary()), std::runtime_error);
  EXPECT_THROW((void)make_executor(*test_boundary(), "toaster"), std::invalid_argument);
  EXPECT_THROW((void)make_executor(*test_boundary(), "broken"), std::runtime_error);
}

TEST(Boundary, ExecutorsOfADeviceRunOnSeveralThreads) {
  EXPECT_EQ(make_shared_device(*test_boundary(), "toaster").status(),
            Status(StatusCode::invalid, "device 'toaster'"));
  const auto device = make_shared_device(*test_boundary(), "cpu");
  ASSERT_TRUE(device.ok());
  const std::array<std::string, 2> names{"a", "b"};
  EXPECT_EQ(device.value()->add_executor(Share{0}, names).status(),
            Status(StatusCode::unavailable, "a share of 0"));
  std::array<std::string, 2> answers;
  const auto serve = [&](int percent, std::string& answer) {
    const auto executor = device.value()->add_executor(Share{percent}, names);
    ASSERT_TRUE(executor.ok());
    EXPECT_EQ(executor.value()->found_share().value().sms, static_cast<std::uint32_t>(percent));
    ASSERT_TRUE(executor.value()->load(model()).ok());
    for (int i = 0; i < 100; ++i) {
      Areas areas;
      ASSERT_TRUE(executor.value()->run(areas.batch(kModel)).ok());
      answer = areas.answer();
    }
  };
  std::thread one([&] { serve(30, answers[0]); });
  std::thread other([&] { serve(70, answers[1]); });
  one.join();
  other.join();
  EXPECT_THAT(answers, ElementsAre("abacdc", "abacdc"));
}

TEST(Boundary, ALibraryIsOpenedByItsName) {
  const auto opened = open_boundary(GPULET_BOUNDARY_INSIDE, "test_boundary");
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ(opened.value(), test_boundary());
  EXPECT_EQ(make_executor(*opened.value(), "cpu")->depth(), 2U);
}

TEST(Boundary, AMissingLibraryIsUnavailable) {
  const auto opened = open_boundary("libthere-is-no-such.so", "test_boundary");
  EXPECT_EQ(opened.status().code(), StatusCode::unavailable);
  EXPECT_TRUE(names(opened.status(), "libthere-is-no-such.so"));
}

TEST(Boundary, ALibraryWithoutTheFunctionIsRejected) {
  const auto opened = open_boundary(GPULET_BOUNDARY_INSIDE, "another_boundary");
  EXPECT_EQ(opened.status().code(), StatusCode::invalid);
}

TEST(Boundary, ALibraryOfAnotherVersionIsRejected) {
  const auto opened = open_boundary(GPULET_BOUNDARY_INSIDE, "test_boundary_of_another_version");
  EXPECT_EQ(opened.status().code(), StatusCode::invalid);
  EXPECT_TRUE(names(opened.status(), GPULET_BOUNDARY_INSIDE));
}

}  // namespace
}  // namespace gpulet::executor::boundary

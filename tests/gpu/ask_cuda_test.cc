#include "gpulet/gpu/ask_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/gpu/fake_gpus.h"

namespace gpulet::gpu {
namespace {

using support::FakeGpus;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

const std::string kUuid = "GPU-00112233-4455-6677-8899-aabbccddeeff";

TEST(AskCuda, TellsTheSmsOfEachGpuAndMakesNoContext) {
  const FakeGpus machine("gpu\nuuid " + kUuid + "\nsms 108\nstep 4\n");
  const auto answers = ask_cuda({.uuids = {kUuid, "GPU-7"}, .library = FakeGpus::cuda()});
  ASSERT_THAT(answers, SizeIs(2));
  ASSERT_TRUE(answers[0].groups.ok()) << answers[0].groups.status().to_string();
  EXPECT_EQ(answers[0].sms.value(), 108U);
  EXPECT_EQ(answers[0].groups.value().step, 4U);
  EXPECT_EQ(answers[0].groups.value().divisible, 108U);
  EXPECT_EQ(answers[1].sms.status().code(), StatusCode::not_found);
  EXPECT_THAT(machine.calls(), Not(Contains(HasSubstr("Retain"))));
}

TEST(AskCuda, ADriverThatIsTooOldStillTellsTheSms) {
  const FakeGpus machine("cuda_version 12020\ngpu\nuuid " + kUuid + "\n");
  const auto answers = ask_cuda({.uuids = {kUuid}, .library = FakeGpus::cuda()});
  EXPECT_EQ(answers.at(0).sms.value(), 132U);
  EXPECT_THAT(answers.at(0).groups.status().message(), AllOf(HasSubstr("12.4"), HasSubstr("mps")));
}

TEST(AskCuda, SaysWhereThereIsNoCuda) {
  const auto answers = ask_cuda({.uuids = {kUuid}, .library = "libcuda-of-nobody.so.1"});
  EXPECT_EQ(answers.at(0).groups.status().code(), StatusCode::unavailable);
  EXPECT_THAT(answers.at(0).groups.status().message(), HasSubstr("libcuda-of-nobody.so.1"));
}

TEST(AskCuda, DoesNotWaitForADriverThatHangsNorDieWithOneThatCrashes) {
  const FakeGpus machine("cuda_init hang\ngpu\nuuid " + kUuid + "\n");
  const auto hung = ask_cuda(
      {.uuids = {kUuid}, .library = FakeGpus::cuda(), .patience = std::chrono::milliseconds(50)});
  EXPECT_EQ(hung.at(0).sms.status().code(), StatusCode::unavailable);
  machine.write("cuda_init crash\ngpu\nuuid " + kUuid + "\n");
  const auto crashed = ask_cuda({.uuids = {kUuid}, .library = FakeGpus::cuda()});
  EXPECT_THAT(crashed.at(0).groups.status().message(), HasSubstr("does not tell"));
}

}  // namespace
}  // namespace gpulet::gpu

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpulet/gpu/nvml.h"

namespace gpulet::gpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

GpuInfo gpu(std::uint32_t number, const std::string& uuid, const std::string& fault = "") {
  GpuInfo info;
  info.number = number;
  info.uuid = uuid;
  info.fault = fault;
  return info;
}

const std::vector<GpuInfo> kThree = {gpu(0, "GPU-12ab-0"), gpu(1, "GPU-12cd-0"),
                                     gpu(2, "GPU-9fff-0")};

TEST(ChooseGpu, ByNumberUuidOrItsStart) {
  EXPECT_EQ(choose_gpu(kThree, "").value().number, 0U);
  EXPECT_EQ(choose_gpu(kThree, "1").value().number, 1U);
  EXPECT_EQ(choose_gpu(kThree, "GPU-12cd-0").value().number, 1U);
  EXPECT_EQ(choose_gpu(kThree, "GPU-9").value().number, 2U);
}

TEST(ChooseGpu, NamesThoseThereAreWhereNoneIsMeant) {
  for (const char* const wanted : {"3", "99999999999", "GPU-7", "gpu"}) {
    const auto chosen = choose_gpu(kThree, wanted);
    ASSERT_FALSE(chosen.ok()) << wanted;
    EXPECT_EQ(chosen.status().code(), StatusCode::not_found);
    EXPECT_THAT(chosen.status().message(),
                AllOf(HasSubstr(wanted), HasSubstr("0 (GPU-12ab-0), 1 (GPU-12cd-0)")));
  }
  EXPECT_EQ(choose_gpu({}, "").status().code(), StatusCode::not_found);
}

TEST(ChooseGpu, RefusesAStartThatSeveralHave) {
  const auto chosen = choose_gpu(kThree, "GPU-12");
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.status().code(), StatusCode::invalid);
  EXPECT_THAT(chosen.status().message(), AllOf(HasSubstr("GPU-12ab-0"), HasSubstr("GPU-12cd-0")));
}

TEST(ChooseGpu, TellsTheFaultWhereNoGpuIsWell) {
  const auto chosen = choose_gpu({gpu(0, "", "it is lost")}, "");
  EXPECT_EQ(chosen.status(), Status(StatusCode::unavailable, "it is lost"));
}

}  // namespace
}  // namespace gpulet::gpu

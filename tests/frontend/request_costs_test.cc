#include "frontend/endpoints/request_costs.h"

#include <gtest/gtest.h>

namespace gpulet::frontend {
namespace {

TEST(RequestCosts, AreTheDeviceTimePerRequest) {
  schedule::Plan plan;
  schedule::PlannedGpulet half;
  half.size = {50};
  half.assignments = {{"m", 30, 4, 8.0, 1, 100}};
  schedule::PlannedGpulet whole;
  whole.size = {100};
  whole.assignments = {{"m", 10, 2, 6.0, 1, 100}, {"n", 0, 0, 5.0, 1, 100}};
  plan.gpulets = {half, whole};
  RequestCosts costs;
  costs.follow(Epoch{1}, plan);
  // 1 ms of 30 requests, 3 ms of 10.
  EXPECT_NEAR(to_ms(costs.of("m")), 1.5, 1e-6);
  EXPECT_NEAR(to_ms(costs.of("n")), 5.0, 1e-6);
  EXPECT_EQ(costs.of("unknown"), Duration::zero());
}

}  // namespace
}  // namespace gpulet::frontend

#include "backend/parking.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace gpulet::backend {
namespace {

node::StartGpulet order(int percent, double memory_mb = 500) {
  const TensorSpec tensor{"x", DataType::fp32, {4}};
  node::StartGpulet made;
  made.gpulet = {1};
  made.size = {percent};
  made.memory_mb = memory_mb;
  made.input_capacity = 1024;
  made.output_capacity = 1024;
  made.models.models = {{"a", "/store/a.pt", {tensor}, {tensor}, 8}};
  made.models.models[0].planned_batches = {2, 4};
  return made;
}

TEST(Parking, OnlyProcessesWhoseMemoryIsKnownAndWhoseShareStays) {
  EXPECT_TRUE(may_park(order(40)));
  EXPECT_FALSE(may_park(order(40, 0)));
  node::StartGpulet adjustable = order(40);
  adjustable.adjustable = true;
  EXPECT_FALSE(may_park(adjustable));
  node::StartGpulet in_instance = order(40);
  in_instance.instance = partition::MigInstance{};
  EXPECT_FALSE(may_park(in_instance));
}

TEST(Parking, AProcessServesWhatItHasLoadedAlone) {
  const LoadedProcess process{order(40)};
  EXPECT_TRUE(can_serve(process, order(40)));
  EXPECT_TRUE(can_serve(process, order(40, 400)));
  EXPECT_FALSE(can_serve(process, order(50)));
  EXPECT_FALSE(can_serve(process, order(40, 501))) << "its limit of memory is lower";
  const auto with = [&](const auto& change) {
    node::StartGpulet changed = order(40);
    change(changed);
    return can_serve(process, changed);
  };
  EXPECT_FALSE(with([](auto& one) { one.device = 1; }));
  EXPECT_FALSE(with([](auto& one) { one.input_capacity = 1025; }));
  EXPECT_FALSE(with([](auto& one) { one.output_capacity = 1025; }));
  EXPECT_FALSE(with([](auto& one) { one.models.models[0].name = "b"; }));
  EXPECT_FALSE(with([](auto& one) { one.models.models[0].file = "/store/b.pt"; }));
  EXPECT_FALSE(with([](auto& one) { one.models.models[0].max_batch = 16; }));
  EXPECT_FALSE(with([](auto& one) { one.models.models[0].inputs[0].shape = {5}; }));
  EXPECT_FALSE(with([](auto& one) { one.models.models[0].outputs.clear(); }));
  EXPECT_FALSE(with([](auto& one) { one.models.models[0].numerics.channels_last = true; }));
  EXPECT_FALSE(with([](auto& one) {
    one.models.models.push_back(one.models.models[0]);
    one.models.models[1].name = "b";
  }));
  EXPECT_TRUE(with([](auto& one) { one.gpulet = {9}; }));
  EXPECT_TRUE(with([](auto& one) { one.models.models[0].variant = 3; }));
}

TEST(Parking, AProcessOfMoreModelsServesSomeOfThem) {
  LoadedProcess process{order(40, 900)};
  process.order.models.models.push_back(process.order.models.models[0]);
  process.order.models.models[0].name = "b";
  EXPECT_TRUE(can_serve(process, order(40)));
  EXPECT_EQ(variants_for(order(40).models.models, process.order.models.models, {3, 5}),
            (std::vector<std::uint32_t>{5}));
  EXPECT_EQ(variants_for(order(40).models.models, process.order.models.models, {}),
            (std::vector<std::uint32_t>{0}));
}

TEST(Parking, APlannedBatchIsPrepared) {
  node::StartGpulet other = order(40);
  other.models.models[0].planned_batches = {4};
  EXPECT_TRUE(can_serve({order(40), 3}, other));
  other.models.models[0].planned_batches = {3, 4};
  EXPECT_FALSE(can_serve({order(40), 3}, other));
  EXPECT_TRUE(can_serve({order(40), 0}, other)) << "it has prepared all sizes";
}

TEST(Parking, TheGpuletsHaveThePrecedenceOverParkedProcesses) {
  EXPECT_EQ((ParkingSpace{1000, 300, 500}).allowed(), 300);
  EXPECT_EQ((ParkingSpace{1000, 300, 900}).allowed(), 100);
  EXPECT_EQ((ParkingSpace{1000, 300, 1200}).allowed(), 0);
  EXPECT_EQ((ParkingSpace{0, 300, 1200}).allowed(), 300);
}

TEST(Parking, LoadsAheadAtTheSizesBesideTheRunningOne) {
  const std::map<std::uint32_t, std::vector<Share>> sizes{{0, {{20}, {40}, {60}, {100}}}};
  const std::map<std::uint32_t, double> left{{0, 1000.0}};
  std::vector<LoadedProcess> parked;
  std::vector<int> ahead;
  while (const auto next = next_ahead({order(40)}, parked, sizes, left)) {
    ahead.push_back(next->size.percent);
    parked.push_back({*next});
  }
  EXPECT_EQ(ahead, (std::vector<int>{60, 20}));
  EXPECT_EQ(next_ahead({order(100)}, {}, sizes, left)->size.percent, 60);
  EXPECT_EQ(next_ahead({order(40), order(60)}, {}, sizes, left)->size.percent, 20)
      << "the larger one runs";
  EXPECT_FALSE(next_ahead({order(40)}, {}, sizes, {{0, 400.0}}));
  EXPECT_FALSE(next_ahead({order(40)}, {}, sizes, {})) << "no device whose processes can be parked";
  EXPECT_FALSE(next_ahead({order(40, 0)}, {}, sizes, left));
}

}  // namespace
}  // namespace gpulet::backend

#include "serve/deploy/backend_registry.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gpulet::serve::backend_registry_test {
namespace {

DeviceOffer device(const std::string& node, std::uint32_t number) {
  DeviceOffer offer;
  offer.device.key = {node, number};
  offer.device.type = "card";
  offer.device.partitioning = "simulated";
  offer.device.sizes = {Share{50}, Share{100}};
  return offer;
}

GpuletReport report(std::uint64_t id, GpuletState state) {
  GpuletReport made;
  made.id = {id};
  made.size = Share{50};
  made.state = state;
  return made;
}

TEST(BackendRegistry, ABackendBringsTheGpuletsThatHaveNotEnded) {
  BackendRegistry registry;
  const Hello hello{"n0",
                    {device("n0", 0)},
                    {report(3, GpuletState::gone), report(4, GpuletState::ready),
                     report(5, GpuletState::failed)}};
  registry.join(BackendId{1}, hello, Time());
  EXPECT_TRUE(registry.claim(BackendId{1}, hello.gpulets, Time()).empty());
  EXPECT_EQ(registry.find(GpuletId{3}), nullptr);
  ASSERT_NE(registry.find(GpuletId{4}), nullptr);
  EXPECT_EQ(registry.find(GpuletId{4})->backend, BackendId{1});
  EXPECT_EQ(registry.find(GpuletId{4})->state, GpuletState::ready);
  EXPECT_FALSE(registry.find(GpuletId{4})->issued);
  ASSERT_NE(registry.find(GpuletId{5}), nullptr);
  EXPECT_EQ(registry.find(GpuletId{5})->state, GpuletState::failed);
}

TEST(BackendRegistry, ABackendCannotBringTheGpuletOfAnother) {
  BackendRegistry registry;
  registry.join(BackendId{1}, {"n0", {device("n0", 0)}, {}}, Time());
  registry.claim(BackendId{1}, {report(4, GpuletState::ready)}, Time());
  registry.join(BackendId{2}, {"n1", {device("n1", 0)}, {}}, Time());
  const std::vector<GpuletId> disowned = registry.claim(
      BackendId{2}, {report(4, GpuletState::ready), report(6, GpuletState::ready)}, Time());
  EXPECT_EQ(disowned, (std::vector<GpuletId>{GpuletId{4}}));
  EXPECT_EQ(registry.find(GpuletId{4})->backend, BackendId{1});
  ASSERT_NE(registry.find(GpuletId{6}), nullptr);
  EXPECT_EQ(registry.find(GpuletId{6})->backend, BackendId{2});
}

TEST(BackendRegistry, KnowsTheDevicesOfEachBackend) {
  BackendRegistry registry;
  EXPECT_FALSE(registry.offers(BackendId{1}, 0)) << "it has not joined";
  registry.join(BackendId{1}, {"n0", {device("n0", 0)}, {}}, Time());
  registry.join(BackendId{2}, {"n1", {device("n1", 1)}, {}}, Time());
  EXPECT_TRUE(registry.offers(BackendId{1}, 0));
  EXPECT_FALSE(registry.offers(BackendId{1}, 1));
  EXPECT_TRUE(registry.offers(BackendId{2}, 1));
  EXPECT_FALSE(registry.offers(BackendId{3}, 0));
  registry.remove(BackendId{1});
  EXPECT_FALSE(registry.offers(BackendId{1}, 0));
}

TEST(BackendRegistry, ForgetsTheRightsToFilesThatNobodyNeeds) {
  BackendRegistry registry;
  registry.join(BackendId{1}, {"n0", {device("n0", 0)}, {}}, Time());
  const auto create = [&registry](std::uint64_t id) {
    CreateGpulet command;
    command.id = {id};
    command.size = Share{50};
    registry.add_gpulet(command, {"n0", 0}, {{"a", 4, "f" + std::to_string(id) + "-1"}}, Time());
  };
  const auto right = [&registry](std::uint64_t id) {
    return registry.right_to_file(BackendId{1}, "f" + std::to_string(id));
  };
  create(1);
  create(2);
  EXPECT_TRUE(registry.report_gpulet(BackendId{1}, report(2, GpuletState::gone)));
  EXPECT_TRUE(registry.gpulets_ended());
  EXPECT_EQ(right(2), FileRight::granted);
  registry.forget_files({"f2"});
  EXPECT_FALSE(registry.gpulets_ended());
  EXPECT_EQ(right(1), FileRight::granted) << "it is still there";
  EXPECT_EQ(right(2), FileRight::granted) << "it may still be fetched";
  registry.forget_files({});
  EXPECT_EQ(right(1), FileRight::granted);
  EXPECT_EQ(right(2), FileRight::none);
}

}  // namespace
}  // namespace gpulet::serve::backend_registry_test

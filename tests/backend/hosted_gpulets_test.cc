#include "node/hosted_gpulets.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <set>
#include <string>

#include "tests/backend/core_bench.h"

namespace gpulet::node::hosted_gpulets_test {
namespace {

HostedGpulet made(std::uint64_t id, std::uint32_t device = 0,
                  const std::vector<std::string>& models = {"a"}) {
  return HostedGpulet::create(create(id, models, device), Time()).value();
}

std::vector<std::uint64_t> ids_on(const HostedGpulets& gpulets, std::uint32_t device) {
  std::vector<std::uint64_t> ids;
  for (const HostedGpulet* gpulet : gpulets.on_device(device)) ids.push_back(gpulet->id().value);
  return ids;
}

TEST(HostedGpulets, AreFoundByIdAndDevice) {
  HostedGpulets gpulets(2);
  EXPECT_TRUE(gpulets.empty());
  EXPECT_EQ(gpulets.find({1}), nullptr);
  gpulets.add(made(7));
  gpulets.add(made(3));
  gpulets.add(made(5, 1));
  EXPECT_EQ(ids_on(gpulets, 0), (std::vector<std::uint64_t>{3, 7}));
  EXPECT_EQ(ids_on(gpulets, 1), std::vector<std::uint64_t>{5});
  ASSERT_NE(gpulets.find({7}), nullptr);
  EXPECT_EQ(gpulets.find({7})->id(), GpuletId{7});
}

TEST(HostedGpulets, ThatAreGoneAreErasedWhenTold) {
  HostedGpulets gpulets(1);
  gpulets.add(made(1)).enter(GpuletPhase::gone, Time());
  gpulets.erase_gone();
  EXPECT_NE(gpulets.find({1}), nullptr) << "it was not told";
  gpulets.set_some_gone();
  gpulets.erase_gone();
  EXPECT_TRUE(gpulets.empty());
  EXPECT_TRUE(gpulets.on_device(0).empty());
}

TEST(HostedGpulets, ThatFailedUseNoFiles) {
  HostedGpulets gpulets(1);
  gpulets.add(made(1, 0, {"a", "b"}));
  gpulets.add(made(2, 0, {"b", "c"})).enter(GpuletPhase::failed, Time());
  gpulets.add(made(3, 0, {"d"})).enter(GpuletPhase::gone, Time());
  EXPECT_EQ(gpulets.files_in_use(), (std::set<std::string, std::less<>>{"sha-a", "sha-b"}));
}

RC_GTEST_PROP(HostedGpuletsProperty, EveryOneIsOnItsDeviceInTheOrderOfIds, ()) {
  HostedGpulets gpulets(3);
  std::map<std::uint64_t, std::uint32_t> expected;
  for (int step = *rc::gen::inRange(0, 40); step > 0; --step) {
    const auto id = *rc::gen::inRange<std::uint64_t>(1, 20);
    if (expected.contains(id)) {
      gpulets.find({id})->enter(GpuletPhase::gone, Time());
      gpulets.set_some_gone();
      gpulets.erase_gone();
      expected.erase(id);
    } else {
      expected[id] = *rc::gen::inRange(0U, 3U);
      gpulets.add(made(id, expected[id]));
    }
    for (std::uint32_t device = 0; device < 3; ++device) {
      std::vector<std::uint64_t> there;
      for (const auto& [one, on] : expected) {
        if (on == device) there.push_back(one);
      }
      RC_ASSERT(ids_on(gpulets, device) == there);
    }
    RC_ASSERT(gpulets.all().size() == expected.size());
  }
}

}  // namespace
}  // namespace gpulet::node::hosted_gpulets_test

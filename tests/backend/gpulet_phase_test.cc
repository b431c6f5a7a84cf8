
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <utility>

#include "node/hosted_gpulet.h"
#include "tests/backend/core_bench.h"

namespace gpulet::node {
namespace {

using enum GpuletPhase;

constexpr std::array kPhases{fetching,   starting, loading,  ready,
                             restarting, failed,   retiring, gone};

// The edges of the diagram in gpulet_phase.h.
const std::set<std::pair<GpuletPhase, GpuletPhase>> kEdges{
    {fetching, starting},   {fetching, failed},     {fetching, gone},     {starting, loading},
    {starting, restarting}, {starting, failed},     {starting, retiring}, {loading, ready},
    {loading, restarting},  {loading, failed},      {loading, retiring},  {ready, restarting},
    {ready, retiring},      {restarting, starting}, {restarting, gone},   {failed, gone},
    {retiring, gone}};

TEST(GpuletPhase, AllowsOnlyTheEdgesOfTheDiagram) {
  for (const auto from : kPhases) {
    for (const auto to : kPhases) {
      EXPECT_EQ(is_legal_transition(from, to), kEdges.contains({from, to}))
          << to_string(from) << " -> " << to_string(to);
    }
  }
}

TEST(GpuletPhase, EveryPhaseLeadsToGone) {
  for (const auto from : kPhases) {
    if (from == gone) continue;
    std::set<GpuletPhase> reached{from};
    for (std::size_t round = 0; round < kPhases.size(); ++round) {
      for (const auto& [edge_from, edge_to] : kEdges) {
        if (reached.contains(edge_from)) reached.insert(edge_to);
      }
    }
    EXPECT_TRUE(reached.contains(gone)) << to_string(from);
  }
}

TEST(HostedGpulet, RejectsAnIllegalTransition) {
  auto made = HostedGpulet::create(create(1, {"a"}), Time());
  ASSERT_TRUE(made.ok());
  EXPECT_THROW(made.value().enter(ready, Time()), std::logic_error);
  EXPECT_EQ(made.value().phase(), fetching);
}

TEST(HostedGpulet, RejectsInvalidRequests) {
  const auto code = [](const CreateGpulet& asked) {
    return HostedGpulet::create(asked, Time()).status().code();
  };
  EXPECT_EQ(code(create(1, {})), StatusCode::invalid);
  EXPECT_EQ(code(create(1, {"a", "a"})), StatusCode::invalid);
  auto no_share = create(1, {"a"});
  no_share.size = {0};
  EXPECT_EQ(code(no_share), StatusCode::invalid);
  auto no_batch = create(1, {"a"});
  no_batch.models[0].max_batch = 0;
  EXPECT_EQ(code(no_batch), StatusCode::invalid);
  auto no_shape = create(1, {"a"});
  no_shape.models[0].inputs[0].shape = {-1};
  EXPECT_EQ(code(no_shape), StatusCode::invalid);
  auto too_big = create(1, {"a"});
  too_big.models[0].inputs[0].shape = {1'000'000'000};
  EXPECT_EQ(code(too_big), StatusCode::invalid);
}

TEST(HostedGpulet, HoldsTheLargestBatchOfItsModels) {
  auto asked = create(1, {"a", "b"});
  asked.models[1].outputs[0].shape = {100};
  const auto made = HostedGpulet::create(asked, Time());
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made.value().input_capacity(), kInputBytes * kMaxBatch);
  EXPECT_EQ(made.value().output_capacity(), 100 * sizeof(float) * kMaxBatch);
}

}  // namespace
}  // namespace gpulet::node

#include "gpu/sm_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "gpulet/gpu/cuda_driver.h"

namespace gpulet::gpu {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

// Moves each user that has better blocks, in that order, until no user has.
std::size_t settle(SmAllocator& allocator, const std::vector<std::uint64_t>& users) {
  std::size_t moves = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (const std::uint64_t user : users) {
      const auto better = allocator.better(user);
      if (!better) continue;
      allocator.move(user, *better);
      moved = true;
      ++moves;
      RC_ASSERT(moves < 10'000U);
    }
  }
  return moves;
}

// A random history of users with sizes up to all blocks.
struct History {
  std::uint32_t blocks = *rc::gen::inRange(1U, 24U);
  SmAllocator allocator{blocks};
  std::vector<std::uint64_t> users;
  std::vector<std::uint32_t> sizes;

  History() {
    const int steps = *rc::gen::inRange(1, 30);
    for (int step = 0; step < steps; ++step) {
      if (!users.empty() && *rc::gen::inRange(0, 3) == 0) {
        drop(*rc::gen::inRange<std::size_t>(0, users.size()));
      } else {
        sizes.push_back(*rc::gen::inRange(1U, blocks + 1));
        users.push_back(allocator.add(sizes.back()));
      }
      if (*rc::gen::arbitrary<bool>() && !users.empty()) settle(allocator, {users.front()});
    }
  }
  void drop(std::size_t index) {
    allocator.remove(users[index]);
    users.erase(users.begin() + static_cast<std::ptrdiff_t>(index));
    sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(index));
  }
  void drop_until_all_fit() {
    while (std::accumulate(sizes.begin(), sizes.end(), 0U) > blocks)
      drop(*rc::gen::inRange<std::size_t>(0, users.size()));
  }
};

TEST(SmAllocator, AllocatesTheLowestFreeBlocks) {
  SmAllocator allocator(8);
  const auto one = allocator.add(3);
  const auto other = allocator.add(3);
  EXPECT_THAT(allocator.blocks_of(one), ElementsAre(0U, 1U, 2U));
  EXPECT_THAT(allocator.blocks_of(other), ElementsAre(3U, 4U, 5U));
  allocator.remove(one);
  EXPECT_THAT(allocator.blocks_of(allocator.add(4)), ElementsAre(0U, 1U, 2U, 6U)) << "not adjacent";
}

TEST(SmAllocator, OverlapsOnTheLeastUsedBlocksUntilThereIsRoom) {
  SmAllocator allocator(4);
  const auto old_one = allocator.add(2);
  const auto neighbour = allocator.add(2);
  const auto new_one = allocator.add(2);
  EXPECT_THAT(allocator.blocks_of(new_one), ElementsAre(0U, 1U));
  EXPECT_TRUE(allocator.overlaps(old_one));
  EXPECT_FALSE(allocator.overlaps(neighbour));
  EXPECT_EQ(allocator.better(new_one), std::nullopt) << "no block has fewer users";
  allocator.remove(neighbour);
  EXPECT_THAT(allocator.better(new_one), Optional(ElementsAre(2U, 3U)));
  allocator.move(new_one, {2, 3});
  EXPECT_FALSE(allocator.overlaps(old_one));
  EXPECT_FALSE(allocator.overlaps(new_one));
}

TEST(SmAllocator, ASizeIsAtLeastOneBlockAndAtMostAll) {
  SmAllocator allocator(4);
  EXPECT_THAT(allocator.blocks_of(allocator.add(0)), ElementsAre(0U));
  EXPECT_THAT(allocator.blocks_of(allocator.add(9)), ElementsAre(0U, 1U, 2U, 3U));
}

RC_GTEST_PROP(SmAllocator, AllocatesTheRequestedSizesAndDetectsOverlaps, ()) {
  const History history;
  for (std::size_t i = 0; i < history.users.size(); ++i) {
    const auto& blocks = history.allocator.blocks_of(history.users[i]);
    RC_ASSERT(blocks.size() == history.sizes[i]);
    RC_ASSERT(std::is_sorted(blocks.begin(), blocks.end()));
    RC_ASSERT(std::set(blocks.begin(), blocks.end()).size() == blocks.size());
    RC_ASSERT(blocks.back() < history.blocks);
    std::size_t shared = 0;
    for (const std::uint64_t other : history.users) {
      const auto& others = history.allocator.blocks_of(other);
      if (other == history.users[i]) continue;
      for (const std::uint32_t block : blocks)
        shared += static_cast<std::size_t>(std::count(others.begin(), others.end(), block));
    }
    RC_ASSERT(history.allocator.overlaps(history.users[i]) == (shared > 0));
  }
}

RC_GTEST_PROP(SmAllocator, ASingleUserNeitherOverlapsNorMoves, ()) {
  History history;
  RC_PRE(!history.users.empty());
  while (history.users.size() > 1) history.drop(0);
  RC_ASSERT(!history.allocator.overlaps(history.users[0]));
  RC_ASSERT(!history.allocator.better(history.users[0]));
}

RC_GTEST_PROP(SmAllocator, SizesThatFitAreDisjointAfterOneMoveEach, ()) {
  History history;
  history.drop_until_all_fit();
  RC_ASSERT(settle(history.allocator, history.users) <= history.users.size());
  for (const std::uint64_t user : history.users) RC_ASSERT(!history.allocator.overlaps(user));
}

RC_GTEST_PROP(SmAllocator, MovesTerminate, ()) {
  History history;
  settle(history.allocator, history.users);
  RC_ASSERT(settle(history.allocator, history.users) == 0U);
}

RC_GTEST_PROP(SmAllocator, SharesThatSumUpToTheGpuFitInItsBlocks, ()) {
  const auto step = *rc::gen::element(2U, 4U, 8U);
  const auto count = *rc::gen::inRange(1U, 40U);
  const SmGroups groups{.sms = step * count + *rc::gen::inRange(0U, step),
                        .divisible = step * count,
                        .smallest = step,
                        .step = step};
  SmAllocator allocator(count);
  std::vector<std::uint64_t> users;
  for (int left = 100; left > 0;) {
    const int percent = *rc::gen::inRange(1, left + 1);
    left -= percent;
    const std::uint32_t sms = groups.sms_of(percent);
    // Shares below a block are not planned, because they would get a whole one.
    if (groups.percent_of(groups.smallest) > percent) continue;
    users.push_back(allocator.add(sms == groups.sms ? count : sms / step));
    RC_ASSERT(!allocator.overlaps(users.back()));
  }
}

}  // namespace
}  // namespace gpulet::gpu

#include "gpu/sm_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
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

// A random history of users with sizes up to all blocks, some of which replace others.
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
        std::vector<std::uint64_t> replaced;
        for (const std::uint64_t user : users) {
          if (*rc::gen::inRange(0, 4) == 0) replaced.push_back(user);
        }
        users.push_back(allocator.add(sizes.back(), replaced));
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

TEST(SmAllocator, ShrinksFirstAndGrowsThen) {
  SmAllocator allocator(16);
  const auto shrinking = allocator.add(8);
  const auto growing = allocator.add(6);
  const auto steady = allocator.add(2);
  const auto small = allocator.add(4, std::array{shrinking});
  EXPECT_THAT(allocator.blocks_of(small), ElementsAre(0U, 1U, 2U, 3U)) << "in what it replaces";
  const auto large = allocator.add(10, std::array{growing});
  EXPECT_EQ(allocator.blocks_of(large), allocator.blocks_of(growing)) << "no more for now";
  EXPECT_EQ(allocator.better(large), std::nullopt);
  EXPECT_FALSE(allocator.overlaps(steady));
  allocator.remove(shrinking);
  allocator.move(large, allocator.better(large).value());
  EXPECT_EQ(allocator.blocks_of(large).size(), 10U);
  EXPECT_FALSE(allocator.overlaps(small));
  EXPECT_EQ(allocator.shared_blocks(large), 6U) << "those of the one that it replaces";
  allocator.remove(growing);
  EXPECT_FALSE(allocator.overlaps(large));
}

TEST(SmAllocator, WithoutRoomAUserOverlapsWithThoseThatAreReplaced) {
  SmAllocator allocator(8);
  const auto steady = allocator.add(4);
  const auto leaving = allocator.add(4);
  const auto next = allocator.add(2, std::array{leaving});
  const auto other = allocator.add(2);
  EXPECT_THAT(allocator.blocks_of(other), ElementsAre(6U, 7U));
  EXPECT_FALSE(allocator.overlaps(steady));
  allocator.remove(leaving);
  EXPECT_FALSE(allocator.overlaps(next));
  EXPECT_FALSE(allocator.overlaps(other));
}

// A change of shares among users, each of which is replaced by one of another size.
RC_GTEST_PROP(SmAllocator, AChangeOfSharesDisturbsNobodyElse, ()) {
  const auto blocks = *rc::gen::inRange(2U, 24U);
  SmAllocator allocator(blocks);
  std::vector<std::uint64_t> old;
  std::vector<bool> stays;
  std::uint32_t left = blocks;
  while (left > 0) {
    const auto size = *rc::gen::inRange(1U, left + 1);
    left -= size;
    old.push_back(allocator.add(size));
    stays.push_back(*rc::gen::arbitrary<bool>());
  }
  std::uint32_t room = blocks;
  for (std::size_t i = 0; i < old.size(); ++i)
    room -= stays[i] ? static_cast<std::uint32_t>(allocator.blocks_of(old[i]).size()) : 0;
  std::vector<std::uint64_t> users;
  std::vector<std::uint32_t> wanted;
  for (std::size_t i = 0; i < old.size(); ++i) {
    if (stays[i]) continue;
    const auto others = static_cast<std::uint32_t>(old.size() - i - 1);
    if (room <= others) continue;
    wanted.push_back(*rc::gen::inRange(1U, room - others + 1));
    room -= wanted.back();
    users.push_back(allocator.add(wanted.back(), std::array{old[i]}));
    for (std::size_t j = 0; j < old.size(); ++j) {
      if (stays[j]) RC_ASSERT(!allocator.overlaps(old[j]));
    }
  }
  for (std::size_t i = 0; i < old.size(); ++i) {
    if (!stays[i]) allocator.remove(old[i]);
  }
  RC_ASSERT(settle(allocator, users) <= users.size());
  for (std::size_t i = 0; i < users.size(); ++i) {
    RC_ASSERT(!allocator.overlaps(users[i]));
    RC_ASSERT(allocator.blocks_of(users[i]).size() == wanted[i]);
  }
}

RC_GTEST_PROP(SmAllocator, AllocatesUpToTheRequestedSizesAndDetectsOverlaps, ()) {
  const History history;
  for (std::size_t i = 0; i < history.users.size(); ++i) {
    const auto& blocks = history.allocator.blocks_of(history.users[i]);
    RC_ASSERT(!blocks.empty() && blocks.size() <= history.sizes[i]);
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
    RC_ASSERT(history.allocator.shared_blocks(history.users[i]) <= shared);
  }
}

RC_GTEST_PROP(SmAllocator, ASingleUserNeitherOverlapsNorMovesOnceItHasItsBlocks, ()) {
  History history;
  RC_PRE(!history.users.empty());
  while (history.users.size() > 1) history.drop(0);
  settle(history.allocator, history.users);
  RC_ASSERT(history.allocator.blocks_of(history.users[0]).size() == history.sizes[0]);
  RC_ASSERT(!history.allocator.overlaps(history.users[0]));
  RC_ASSERT(!history.allocator.better(history.users[0]));
}

RC_GTEST_PROP(SmAllocator, SizesThatFitAreDisjointAfterOneMoveEach, ()) {
  History history;
  history.drop_until_all_fit();
  RC_ASSERT(settle(history.allocator, history.users) <= history.users.size());
  for (std::size_t i = 0; i < history.users.size(); ++i) {
    RC_ASSERT(!history.allocator.overlaps(history.users[i]));
    RC_ASSERT(history.allocator.blocks_of(history.users[i]).size() == history.sizes[i]);
  }
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

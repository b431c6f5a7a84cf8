#include "gpu/block_book.h"

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

// Lets each user that had better be elsewhere go there, in that order, until all are content.
std::size_t settle(BlockBook& book, const std::vector<std::uint64_t>& users) {
  std::size_t moves = 0;
  for (bool moved = true; moved;) {
    moved = false;
    for (const std::uint64_t user : users) {
      const auto better = book.better(user);
      if (!better) continue;
      book.move(user, *better);
      moved = true;
      ++moves;
      RC_ASSERT(moves < 10'000U);
    }
  }
  return moves;
}

// Users that come and go, with sizes up to all there is.
struct Life {
  std::uint32_t blocks = *rc::gen::inRange(1U, 24U);
  BlockBook book{blocks};
  std::vector<std::uint64_t> users;
  std::vector<std::uint32_t> sizes;

  Life() {
    const int steps = *rc::gen::inRange(1, 30);
    for (int step = 0; step < steps; ++step) {
      if (!users.empty() && *rc::gen::inRange(0, 3) == 0) {
        drop(*rc::gen::inRange<std::size_t>(0, users.size()));
      } else {
        sizes.push_back(*rc::gen::inRange(1U, blocks + 1));
        users.push_back(book.add(sizes.back()));
      }
      if (*rc::gen::arbitrary<bool>() && !users.empty()) settle(book, {users.front()});
    }
  }
  void drop(std::size_t index) {
    book.drop(users[index]);
    users.erase(users.begin() + static_cast<std::ptrdiff_t>(index));
    sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(index));
  }
  void drop_until_all_fit() {
    while (std::accumulate(sizes.begin(), sizes.end(), 0U) > blocks)
      drop(*rc::gen::inRange<std::size_t>(0, users.size()));
  }
};

TEST(BlockBook, UsersGetTheFreeBlocksFromTheLowestOn) {
  BlockBook book(8);
  const auto one = book.add(3);
  const auto other = book.add(3);
  EXPECT_THAT(book.blocks_of(one), ElementsAre(0U, 1U, 2U));
  EXPECT_THAT(book.blocks_of(other), ElementsAre(3U, 4U, 5U));
  book.drop(one);
  EXPECT_THAT(book.blocks_of(book.add(4)), ElementsAre(0U, 1U, 2U, 6U)) << "wherever they are";
}

TEST(BlockBook, BeyondTheGpuItIsTheLeastUsedAndWhoOverlapsMovesWhenThereIsRoom) {
  BlockBook book(4);
  const auto old_one = book.add(2);
  const auto neighbour = book.add(2);
  const auto new_one = book.add(2);
  EXPECT_THAT(book.blocks_of(new_one), ElementsAre(0U, 1U));
  EXPECT_TRUE(book.overlaps(old_one));
  EXPECT_FALSE(book.overlaps(neighbour));
  EXPECT_EQ(book.better(new_one), std::nullopt) << "nowhere are fewer";
  book.drop(neighbour);
  EXPECT_THAT(book.better(new_one), Optional(ElementsAre(2U, 3U)));
  book.move(new_one, {2, 3});
  EXPECT_FALSE(book.overlaps(old_one));
  EXPECT_FALSE(book.overlaps(new_one));
}

TEST(BlockBook, ASizeIsAtLeastOneBlockAndAtMostAll) {
  BlockBook book(4);
  EXPECT_THAT(book.blocks_of(book.add(0)), ElementsAre(0U));
  EXPECT_THAT(book.blocks_of(book.add(9)), ElementsAre(0U, 1U, 2U, 3U));
}

RC_GTEST_PROP(BlockBook, HoldsWhatWasAskedForAndKnowsWhoOverlaps, ()) {
  const Life life;
  for (std::size_t i = 0; i < life.users.size(); ++i) {
    const auto& blocks = life.book.blocks_of(life.users[i]);
    RC_ASSERT(blocks.size() == life.sizes[i]);
    RC_ASSERT(std::is_sorted(blocks.begin(), blocks.end()));
    RC_ASSERT(std::set(blocks.begin(), blocks.end()).size() == blocks.size());
    RC_ASSERT(blocks.back() < life.blocks);
    std::size_t shared = 0;
    for (const std::uint64_t other : life.users) {
      const auto& others = life.book.blocks_of(other);
      if (other == life.users[i]) continue;
      for (const std::uint32_t block : blocks)
        shared += static_cast<std::size_t>(std::count(others.begin(), others.end(), block));
    }
    RC_ASSERT(life.book.overlaps(life.users[i]) == (shared > 0));
  }
}

RC_GTEST_PROP(BlockBook, OneThatIsAloneNeverOverlapsNorMoves, ()) {
  Life life;
  RC_PRE(!life.users.empty());
  while (life.users.size() > 1) life.drop(0);
  RC_ASSERT(!life.book.overlaps(life.users[0]));
  RC_ASSERT(!life.book.better(life.users[0]));
}

RC_GTEST_PROP(BlockBook, SharesThatFitAreDisjointOnceEachHasMovedAtMostOnce, ()) {
  Life life;
  life.drop_until_all_fit();
  RC_ASSERT(settle(life.book, life.users) <= life.users.size());
  for (const std::uint64_t user : life.users) RC_ASSERT(!life.book.overlaps(user));
}

RC_GTEST_PROP(BlockBook, UsersWhoFollowItComeToRestWhereverTheyAre, ()) {
  Life life;
  settle(life.book, life.users);
  RC_ASSERT(settle(life.book, life.users) == 0U);
}

RC_GTEST_PROP(BlockBook, SharesThatSumUpToTheGpuFitInItsBlocks, ()) {
  const auto step = *rc::gen::element(2U, 4U, 8U);
  const auto count = *rc::gen::inRange(1U, 40U);
  const SmGroups groups{.sms = step * count + *rc::gen::inRange(0U, step),
                        .divisible = step * count,
                        .smallest = step,
                        .step = step};
  BlockBook book(count);
  std::vector<std::uint64_t> users;
  for (int left = 100; left > 0;) {
    const int percent = *rc::gen::inRange(1, left + 1);
    left -= percent;
    const std::uint32_t sms = groups.sms_of(percent);
    // Smaller ones than a block are given one all the same, and are not to be planned.
    if (groups.percent_of(groups.smallest) > percent) continue;
    users.push_back(book.add(sms == groups.sms ? count : sms / step));
    RC_ASSERT(!book.overlaps(users.back()));
  }
}

}  // namespace
}  // namespace gpulet::gpu

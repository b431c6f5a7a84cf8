#include "gpu/block_book.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace gpulet::gpu {

std::uint64_t BlockBook::add(std::uint32_t count) {
  const auto most = static_cast<std::uint32_t>(users_.size());
  const std::uint64_t user = ++last_user_;
  held_[user];
  move(user, least_used(std::clamp(count, 1U, std::max(1U, most)), {}));
  return user;
}

void BlockBook::drop(std::uint64_t user) {
  move(user, {});
  held_.erase(user);
}

void BlockBook::move(std::uint64_t user, Blocks blocks) {
  Blocks& held = held_.at(user);
  for (const std::uint32_t block : held) --users_[block];
  for (const std::uint32_t block : blocks) ++users_[block];
  held = std::move(blocks);
}

bool BlockBook::overlaps(std::uint64_t user) const {
  const Blocks& mine = held_.at(user);
  return most_others(mine, mine) > 0;
}

std::optional<BlockBook::Blocks> BlockBook::better(std::uint64_t user) const {
  const Blocks& mine = held_.at(user);
  const std::uint32_t now = most_others(mine, mine);
  if (now == 0) return std::nullopt;
  Blocks other = least_used(static_cast<std::uint32_t>(mine.size()), mine);
  if (most_others(other, mine) >= now) return std::nullopt;
  return other;
}

BlockBook::Blocks BlockBook::least_used(std::uint32_t count, const Blocks& mine) const {
  Blocks blocks(users_.size());
  std::iota(blocks.begin(), blocks.end(), 0U);
  std::stable_sort(blocks.begin(), blocks.end(), [&](std::uint32_t one, std::uint32_t other) {
    return others_on(one, mine) < others_on(other, mine);
  });
  blocks.resize(std::min<std::size_t>(count, blocks.size()));
  std::sort(blocks.begin(), blocks.end());
  return blocks;
}

std::uint32_t BlockBook::most_others(const Blocks& blocks, const Blocks& mine) const {
  std::uint32_t most = 0;
  for (const std::uint32_t block : blocks) most = std::max(most, others_on(block, mine));
  return most;
}

std::uint32_t BlockBook::others_on(std::uint32_t block, const Blocks& mine) const {
  return users_[block] - (std::binary_search(mine.begin(), mine.end(), block) ? 1U : 0U);
}

}  // namespace gpulet::gpu

#include "gpu/sm_allocator.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

namespace gpulet::gpu {

namespace {

// The first `count` of the blocks in the order of their costs, ascending by number.
template <typename Cost>
SmAllocator::Blocks cheapest(SmAllocator::Blocks blocks, std::uint32_t count, const Cost& cost) {
  std::stable_sort(blocks.begin(), blocks.end(), [&cost](std::uint32_t one, std::uint32_t other) {
    return cost(one) < cost(other);
  });
  blocks.resize(std::min<std::size_t>(count, blocks.size()));
  std::sort(blocks.begin(), blocks.end());
  return blocks;
}

SmAllocator::Blocks first_blocks(std::uint32_t count) {
  SmAllocator::Blocks blocks(count);
  std::iota(blocks.begin(), blocks.end(), 0U);
  return blocks;
}

// The number of users on the most used of the blocks.
std::uint32_t most_used(const SmAllocator::Blocks& blocks,
                        const std::vector<std::uint32_t>& users) {
  std::uint32_t most = 0;
  for (const std::uint32_t block : blocks) most = std::max(most, users[block]);
  return most;
}

}  // namespace

std::uint64_t SmAllocator::add(std::uint32_t count, std::span<const std::uint64_t> replaced) {
  const std::uint64_t id = ++last_user_;
  User user;
  user.wanted = std::clamp(count, 1U, std::max(1U, count_));
  user.replaces.assign(replaced.begin(), replaced.end());
  if (!replaced.empty()) {
    const Counts users = users_except(id, false);
    user.blocks = cheapest(left_by(replaced), user.wanted,
                           [&users](std::uint32_t block) { return users[block]; });
  }
  if (user.blocks.empty()) user.blocks = least_used(id, user.wanted);
  users_.emplace(id, std::move(user));
  return id;
}

void SmAllocator::remove(std::uint64_t user) { users_.erase(user); }

void SmAllocator::move(std::uint64_t user, Blocks blocks) {
  users_.at(user).blocks = std::move(blocks);
}

std::uint32_t SmAllocator::shared_blocks(std::uint64_t user) const {
  const Blocks& blocks = users_.at(user).blocks;
  const Counts others = users_except(user, false);
  return static_cast<std::uint32_t>(std::count_if(
      blocks.begin(), blocks.end(), [&others](std::uint32_t block) { return others[block] > 0; }));
}

std::optional<SmAllocator::Blocks> SmAllocator::better(std::uint64_t user) const {
  const User& known = users_.at(user);
  const Counts others = users_except(user, false);
  Blocks blocks = known.blocks;
  Blocks quieter = least_used(user, static_cast<std::uint32_t>(blocks.size()));
  if (most_used(quieter, others) < most_used(blocks, others)) blocks = std::move(quieter);
  for (std::uint32_t block = 0; block < count_ && blocks.size() < known.wanted; ++block) {
    const auto place = std::lower_bound(blocks.begin(), blocks.end(), block);
    const bool has_it = place != blocks.end() && *place == block;
    if (others[block] == 0 && !has_it) blocks.insert(place, block);
  }
  if (blocks == known.blocks) return std::nullopt;
  return blocks;
}

SmAllocator::Counts SmAllocator::users_except(std::uint64_t except, bool lasting) const {
  Counts counts(count_, 0);
  for (const auto& [id, user] : users_) {
    if (id == except || (lasting && is_replaced(id))) continue;
    for (const std::uint32_t block : user.blocks) ++counts[block];
  }
  return counts;
}

bool SmAllocator::is_replaced(std::uint64_t user) const {
  return std::any_of(users_.begin(), users_.end(), [user](const auto& other) {
    const auto& replaces = other.second.replaces;
    return std::find(replaces.begin(), replaces.end(), user) != replaces.end();
  });
}

SmAllocator::Blocks SmAllocator::left_by(std::span<const std::uint64_t> replaced) const {
  Counts kept(count_, 0);
  for (const auto& [id, user] : users_) {
    if (std::find(replaced.begin(), replaced.end(), id) != replaced.end()) continue;
    for (const std::uint32_t block : user.blocks) ++kept[block];
  }
  Blocks blocks = first_blocks(count_);
  std::erase_if(blocks, [&kept](std::uint32_t block) { return kept[block] > 0; });
  return blocks;
}

SmAllocator::Blocks SmAllocator::least_used(std::uint64_t user, std::uint32_t count) const {
  const Counts all = users_except(user, false);
  const Counts lasting = users_except(user, true);
  return cheapest(first_blocks(count_), count,
                  [&](std::uint32_t block) { return std::pair(lasting[block], all[block]); });
}

}  // namespace gpulet::gpu

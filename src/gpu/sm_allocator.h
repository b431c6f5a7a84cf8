// SmAllocator: assigns the SM blocks of a GPU to users. Pure: no driver, no threads, no clock.
//
// A user gets the blocks that the fewest others use, the lowest first, so blocks of its own where
// there is room. A user that replaces others starts on free blocks and on theirs alone, even if
// these are fewer than it wants, and grows when blocks become free: so sizes shrink first and grow
// then, and users that do not change keep their blocks to themselves. A user that replaces none
// gets all of its blocks at once. Without room it overlaps, first with users that are replaced.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace gpulet::gpu {

class SmAllocator {
 public:
  using Blocks = std::vector<std::uint32_t>;  // ascending, each once

  explicit SmAllocator(std::uint32_t blocks) : count_(blocks) {}

  // Allocates up to `count` blocks, at least one and at most all. `replaced`: the present users
  // that will be removed once this one serves. Returns the user's id.
  std::uint64_t add(std::uint32_t count, std::span<const std::uint64_t> replaced = {});
  void remove(std::uint64_t user);

  [[nodiscard]] const Blocks& blocks_of(std::uint64_t user) const { return users_.at(user).blocks; }
  [[nodiscard]] bool overlaps(std::uint64_t user) const { return shared_blocks(user) > 0; }
  // The number of its blocks that others use as well.
  [[nodiscard]] std::uint32_t shared_blocks(std::uint64_t user) const;
  // Blocks that are better for the user; empty where it should stay. Better means fewer other users
  // on its most shared block, because that block determines its speed, or more blocks of its own up
  // to the number that it wants. Moves that follow this rule terminate. Where all sizes fit, every
  // user has all of its blocks, and no users overlap, after each has moved once.
  [[nodiscard]] std::optional<Blocks> better(std::uint64_t user) const;
  void move(std::uint64_t user, Blocks blocks);

 private:
  struct User {
    Blocks blocks;
    std::uint32_t wanted = 0;
    std::vector<std::uint64_t> replaces;
  };
  using Counts = std::vector<std::uint32_t>;  // users by block

  // The users of each block, without `except`; `lasting`: those alone that nobody replaces.
  [[nodiscard]] Counts users_except(std::uint64_t except, bool lasting) const;
  [[nodiscard]] bool is_replaced(std::uint64_t user) const;
  // The free blocks and those whose users are all in `replaced`.
  [[nodiscard]] Blocks left_by(std::span<const std::uint64_t> replaced) const;
  // The `count` blocks with the fewest users except `user`; lasting ones count first.
  [[nodiscard]] Blocks least_used(std::uint64_t user, std::uint32_t count) const;

  const std::uint32_t count_;
  std::map<std::uint64_t, User> users_;
  std::uint64_t last_user_ = 0;
};

}  // namespace gpulet::gpu

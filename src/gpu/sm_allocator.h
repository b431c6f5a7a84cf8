// SmAllocator: assigns the SM blocks of a GPU to users. Pure: no driver, no threads, no clock.
//
// A user gets the blocks that the fewest others use, the lowest first, so blocks of its own where
// there is room. Without room, users overlap as evenly as possible.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace gpulet::gpu {

class SmAllocator {
 public:
  using Blocks = std::vector<std::uint32_t>;  // ascending, each once

  explicit SmAllocator(std::uint32_t blocks) : users_(blocks, 0) {}

  // Allocates `count` blocks, at least one and at most all. Returns the user's id.
  std::uint64_t add(std::uint32_t count);
  void remove(std::uint64_t user);

  [[nodiscard]] const Blocks& blocks_of(std::uint64_t user) const { return held_.at(user); }
  [[nodiscard]] bool overlaps(std::uint64_t user) const;
  // Blocks that are better for the user; empty where it should stay. Better means fewer other users
  // on its most shared block, because that block determines its speed. Moves that follow this rule
  // terminate. Where all sizes fit, no users overlap after each has moved once.
  [[nodiscard]] std::optional<Blocks> better(std::uint64_t user) const;
  void move(std::uint64_t user, Blocks blocks);

 private:
  // The `count` least used blocks, without counting the user of `mine`.
  [[nodiscard]] Blocks least_used(std::uint32_t count, const Blocks& mine) const;
  // The number of other users on the most shared block; `mine` are the user's own blocks.
  [[nodiscard]] std::uint32_t most_others(const Blocks& blocks, const Blocks& mine) const;
  [[nodiscard]] std::uint32_t others_on(std::uint32_t block, const Blocks& mine) const;

  std::vector<std::uint32_t> users_;  // by block
  std::map<std::uint64_t, Blocks> held_;
  std::uint64_t last_user_ = 0;
};

}  // namespace gpulet::gpu

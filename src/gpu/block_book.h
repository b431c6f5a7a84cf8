// BlockBook: which blocks of a GPU's SMs are whose. Decides only: no driver, no threads, no clock,
// and the same answers for the same calls.
//
// A user gets the blocks that the fewest others use, the lowest first: its own where there is room.
// Where there is not, users overlap, as evenly as that gives.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace gpulet::gpu {

class BlockBook {
 public:
  using Blocks = std::vector<std::uint32_t>;  // ascending, each once

  explicit BlockBook(std::uint32_t blocks) : users_(blocks, 0) {}

  // So many blocks, of those there are; at least one. Returns the user's number.
  std::uint64_t add(std::uint32_t count);
  void drop(std::uint64_t user);

  [[nodiscard]] const Blocks& blocks_of(std::uint64_t user) const { return held_.at(user); }
  [[nodiscard]] bool overlaps(std::uint64_t user) const;
  // Where the user had better be; nothing where it is well placed. Better is only what brings down
  // the number of others on the fullest of its blocks: that is the block that slows it down, and
  // users who all follow this come to rest. Where the sizes fit, those who overlap are alone once
  // each has moved.
  [[nodiscard]] std::optional<Blocks> better(std::uint64_t user) const;
  void move(std::uint64_t user, Blocks blocks);

 private:
  // The `count` blocks that the fewest use, `mine` not counted.
  [[nodiscard]] Blocks least_used(std::uint32_t count, const Blocks& mine) const;
  // On the fullest of those blocks, without one on each of `mine`.
  [[nodiscard]] std::uint32_t most_others(const Blocks& blocks, const Blocks& mine) const;
  [[nodiscard]] std::uint32_t others_on(std::uint32_t block, const Blocks& mine) const;

  std::vector<std::uint32_t> users_;  // by block
  std::map<std::uint64_t, Blocks> held_;
  std::uint64_t last_user_ = 0;
};

}  // namespace gpulet::gpu

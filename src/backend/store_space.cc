#include "backend/store_space.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

namespace gpulet::backend {
namespace {

// Sizes come from a peer: a sum must not wrap around.
std::uint64_t plus(std::uint64_t a, std::uint64_t b) {
  return a > std::numeric_limits<std::uint64_t>::max() - b
             ? std::numeric_limits<std::uint64_t>::max()
             : a + b;
}

std::uint64_t excess(std::uint64_t wanted, std::uint64_t available) {
  return wanted > available ? wanted - available : 0;
}

std::string in_bytes(std::uint64_t bytes) { return std::to_string(bytes) + " bytes"; }

Status no_space(const StoreSpace& space, std::uint64_t needed, std::uint64_t evictable) {
  auto message = "No space left on the disk: " + in_bytes(needed) + " are needed and " +
                 in_bytes(excess(space.free_bytes, space.promised_bytes)) + " are free, " +
                 in_bytes(evictable) + " more once unused model files are deleted; free some of " +
                 "the disk, or serve fewer models on this node";
  return {StatusCode::unavailable, std::move(message)};
}

Status over_limit(std::uint64_t most, std::uint64_t needed, std::uint64_t used) {
  return {StatusCode::unavailable,
          in_bytes(needed) + " are needed, and files in use take " + in_bytes(used) + " of the " +
              in_bytes(most) +
              " that \"model_store_mb\" allows; raise it, or serve fewer models on " + "this node"};
}

}  // namespace

Result<std::vector<std::size_t>> choose_evictions(const std::vector<StoredFile>& files,
                                                  const StoreSpace& space,
                                                  std::uint64_t needed_bytes) {
  std::vector<std::size_t> unused;
  std::uint64_t held = space.unfinished_bytes;
  std::uint64_t evictable = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    held = plus(held, files[i].bytes);
    if (files[i].used) continue;
    unused.push_back(i);
    evictable = plus(evictable, files[i].bytes);
  }
  const auto short_of_disk = excess(plus(needed_bytes, space.promised_bytes), space.free_bytes);
  const auto short_of_limit =
      space.most_bytes ? excess(plus(held, needed_bytes), *space.most_bytes) : 0;
  if (short_of_disk > evictable) return no_space(space, needed_bytes, evictable);
  if (short_of_limit > evictable)
    return over_limit(*space.most_bytes, needed_bytes, excess(held, evictable));

  std::stable_sort(unused.begin(), unused.end(), [&files](std::size_t a, std::size_t b) {
    return files[a].last_used_ns < files[b].last_used_ns;
  });
  const auto wanted = std::max(short_of_disk, short_of_limit);
  std::uint64_t freed = 0;
  std::size_t count = 0;
  while (freed < wanted) freed = plus(freed, files[unused[count++]].bytes);
  unused.resize(count);
  return unused;
}

}  // namespace gpulet::backend

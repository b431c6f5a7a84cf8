// StoreSpace: which files of a model store are deleted so that a new one has room. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "gpulet/core/status.h"

namespace gpulet::backend {

struct StoredFile {
  std::uint64_t bytes = 0;
  std::int64_t last_used_ns = 0;  // since any fixed moment
  bool used = false;              // a gpulet serves or loads it
};

struct StoreSpace {
  std::uint64_t free_bytes = 0;                  // on the disk
  std::uint64_t promised_bytes = 0;              // of free_bytes: for files that are being received
  std::uint64_t unfinished_bytes = 0;            // whole size of the files that are being received
  std::optional<std::uint64_t> most_bytes = {};  // that the store may hold; nothing: no limit
};

// The numbers of the files to delete before `needed_bytes` are written, in the order in which to
// delete them: unused ones, the least recently used first, and no more than necessary. Fails with
// unavailable where deleting all of them is not enough; then none should be deleted.
[[nodiscard]] Result<std::vector<std::size_t>> choose_evictions(
    const std::vector<StoredFile>& files, const StoreSpace& space, std::uint64_t needed_bytes);

}  // namespace gpulet::backend

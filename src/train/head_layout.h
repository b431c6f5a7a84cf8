// Where the possibilities of the heads lie: one head after the other, as in learn/choices.h, and
// side by side in rows of the widest head's width, as tensors are computed. Values; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace gpulet::train {

struct HeadLayout {
  // REQUIRES: at least one head.
  explicit HeadLayout(std::span<const std::uint32_t> head_sizes)
      : sizes(head_sizes.begin(), head_sizes.end()),
        possibilities(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0})),
        widest(*std::max_element(sizes.begin(), sizes.end())) {}

  [[nodiscard]] std::size_t heads() const { return sizes.size(); }
  // Of one row, with what heads are filled up with.
  [[nodiscard]] std::size_t padded() const { return sizes.size() * widest; }

  // Calls take(at, padded_at) for every possibility, in order.
  template <typename Take>
  void for_each(const Take& take) const {
    std::size_t at = 0;
    for (std::size_t head = 0; head < sizes.size(); ++head) {
      for (std::size_t of_head = 0; of_head < sizes[head]; ++of_head)
        take(at++, head * widest + of_head);
    }
  }

  std::vector<std::uint32_t> sizes;
  std::size_t possibilities;
  std::size_t widest;
};

}  // namespace gpulet::train

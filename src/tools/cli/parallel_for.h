// parallel_for: runs the iterations of a loop on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace gpulet::tools {

// Calls body(0) to body(count - 1) on up to `threads` threads, including the caller's, and returns
// when all calls are done. REQUIRES: the body is thread-safe and does not throw.
inline void parallel_for(unsigned threads, std::size_t count,
                         const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t at = next++; at < count; at = next++) body(at);
  };
  std::vector<std::jthread> others;
  for (std::size_t other = 1; other < std::min<std::size_t>(threads, count); ++other)
    others.emplace_back(work);
  work();
}

}  // namespace gpulet::tools

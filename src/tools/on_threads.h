// A loop whose bodies are taken by whichever of several threads is free, the caller's among them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace gpulet::tools {

// Calls body(0) to body(count - 1) and returns when all are done. REQUIRES: the body can be called
// from any thread, and does not throw.
inline void on_threads(unsigned threads, std::size_t count,
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

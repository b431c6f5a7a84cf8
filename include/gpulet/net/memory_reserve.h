// MemoryReserve: memory that a daemon gives up when the system has no more for it. What fails first
// is as likely a small allocation in the middle of something as a large buffer of a request. The
// reserve lets small allocations go on, while BufferPool refuses new buffers until it is renewed.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <new>

namespace gpulet::net {

// Replaces the new-handler of the process, so there is one. Reserves address space, which a limit
// (RLIMIT_AS) or a system without overcommitment counts; it touches no page. Any thread.
class MemoryReserve {
 public:
  static constexpr std::size_t kBlocks = 4;  // each failed allocation costs one
  static constexpr std::size_t kBlockBytes = 8U << 20U;

  MemoryReserve();
  ~MemoryReserve();
  MemoryReserve(const MemoryReserve&) = delete;
  MemoryReserve& operator=(const MemoryReserve&) = delete;

  // An allocation failed since the reserve was whole.
  [[nodiscard]] bool spent() const;
  // Takes back what was given up. Returns whether the reserve is whole. One thread at a time.
  bool renew();

 private:
  static void on_failed_allocation();
  [[nodiscard]] bool give_up_one();

  static std::atomic<MemoryReserve*> installed_;  // a new-handler has no argument

  std::array<std::atomic<void*>, kBlocks> blocks_{};
  std::new_handler previous_ = nullptr;
};

}  // namespace gpulet::net

#include <sys/mman.h>

#include <algorithm>

#include "gpulet/net/buffer_pool.h"

namespace gpulet::net {

std::atomic<MemoryReserve*> MemoryReserve::installed_ = nullptr;

MemoryReserve::MemoryReserve() {
  renew();
  installed_ = this;
  previous_ = std::set_new_handler(&on_failed_allocation);
}

MemoryReserve::~MemoryReserve() {
  std::set_new_handler(previous_);
  installed_ = nullptr;
  while (give_up_one()) {
  }
}

// Returning means that the allocation is tried again.
void MemoryReserve::on_failed_allocation() {
  MemoryReserve* const reserve = installed_;
  if (reserve == nullptr || !reserve->give_up_one()) throw std::bad_alloc();
}

bool MemoryReserve::give_up_one() {
  return std::any_of(blocks_.begin(), blocks_.end(), [](std::atomic<void*>& block) {
    void* const memory = block.exchange(nullptr);
    return memory != nullptr && ::munmap(memory, kBlockBytes) == 0;
  });
}

bool MemoryReserve::spent() const {
  return std::any_of(blocks_.begin(), blocks_.end(),
                     [](const std::atomic<void*>& block) { return block.load() == nullptr; });
}

bool MemoryReserve::renew() {
  for (std::atomic<void*>& block : blocks_) {
    if (block.load() != nullptr) continue;
    void* const memory =
        ::mmap(nullptr, kBlockBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return false;
    block = memory;
  }
  return true;
}

}  // namespace gpulet::net

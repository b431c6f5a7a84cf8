#include "backend/slot_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

namespace gpulet::backend {
namespace {

constexpr std::uint32_t kMaxSlots = 64;  // bits of taken_

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes == 0 ? 1 : (bytes + page - 1) / page) * page;
}

Status no_memory(const std::string& what, std::size_t bytes) {
  return {StatusCode::unavailable, "cannot " + what + " " + std::to_string(bytes) +
                                       " bytes of shared memory: " + std::strerror(errno)};
}

}  // namespace

Result<FileDescriptor> SlotMemory::make_file() {
  FileDescriptor file(::memfd_create("gpulet-slots", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return no_memory("make a file of", 0);
  return file;
}

Result<std::shared_ptr<SlotMemory>> SlotMemory::create(FileDescriptor file, std::uint32_t slots,
                                                       std::size_t input_capacity,
                                                       std::size_t output_capacity) {
  constexpr auto kMaxCapacity =
      std::numeric_limits<std::size_t>::max() / (std::size_t{4} * kMaxSlots);
  if (slots == 0 || slots > kMaxSlots || input_capacity > kMaxCapacity ||
      output_capacity > kMaxCapacity) {
    return Status(StatusCode::invalid, "shared memory has 1.." + std::to_string(kMaxSlots) +
                                           " slots; asked for " + std::to_string(slots) + " of " +
                                           std::to_string(input_capacity) + " and " +
                                           std::to_string(output_capacity) + " bytes");
  }
  const auto input_bytes = whole_pages(input_capacity);
  const auto output_bytes = whole_pages(output_capacity);
  const auto size = slots * (input_bytes + output_bytes);
  if (::ftruncate(file.get(), static_cast<off_t>(size)) != 0) return no_memory("reserve", size);
  // A proxy that shrank it, even before this, would make our own next touch of it a SIGBUS.
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
    return no_memory("seal", size);
  struct stat sealed {};
  if (::fstat(file.get(), &sealed) != 0) return no_memory("look at", size);
  if (static_cast<std::size_t>(sealed.st_size) != size) {
    return Status(StatusCode::unavailable, "the proxy changed the size of its shared memory to " +
                                               std::to_string(sealed.st_size) + " bytes");
  }
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) return no_memory("map", size);
  return std::shared_ptr<SlotMemory>(
      new SlotMemory({static_cast<std::byte*>(address), size}, slots, input_bytes, output_bytes));
}

SlotMemory::SlotMemory(std::span<std::byte> bytes, std::uint32_t slots, std::size_t input_bytes,
                       std::size_t output_bytes)
    : bytes_(bytes), slots_(slots), input_bytes_(input_bytes), output_bytes_(output_bytes) {}

SlotMemory::~SlotMemory() { ::munmap(bytes_.data(), bytes_.size()); }

std::optional<MutableBytes> SlotMemory::take(std::size_t bytes) {
  if (bytes > input_bytes_) return std::nullopt;
  const auto taken = taken_.load(std::memory_order_acquire);
  for (std::uint32_t slot = 0; slot < slots_; ++slot) {
    const auto bit = std::uint64_t{1} << slot;
    if ((taken & bit) != 0) continue;
    taken_.fetch_or(bit, std::memory_order_relaxed);
    auto* begin = bytes_.data() + slot * (input_bytes_ + output_bytes_);
    // Release: the next taker must not see the slot free before what was done with it is done.
    std::shared_ptr<void> owner(static_cast<void*>(begin), [self = shared_from_this(), bit](void*) {
      self->taken_.fetch_and(~bit, std::memory_order_release);
    });
    return MutableBytes(std::move(owner), {begin, bytes});
  }
  return std::nullopt;
}

std::optional<SlotMemory::Slot> SlotMemory::slot_of(const Bytes& input) const {
  const auto* begin = input.view().data();
  if (begin < bytes_.data() || begin >= bytes_.data() + bytes_.size()) return std::nullopt;
  const auto offset = static_cast<std::size_t>(begin - bytes_.data());
  if (offset % (input_bytes_ + output_bytes_) != 0 || input.size() > input_bytes_)
    return std::nullopt;
  return Slot{offset, offset + input_bytes_, output_bytes_};
}

Bytes SlotMemory::outputs_beside(const Bytes& input, std::size_t bytes) const {
  const auto offset = static_cast<std::size_t>(input.view().data() - bytes_.data()) + input_bytes_;
  return {std::make_shared<const Bytes>(input), bytes_.subspan(offset, bytes)};
}

}  // namespace gpulet::backend

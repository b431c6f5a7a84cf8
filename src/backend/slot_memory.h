// SlotMemory: memory shared with one proxy, cut into slots of one input and one output area, page
// aligned. Its file is made, empty, before the proxy is started; its size is known when the proxy
// gets its models.
//
// A slot is taken as MutableBytes over its input area and is free again when the last copy of that,
// and of every Bytes made from it, is gone; those keep the mapping alive, whatever becomes of the
// process. Taking is for one thread, the release is safe on any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "backend/file_descriptor.h"
#include "gpulet/core/bytes.h"
#include "gpulet/core/status.h"

namespace gpulet::backend {

class SlotMemory : public std::enable_shared_from_this<SlotMemory> {
 public:
  struct Slot {
    std::uint64_t input_offset = 0;
    std::uint64_t output_offset = 0;
    std::uint64_t output_capacity = 0;
  };

  // Fails with unavailable.
  [[nodiscard]] static Result<FileDescriptor> make_file();

  // Gives the file its size, for good. slots: 1..64. Fails with invalid, or unavailable where the
  // system gives no such memory or somebody else has changed the file.
  [[nodiscard]] static Result<std::shared_ptr<SlotMemory>> create(FileDescriptor file,
                                                                  std::uint32_t slots,
                                                                  std::size_t input_capacity,
                                                                  std::size_t output_capacity);
  ~SlotMemory();
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;

  [[nodiscard]] std::size_t size() const { return bytes_.size(); }

  // Empty where no slot is free or `bytes` does not fit one.
  [[nodiscard]] std::optional<MutableBytes> take(std::size_t bytes);
  // The slot whose input area these bytes begin; empty where they lie elsewhere.
  [[nodiscard]] std::optional<Slot> slot_of(const Bytes& input) const;
  // The first `bytes` of the output area beside `input`; keeps `input`, and so the slot. REQUIRES:
  // slot_of(input), bytes within its output_capacity.
  [[nodiscard]] Bytes outputs_beside(const Bytes& input, std::size_t bytes) const;

 private:
  SlotMemory(std::span<std::byte> bytes, std::uint32_t slots, std::size_t input_bytes,
             std::size_t output_bytes);

  const std::span<std::byte> bytes_;
  const std::uint32_t slots_;
  const std::size_t input_bytes_;  // of a slot, whole pages
  const std::size_t output_bytes_;
  std::atomic<std::uint64_t> taken_{0};  // a bit per slot
};

}  // namespace gpulet::backend

// Bytes: an immutable view of tensor bytes that keeps their memory alive.
//
// Tensors are received once and then only pointed at: a request's input, its slices inside a batch
// and a reply's outputs all share the memory they arrived in. Copying a Bytes copies a pointer.
// Safe to hand to another thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace gpulet {

// Every key and metric in megabytes (`_mb`) counts in this unit.
inline constexpr std::uint64_t kBytesPerMegabyte = std::uint64_t{1} << 20U;

class Bytes {
 public:
  Bytes() = default;
  Bytes(std::shared_ptr<const void> owner, std::span<const std::byte> view)
      : owner_(std::move(owner)), view_(view) {}

  // Takes the vector and owns it.
  [[nodiscard]] static Bytes own(std::vector<std::byte> bytes) {
    auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
    const std::span<const std::byte> view(*owner);
    return {std::move(owner), view};
  }

  [[nodiscard]] std::span<const std::byte> view() const { return view_; }
  [[nodiscard]] std::size_t size() const { return view_.size(); }
  [[nodiscard]] bool empty() const { return view_.empty(); }

  // REQUIRES: offset + length <= size(); throws std::out_of_range otherwise (a bug of the caller).
  [[nodiscard]] Bytes slice(std::size_t offset, std::size_t length) const {
    if (offset > size() || length > size() - offset)
      throw std::out_of_range("Bytes::slice beyond the end");
    return {owner_, view_.subspan(offset, length)};
  }

 private:
  std::shared_ptr<const void> owner_;
  std::span<const std::byte> view_;
};

// Memory to receive into; becomes a Bytes once filled.
class MutableBytes {
 public:
  MutableBytes() = default;
  MutableBytes(std::shared_ptr<void> owner, std::span<std::byte> view)
      : owner_(std::move(owner)), view_(view) {}

  [[nodiscard]] std::span<std::byte> view() const { return view_; }
  [[nodiscard]] std::size_t size() const { return view_.size(); }
  // REQUIRES: as Bytes::slice().
  [[nodiscard]] MutableBytes slice(std::size_t offset, std::size_t length) const {
    if (offset > size() || length > size() - offset)
      throw std::out_of_range("MutableBytes::slice beyond the end");
    return {owner_, view_.subspan(offset, length)};
  }
  [[nodiscard]] Bytes freeze() const& { return {owner_, view_}; }
  [[nodiscard]] Bytes freeze() && { return {std::move(owner_), view_}; }

 private:
  std::shared_ptr<void> owner_;
  std::span<std::byte> view_;
};

}  // namespace gpulet

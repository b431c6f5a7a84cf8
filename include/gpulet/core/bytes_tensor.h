// BYTES tensors, whose elements are strings of any bytes and any length. An element is its length,
// 32 bits little-endian, and then its bytes; a tensor is its elements one after another, as in the
// Open Inference Protocol.
//
// Clients send and receive just that. Inside, a tensor is a slot: its elements, then zeros up to
// TensorSpec::max_bytes. So a request of a model has one size, and a slot of zeros holds empty
// elements. Slots and elements may come from a peer: these functions trust nothing in them. Pure;
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet {

// The slot of a tensor that is declared without max_bytes: this many bytes for each element with
// its length, at most kMostSlotBytes.
inline constexpr std::size_t kDefaultElementBytes = 256;
[[nodiscard]] std::size_t default_slot_bytes(const std::vector<std::int64_t>& shape);

// The number of elements. REQUIRES: byte_size(spec).ok().
[[nodiscard]] std::size_t element_count(const TensorSpec& spec);

[[nodiscard]] bool has_bytes_tensor(const std::vector<TensorSpec>& specs);

// Fails with invalid, naming the tensor, where a TorchScript model is declared with one: only ONNX
// has strings.
[[nodiscard]] Status check_torchscript_types(const std::vector<TensorSpec>& specs);

// REQUIRES: the element has less than 4 GiB.
void append_element(std::string& elements, std::string_view element);

// Where the first `count` elements of `bytes` end. Empty: they exceed `bytes`.
[[nodiscard]] std::optional<std::size_t> elements_end(std::span<const std::byte> bytes,
                                                      std::size_t count);
// The first `count` elements, which refer to `bytes`. Empty: they exceed `bytes`.
[[nodiscard]] std::optional<std::vector<std::string_view>> elements_in(
    std::span<const std::byte> bytes, std::size_t count);

// The tensors of one request as slots, from tensors as a client sends them, one after another.
// Tensors that are slots already stay as they are. Fails with invalid, naming the tensor and its
// limit.
[[nodiscard]] Result<Bytes> to_slots(const std::vector<TensorSpec>& specs, const Bytes& tensors);

// The slot without its zeros: what a client receives. Fails with internal, naming the tensor, where
// the bytes are no slot of `spec`.
[[nodiscard]] Result<Bytes> without_padding(const TensorSpec& spec, const Bytes& slot);

}  // namespace gpulet

#include <algorithm>
#include <utility>

#include "gpulet/core/tensor.h"

namespace gpulet {
namespace {

constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);

bool is_bytes(const TensorSpec& spec) { return spec.type == DataType::bytes; }

// The length of the first element; empty: `bytes` ends before the element does.
std::optional<std::size_t> first_length(std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) return std::nullopt;
  std::size_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length |= std::to_integer<std::size_t>(bytes[i]) << (8 * i);
  if (length > bytes.size() - kLengthBytes) return std::nullopt;
  return length;
}

// Calls `take` with each of the first `count` elements. Returns where they end; empty: `bytes` ends
// before that.
template <typename Take>
std::optional<std::size_t> visit_elements(std::span<const std::byte> bytes, std::size_t count,
                                          const Take& take) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto rest = bytes.subspan(at);
    const std::optional<std::size_t> length = first_length(rest);
    if (!length) return std::nullopt;
    take(rest.subspan(kLengthBytes, *length));
    at += kLengthBytes + *length;
  }
  return at;
}

// Whether `bytes` are the elements of the tensor, followed by zeros only.
bool is_slot(const TensorSpec& spec, std::span<const std::byte> bytes) {
  const std::optional<std::size_t> end = elements_end(bytes, element_count(spec));
  return end && std::all_of(bytes.begin() + static_cast<std::ptrdiff_t>(*end), bytes.end(),
                            [](std::byte value) { return value == std::byte{0}; });
}

Status invalid(const TensorSpec& spec, const std::string& what) {
  return {StatusCode::invalid, "tensor " + spec.name + ": " + what};
}

// The size of the tensor at the start of `bytes`, which further tensors may follow.
Result<std::size_t> size_of_first(const TensorSpec& spec, std::span<const std::byte> bytes) {
  if (!is_bytes(spec)) {
    const std::size_t size = byte_size(spec).value();
    if (size <= bytes.size()) return size;
    return invalid(spec, "has " + std::to_string(size) + " bytes; the request has " +
                             std::to_string(bytes.size()) + " for it");
  }
  const std::size_t count = element_count(spec);
  const std::optional<std::size_t> size = elements_end(bytes, count);
  if (!size) {
    return invalid(spec, "its bytes are not " + std::to_string(count) +
                             " elements; send a length of 32 bits, little-endian, before the bytes "
                             "of each");
  }
  if (*size > spec.max_bytes) {
    return invalid(spec, "has " + std::to_string(*size) +
                             " bytes with the lengths of its elements; max_bytes of the model's "
                             "entry allows " +
                             std::to_string(spec.max_bytes));
  }
  return *size;
}

// Fails unless `rest` are the slots of the tensors. REQUIRES: it has their size.
Status check_slots(const std::vector<TensorSpec>& specs, std::span<const std::byte> rest) {
  for (const TensorSpec& spec : specs) {
    const std::size_t size = byte_size(spec).value();
    if (is_bytes(spec) && !is_slot(spec, rest.first(size))) {
      return invalid(spec, "its slot of " + std::to_string(size) + " bytes is not " +
                               std::to_string(element_count(spec)) + " elements and zeros");
    }
    rest = rest.subspan(size);
  }
  return {};
}

}  // namespace

std::size_t default_slot_bytes(const std::vector<std::int64_t>& shape) {
  std::size_t bytes = kDefaultElementBytes;
  for (const std::int64_t dimension : shape) {
    const auto size = static_cast<std::size_t>(std::max<std::int64_t>(dimension, 1));
    if (size > kMostSlotBytes / bytes) return kMostSlotBytes;
    bytes *= size;
  }
  return bytes;
}

std::size_t element_count(const TensorSpec& spec) {
  std::size_t count = 1;
  for (const std::int64_t dimension : spec.shape) count *= static_cast<std::size_t>(dimension);
  return count;
}

bool has_bytes_tensor(const std::vector<TensorSpec>& specs) {
  return std::any_of(specs.begin(), specs.end(), is_bytes);
}

Status check_torchscript_types(const std::vector<TensorSpec>& specs) {
  const auto found = std::find_if(specs.begin(), specs.end(), is_bytes);
  if (found == specs.end()) return {};
  return invalid(*found,
                 "TorchScript models have no BYTES tensors; declare numbers, or export the model "
                 "as ONNX");
}

void append_element(std::string& elements, std::string_view element) {
  auto length = static_cast<std::uint32_t>(element.size());
  for (std::size_t i = 0; i < kLengthBytes; ++i, length >>= 8U)
    elements += static_cast<char>(length & 0xffU);
  elements += element;
}

std::optional<std::size_t> elements_end(std::span<const std::byte> bytes, std::size_t count) {
  return visit_elements(bytes, count, [](std::span<const std::byte>) {});
}

std::optional<std::vector<std::string_view>> elements_in(std::span<const std::byte> bytes,
                                                         std::size_t count) {
  std::vector<std::string_view> elements;
  const auto end = visit_elements(bytes, count, [&elements](std::span<const std::byte> element) {
    elements.emplace_back(reinterpret_cast<const char*>(element.data()), element.size());
  });
  if (!end) return std::nullopt;
  return elements;
}

Result<Bytes> to_slots(const std::vector<TensorSpec>& specs, const Bytes& tensors) {
  GPULET_TRY(const std::size_t total, byte_size(specs));
  // Tensors without padding have this size, too, if each fills its slot; then both forms are equal.
  if (tensors.size() == total) {
    if (Status status = check_slots(specs, tensors.view()); !status.ok()) return status;
    return tensors;
  }
  std::vector<std::byte> slots(total);
  std::span<const std::byte> rest = tensors.view();
  auto slot = slots.begin();
  for (const TensorSpec& spec : specs) {
    GPULET_TRY(const std::size_t size, size_of_first(spec, rest));
    std::copy_n(rest.begin(), size, slot);
    rest = rest.subspan(size);
    slot += static_cast<std::ptrdiff_t>(byte_size(spec).value());
  }
  if (!rest.empty()) {
    return Status(StatusCode::invalid, "the request has " + std::to_string(rest.size()) +
                                           " bytes beyond those of its tensors");
  }
  return Bytes::own(std::move(slots));
}

Result<Bytes> without_padding(const TensorSpec& spec, const Bytes& slot) {
  const std::optional<std::size_t> end = elements_end(slot.view(), element_count(spec));
  if (end) return slot.slice(0, *end);
  return Status(StatusCode::internal, "tensor " + spec.name + ": the model's process returned " +
                                          std::to_string(slot.size()) + " bytes that are not " +
                                          std::to_string(element_count(spec)) + " elements");
}

}  // namespace gpulet

// The type and shape of a tensor, and what a process needs to load a model. Shapes are for one
// request; a batch adds its dimension in front. Values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"

namespace gpulet {

enum class DataType : std::uint8_t {
  boolean = 1,
  uint8 = 2,
  int8 = 3,
  int16 = 4,
  int32 = 5,
  int64 = 6,
  fp16 = 7,
  bf16 = 8,
  fp32 = 9,
  fp64 = 10,
  bytes = 11,  // elements of any length (core/tensor.h)
};

// The name in configuration files and the Open Inference Protocol: "BOOL", "UINT8", "FP32", ...
[[nodiscard]] std::string_view to_string(DataType type);
[[nodiscard]] std::optional<DataType> parse_data_type(std::string_view name);
// The size of an element. BYTES: of an empty one, which is only its length.
[[nodiscard]] std::size_t byte_size(DataType type);

inline constexpr std::size_t kMostSlotBytes = 64U << 20U;

// Of an input that clients send as UINT8 and the model takes as numbers with fractions. The process
// of the model makes (x * scale - mean) / deviation of each x.
struct InputConversion {
  DataType type = DataType::fp32;  // that the model takes: FP32 or FP16
  // The order of an image: [height,width,channels] instead of [channels,height,width].
  bool from_channels_last = false;  // as clients send it
  bool to_channels_last = false;    // as the model takes it
  double scale = 1.0 / 255;
  // Each: one number for all channels, or one for each.
  std::vector<double> mean{0};
  std::vector<double> deviation{1};

  friend bool operator==(const InputConversion&, const InputConversion&) = default;
};
inline constexpr std::size_t kMostConvertedChannels = 1024;  // with numbers of their own

namespace image {

enum class Layout : std::uint8_t { nchw = 0, nhwc = 1 };

inline constexpr std::size_t kChannels = 3;             // red, green, blue
inline constexpr std::uint32_t kMostSidePixels = 4096;  // of a model's input
inline constexpr std::uint32_t kMostMegapixels = 64;    // of an encoded image

// How an encoded image becomes the input of a model: it is decoded to RGB, resized, cropped at its
// centre, and each pixel becomes (pixel - mean) * scale of its channel.
struct Preprocessing {
  std::uint32_t width = 0;  // of the input
  std::uint32_t height = 0;
  Layout layout = Layout::nchw;
  std::array<float, kChannels> mean{};  // in the units of pixels, which are 0 to 255
  std::array<float, kChannels> scale{1, 1, 1};
  DataType type = DataType::fp32;     // of the input: FP32, or UINT8 with neither mean nor scale
  std::uint32_t shorter_side = 0;     // of the image before the crop; 0: it just covers the input
  std::uint32_t max_megapixels = 16;  // of the encoded image: larger ones are not decoded

  friend bool operator==(const Preprocessing&, const Preprocessing&) = default;
};

// Fails with invalid, naming the member.
[[nodiscard]] Status check(const Preprocessing& preprocessing);
// All of it in one line: equal texts stand for equal values.
[[nodiscard]] std::string to_string(const Preprocessing& preprocessing);

}  // namespace image

// The values of an input where a program makes some itself, as for measurements.
struct ValueRange {
  double least = 0;
  double most = 0;  // at least `least`
  friend bool operator==(const ValueRange&, const ValueRange&) = default;
};

struct TensorSpec {
  std::string name;
  DataType type = DataType::fp32;
  std::vector<std::int64_t> shape;  // for one request; every dimension is at least 1
  std::size_t max_bytes = 0;        // of BYTES: the size of one request's slot; else 0
  // Of an input: how the model's process makes what the model takes of this tensor, which is the
  // one that clients send. At most one of them is set.
  std::optional<InputConversion> conversion{};  // of UINT8; executors convert it
  std::optional<image::Preprocessing> image{};  // of BYTES [1], an encoded image; decoded before
  std::optional<ValueRange> range{};            // of an input: of the samples of it; empty: any
  // The model has no batch dimension: `shape` is the whole tensor, which may be a scalar, and a
  // batch has one request. Either all tensors of a model are whole or none is.
  bool whole = false;

  friend bool operator==(const TensorSpec&, const TensorSpec&) = default;
};

// The bytes of one request's tensor, or of all tensors together; of BYTES: max_bytes. Fails with
// invalid on a dimension below 1, an overflow, or a slot that is too small or above kMostSlotBytes.
[[nodiscard]] Result<std::size_t> byte_size(const TensorSpec& spec);
[[nodiscard]] Result<std::size_t> byte_size(const std::vector<TensorSpec>& specs);

// "FP32[3,224,224]"
[[nodiscard]] std::string to_string(const TensorSpec& spec);

// Whether the tensors are those of a model without a batch dimension.
[[nodiscard]] bool are_whole(const std::vector<TensorSpec>& specs);
// The shape of the tensor that holds so many requests: with the batch in front unless it is whole.
[[nodiscard]] std::vector<std::int64_t> batch_shape(const TensorSpec& spec, std::int64_t requests);

// The numbers of a conversion for one channel: the model gets factor * x + offset.
struct ChannelConversion {
  double factor = 1;
  double offset = 0;
};
// Those of all channels, or one element for all numbers alike. REQUIRES: check_conversion().
[[nodiscard]] std::vector<ChannelConversion> channels_of(const InputConversion& conversion);

// Fails with invalid unless the conversion of `spec` is one: of UINT8 to FP32 or FP16, of an image
// if it has channels or another order, and with numbers that the type has. REQUIRES: it has one.
[[nodiscard]] Status check_conversion(const TensorSpec& spec);

// What the model takes for an input, or for all of them, where clients send `spec`: the same tensor
// unless it has a conversion or is an encoded image.
[[nodiscard]] TensorSpec model_input(const TensorSpec& spec);
[[nodiscard]] std::vector<TensorSpec> model_inputs(const std::vector<TensorSpec>& specs);

// The inverse: what clients send for an input that the model takes, with that conversion, whose
// type is set. Fails as check_conversion().
[[nodiscard]] Result<TensorSpec> sent_input(const TensorSpec& taken, InputConversion conversion);

// Whether a request for one side fits the other: what a process makes of it may differ.
[[nodiscard]] bool take_same_requests(const std::vector<TensorSpec>& left,
                                      const std::vector<TensorSpec>& right);

// Everything about how the model's input is made of `spec`, in one line: equal texts are equal
// conversions and images. Empty: the model takes it as it is.
[[nodiscard]] std::string conversion_text(const TensorSpec& spec);

// The floating-point format of a model's computation.
enum class Precision : std::uint8_t {
  full = 0,  // as in the file
  half = 1,  // IEEE half; devices without such arithmetic (the CPU) keep full precision
  bfloat16 = 2,
};

// The enumerator's name.
[[nodiscard]] constexpr std::string_view to_string(Precision precision) {
  if (precision == Precision::half) return "half";
  return precision == Precision::bfloat16 ? "bfloat16" : "full";
}

struct Numerics {
  Precision precision = Precision::full;
  bool channels_last = false;  // memory layout of images
  // Loading compares the outputs of a sample batch with those of the unchanged file. The model is
  // refused where the largest difference in an output, as a fraction of its largest magnitude,
  // exceeds this.
  double largest_error = 0.02;

  friend bool operator==(const Numerics&, const Numerics&) = default;
};

// ---- bytes tensor
//
// BYTES tensors, whose elements are strings of any bytes and any length. An element is its length,
// 32 bits little-endian, and then its bytes; a tensor is its elements one after another, as in the
// Open Inference Protocol.
//
// Clients send and receive just that. Inside, a tensor is a slot: its elements, then zeros up to
// TensorSpec::max_bytes. So a request of a model has one size, and a slot of zeros holds empty
// elements. Slots and elements may come from a peer: these functions trust nothing in them. Pure;
// any thread.

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

// A model that a process serves, from the backend's order to the executor.
struct ModelToLoad {
  std::string name;
  std::string file;  // its path; need not be UTF-8
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  std::uint32_t max_batch = 1;  // loading warms up batches up to this size
  std::uint32_t variant = 0;    // as reported by an earlier load of this file; 0: not known
  Numerics numerics{};
  // The batch sizes that loading must prepare, each in 1..max_batch; empty: those that the executor
  // chooses. It may prepare others later.
  std::vector<std::uint32_t> planned_batches{};
};

}  // namespace gpulet

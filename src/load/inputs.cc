#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "gpulet/base/files.h"
#include "gpulet/base/random.h"
#include "gpulet/base/text.h"
#include "gpulet/core/bucket.h"
#include "gpulet/core/tensor.h"
#include "gpulet/image/image.h"
#include "gpulet/load/client.h"

namespace gpulet::load {
namespace {

// Random inputs of one model: varied, but small enough not to evict the processor's caches.
constexpr std::size_t kPoolBytes = 8U << 20U;
constexpr std::size_t kMaxPoolRequests = 64;
constexpr std::size_t kMaxDynamicRequests = 512;  // of different lengths
constexpr std::size_t kMaxImageRequests = 8;      // each takes a while to make

template <typename Number>
void append(std::vector<std::byte>& bytes, Number value) {
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof(value));
  std::memcpy(bytes.data() + at, &value, sizeof(value));
}

void append_random(std::vector<std::byte>& bytes, DataType type, Random& random) {
  switch (type) {
    case DataType::boolean:
      return append(bytes, static_cast<std::uint8_t>(random.below(2)));
    case DataType::uint8:
      return append(bytes, static_cast<std::uint8_t>(random.below(256)));
    case DataType::int8:
      return append(bytes, static_cast<std::int8_t>(random.below(128)));
    case DataType::int16:
      return append(bytes, static_cast<std::int16_t>(random.below(1000)));
    case DataType::int32:
      return append(bytes, static_cast<std::int32_t>(random.below(1000)));
    case DataType::int64:
      return append(bytes, static_cast<std::int64_t>(random.below(1000)));
    case DataType::fp16:  // in [0.5, 1): 10 random bits of mantissa
      return append(bytes, static_cast<std::uint16_t>(0x3800U | random.below(1U << 10U)));
    case DataType::bf16:  // in [0.5, 1): 7 random bits of mantissa
      return append(bytes, static_cast<std::uint16_t>(0x3F00U | random.below(1U << 7U)));
    case DataType::fp32:  // 24 bits: rounding never gives 1
      return append(bytes, static_cast<float>(random.next() >> 40U) * 0x1.0p-24F);
    case DataType::fp64:
      return append(bytes, random.uniform());
    case DataType::bytes:
      break;  // append_words
  }
}

// The bits of the half-precision number nearest to zero of those between which `value` lies; the
// largest one where it is too large.
std::uint16_t half_of(float value) {
  constexpr std::uint32_t kLargest = 0x7BFF;
  constexpr std::uint32_t kRebias = (127 - 15) << 10U;
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t magnitude = (bits & 0x7FFFFFFFU) >> 13U;
  if (magnitude <= kRebias) return static_cast<std::uint16_t>(sign);  // below the normal numbers
  return static_cast<std::uint16_t>(sign | std::min(magnitude - kRebias, kLargest));
}

std::uint16_t brain_of(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<std::uint16_t>(bits >> 16U);
}

double fraction_in(const config::ValueRange& range, Random& random) {
  return range.least + (range.most - range.least) * random.uniform();
}

// REQUIRES: the range fits the type.
std::int64_t integer_in(const config::ValueRange& range, Random& random) {
  const auto least = static_cast<std::int64_t>(range.least);
  const auto count = static_cast<std::uint64_t>(static_cast<std::int64_t>(range.most) - least) + 1;
  return least + static_cast<std::int64_t>(random.below(count));
}

// REQUIRES: the range fits the type.
void append_in_range(std::vector<std::byte>& bytes, DataType type, const config::ValueRange& range,
                     Random& random) {
  switch (type) {
    case DataType::boolean:
    case DataType::uint8:
      return append(bytes, static_cast<std::uint8_t>(integer_in(range, random)));
    case DataType::int8:
      return append(bytes, static_cast<std::int8_t>(integer_in(range, random)));
    case DataType::int16:
      return append(bytes, static_cast<std::int16_t>(integer_in(range, random)));
    case DataType::int32:
      return append(bytes, static_cast<std::int32_t>(integer_in(range, random)));
    case DataType::int64:
      return append(bytes, integer_in(range, random));
    case DataType::fp16:
      return append(bytes, half_of(static_cast<float>(fraction_in(range, random))));
    case DataType::bf16:
      return append(bytes, brain_of(static_cast<float>(fraction_in(range, random))));
    case DataType::fp32:
      return append(bytes, static_cast<float>(fraction_in(range, random)));
    case DataType::fp64:
      return append(bytes, fraction_in(range, random));
    case DataType::bytes:
      break;  // it has no range
  }
}

Status check_ranges(const std::vector<TensorSpec>& inputs, const ValueRanges& ranges) {
  for (const auto& [name, range] : ranges) {
    const auto input =
        std::find_if(inputs.begin(), inputs.end(),
                     [&wanted = name](const TensorSpec& one) { return one.name == wanted; });
    if (input == inputs.end()) {
      return {StatusCode::invalid,
              fmt::format("a range is for the input {}, which the model does not have; correct the "
                          "name",
                          name)};
    }
    if (Status fits = config::check_range(input->type, range); !fits.ok()) return fits.within(name);
  }
  return {};
}

// A slot whose elements are a few digits each, or none where the slot has no room: text to most
// models, and a number to those that parse one.
void append_words(std::vector<std::byte>& bytes, const TensorSpec& spec, Random& random) {
  constexpr std::size_t kLongestWord = 9;  // fits 32 bits
  const std::size_t count = element_count(spec);
  const std::size_t room = std::min(kLongestWord, spec.max_bytes / count - byte_size(spec.type));
  std::string elements;
  for (std::size_t i = 0; i < count; ++i) {
    std::string word(room == 0 ? 0 : 1 + random.below(room), '0');
    for (char& digit : word) digit = static_cast<char>('0' + static_cast<int>(random.below(10)));
    append_element(elements, word);
  }
  elements.resize(spec.max_bytes, '\0');
  const auto slot = std::as_bytes(std::span(elements));
  bytes.insert(bytes.end(), slot.begin(), slot.end());
}

// A slot with an image.
Status append_image(std::vector<std::byte>& bytes, const TensorSpec& spec, Random& random) {
  const std::size_t room = spec.max_bytes - byte_size(spec.type);
  GPULET_TRY(const std::string image, image::sample_jpeg(random.next(), room));
  if (image.size() > room) {
    return {StatusCode::invalid,
            fmt::format("input {}: a sample image has {} bytes, and max_bytes of the model's entry "
                        "allows {}",
                        spec.name, image.size(), room)};
  }
  std::string elements;
  append_element(elements, image);
  elements.resize(spec.max_bytes, '\0');
  const auto slot = std::as_bytes(std::span(elements));
  bytes.insert(bytes.end(), slot.begin(), slot.end());
  return {};
}

bool has_image(const std::vector<TensorSpec>& inputs) {
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const TensorSpec& input) { return input.image.has_value(); });
}

// The server declares the inputs; larger requests fit in no frame.
constexpr std::size_t kMaxRequestBytes = 1U << 30U;

Result<std::size_t> request_size(const std::vector<TensorSpec>& inputs) {
  Result<std::size_t> bytes = byte_size(inputs);
  if (bytes.ok() && (bytes.value() == 0 || bytes.value() > kMaxRequestBytes)) {
    return Status(
        StatusCode::invalid,
        fmt::format("a request of the model must have 1 to {} bytes; the server declares {}",
                    kMaxRequestBytes, bytes.value()));
  }
  return bytes;
}

Result<std::vector<std::int64_t>> read_labels(const std::filesystem::path& file) {
  std::ifstream stream(file);
  if (!stream)
    return Status(StatusCode::not_found,
                  file.string() + ": cannot be opened for reading; check the path");
  std::vector<std::int64_t> labels;
  std::string line;
  for (std::size_t number = 1; std::getline(stream, line); ++number) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    const std::optional<std::int64_t> label = parse_number<std::int64_t>(line);
    if (!label) {
      return Status(StatusCode::invalid,
                    fmt::format(R"({}:{}: expected one integer on every line; was "{}")",
                                file.string(), number, line));
    }
    labels.push_back(*label);
  }
  return labels;
}

// Maps half precision to an integer of the same order; the sign bit reverses the order.
std::int32_t ordered_half(std::uint16_t bits) {
  const auto magnitude = static_cast<std::int32_t>(bits & 0x7FFFU);
  return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

template <typename Number, typename Key = std::identity>
std::optional<std::int64_t> arg_max_of(std::span<const std::byte> bytes, Key key = {}) {
  const std::size_t count = bytes.size() / sizeof(Number);
  if (count == 0) return std::nullopt;
  std::size_t best = 0;
  auto best_key = decltype(key(Number{})){};
  for (std::size_t i = 0; i < count; ++i) {
    Number value{};
    std::memcpy(&value, bytes.data() + i * sizeof(Number), sizeof(Number));
    if (i == 0 || key(value) > best_key) {
      best = i;
      best_key = key(value);
    }
  }
  return static_cast<std::int64_t>(best);
}

}  // namespace

Result<InputPool> random_inputs(const std::vector<TensorSpec>& inputs, std::uint64_t seed,
                                const std::vector<std::int64_t>& lengths,
                                const ValueRanges& ranges) {
  if (Status fit = check_ranges(inputs, ranges); !fit.ok()) return fit;
  const bool dynamic = is_dynamic(inputs);
  if (dynamic && lengths.empty()) {
    return Status(
        StatusCode::invalid,
        "the model has a dimension of any size; write \"lengths\":[8,128] in the workload");
  }
  const std::int64_t longest =
      lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  GPULET_TRY(const std::size_t request_bytes, request_size(with_length(inputs, longest)));
  const std::size_t most = dynamic             ? kMaxDynamicRequests
                           : has_image(inputs) ? kMaxImageRequests
                                               : kMaxPoolRequests;
  const std::size_t count = std::clamp<std::size_t>(kPoolBytes / request_bytes, 1, most);
  Random random(seed);
  InputPool pool;
  if (!dynamic) pool.inputs.push_back(inputs);
  for (std::size_t i = 0; i < count; ++i) {
    if (dynamic) pool.inputs.push_back(with_length(inputs, lengths[random.below(lengths.size())]));
    std::vector<std::byte> bytes;
    bytes.reserve(request_bytes);
    for (const TensorSpec& input : pool.inputs.back()) {
      if (input.image) {
        if (Status made = append_image(bytes, input, random); !made.ok()) return made;
        continue;
      }
      if (input.type == DataType::bytes) {
        append_words(bytes, input, random);
        continue;
      }
      const std::size_t end = bytes.size() + byte_size(input).value();
      const auto range = ranges.find(input.name);
      while (bytes.size() < end) {
        if (range == ranges.end()) {
          append_random(bytes, input.type, random);
        } else {
          append_in_range(bytes, input.type, range->second, random);
        }
      }
    }
    pool.requests.push_back(Bytes::own(std::move(bytes)));
  }
  return pool;
}

Result<InputPool> read_inputs(const config::WorkloadInput& input,
                              const std::vector<TensorSpec>& inputs) {
  if (is_dynamic(inputs)) {
    return Status(StatusCode::invalid,
                  input.file.string() +
                      ": a file of raw inputs has no shapes, but the model has a dimension of any "
                      "size; take \"input\" out to send random ones");
  }
  GPULET_TRY(const std::size_t request_bytes, request_size(inputs));
  GPULET_TRY(std::vector<std::byte> content, read_file(input.file));
  const std::size_t size = content.size();
  const std::size_t step = request_bytes;
  if (size == 0 || size % step != 0) {
    return Status(
        StatusCode::invalid,
        fmt::format("{}: must hold whole requests of {} bytes each, as the model declares; "
                    "holds {} bytes",
                    input.file.string(), step, size));
  }
  InputPool pool;
  pool.inputs.push_back(inputs);
  const Bytes all = Bytes::own(std::move(content));
  for (std::size_t at = 0; at < size; at += step) pool.requests.push_back(all.slice(at, step));
  if (!input.labels) return pool;

  GPULET_TRY(std::vector<std::int64_t> labels, read_labels(*input.labels));
  if (labels.size() != pool.requests.size()) {
    return Status(
        StatusCode::invalid,
        fmt::format("{}: needs one label per request of {}; holds {} labels for {} requests",
                    input.labels->string(), input.file.string(), labels.size(),
                    pool.requests.size()));
  }
  pool.labels = std::move(labels);
  return pool;
}

std::optional<std::int64_t> arg_max(DataType type, const Bytes& tensor) {
  switch (type) {
    case DataType::boolean:
    case DataType::bytes:
      return std::nullopt;
    case DataType::uint8:
      return arg_max_of<std::uint8_t>(tensor.view());
    case DataType::int8:
      return arg_max_of<std::int8_t>(tensor.view());
    case DataType::int16:
      return arg_max_of<std::int16_t>(tensor.view());
    case DataType::int32:
      return arg_max_of<std::int32_t>(tensor.view());
    case DataType::int64:
      return arg_max_of<std::int64_t>(tensor.view());
    case DataType::fp16:
    case DataType::bf16:
      return arg_max_of<std::uint16_t>(tensor.view(), ordered_half);
    case DataType::fp32:
      return arg_max_of<float>(tensor.view());
    case DataType::fp64:
      return arg_max_of<double>(tensor.view());
  }
  return std::nullopt;
}

}  // namespace gpulet::load

#include "executor/row_check.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

namespace gpulet::executor {
namespace {

// Rows 0 and 1 are compared; row 2 is only a neighbour.
constexpr std::uint32_t kRows = kSampleRows;
constexpr std::uint32_t kCompared = 2;
constexpr double kToleranceOf16Bits = 0.05;
// Differences that are only rounding where an output is almost zero.
constexpr double kRounding = 1e-6;

// ---- floating-point numbers of 16 bits

std::uint16_t to_bf16(float number) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(number) >> 16U);
}
float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

// Of magnitudes below 65504; truncates, and tiny ones become 0.
std::uint16_t to_fp16(float number) {
  const auto bits = std::bit_cast<std::uint32_t>(number);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const auto exponent = static_cast<std::int32_t>((bits >> 23U) & 0xffU) - 112;
  if (exponent <= 0) return static_cast<std::uint16_t>(sign);
  return static_cast<std::uint16_t>(sign | (static_cast<std::uint32_t>(exponent) << 10U) |
                                    ((bits >> 13U) & 0x3ffU));
}
double from_fp16(std::uint16_t bits) {
  const double sign = (bits & 0x8000U) != 0 ? -1 : 1;
  const auto exponent = static_cast<int>((bits >> 10U) & 0x1fU);
  const auto fraction = static_cast<int>(bits & 0x3ffU);
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

// ---- samples

template <typename Number>
void store(std::byte* to, Number number) {
  std::memcpy(to, &number, sizeof number);
}
template <typename Number>
Number load_from(const std::byte* from) {
  Number number{};
  std::memcpy(&number, from, sizeof number);
  return number;
}

// At least 0 and below 1, without a pattern.
double scattered(std::uint32_t row, std::size_t element) {
  std::uint64_t bits = (element + 1) * 0x9e3779b97f4a7c15U + row * 0xd1b54a32d192ed03U;
  bits = (bits ^ (bits >> 30U)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27U)) * 0x94d049bb133111ebU;
  return static_cast<double>((bits ^ (bits >> 31U)) >> 11U) * 0x1p-53;
}

// The rows rise in their first elements, so that no order of rows hides that a model sorts them.
double float_of(std::uint32_t row, std::size_t element, SampleContent content) {
  if (element == 0) return 0.2 + 0.25 * row;
  const double number = scattered(row, element);
  return content == SampleContent::varied ? (row + 1) * (number - 0.5) : number;
}

// Of an input that is converted.
std::byte byte_of(std::uint32_t row, std::size_t element) {
  constexpr double kBytes = 256;
  return std::byte{
      static_cast<std::uint8_t>(float_of(row, element, SampleContent::careful) * kBytes)};
}

std::uint32_t whole_of(std::uint32_t row, std::size_t element, SampleContent content) {
  if (content == SampleContent::plain) return 0;
  const auto number = static_cast<std::uint32_t>((row + element) % kRows);
  return content == SampleContent::varied ? number : std::min(number, 1U);
}

// The numbers of a tensor with a range.
double float_in(const ValueRange& range, std::uint32_t row, std::size_t element,
                SampleContent content) {
  if (content == SampleContent::plain) return range.least;
  return range.least + (range.most - range.least) * scattered(row, element);
}

std::int64_t whole_in(const ValueRange& range, std::uint32_t row, std::size_t element,
                      SampleContent content) {
  constexpr double kExact = 9007199254740992.0;  // and a peer may have sent the range
  const auto least = static_cast<std::int64_t>(std::clamp(range.least, -kExact, kExact));
  const auto most = static_cast<std::int64_t>(std::clamp(range.most, -kExact, kExact));
  return std::min<std::int64_t>(most, least + whole_of(row, element, content));
}

void store_element(DataType type, std::byte* to, double number, std::int64_t whole) {
  switch (type) {
    case DataType::fp16:
      return store(to, to_fp16(static_cast<float>(number)));
    case DataType::bf16:
      return store(to, to_bf16(static_cast<float>(number)));
    case DataType::fp32:
      return store(to, static_cast<float>(number));
    case DataType::fp64:
      return store(to, number);
    case DataType::boolean:
      return store(to, static_cast<std::uint8_t>(whole != 0));
    case DataType::int16:
      return store(to, static_cast<std::int16_t>(whole));
    case DataType::int32:
      return store(to, static_cast<std::int32_t>(whole));
    case DataType::int64:
      return store(to, static_cast<std::int64_t>(whole));
    default:
      return store(to, static_cast<std::uint8_t>(whole));
  }
}

std::string string_slot(const TensorSpec& spec, std::uint32_t row, SampleContent content) {
  const std::size_t elements = element_count(spec);
  const bool fits = spec.max_bytes / elements > byte_size(spec.type);
  std::string slot;
  for (std::size_t i = 0; i < elements; ++i)
    append_element(slot, fits ? std::to_string(whole_of(row, i, content)) : "");
  slot.resize(spec.max_bytes, '\0');
  return slot;
}

void append_row(const TensorSpec& spec, std::uint32_t row, SampleContent content,
                std::vector<std::byte>& batch) {
  if (spec.type == DataType::bytes) {
    const std::string slot = string_slot(spec, row, content);
    const auto bytes = std::as_bytes(std::span(slot));
    batch.insert(batch.end(), bytes.begin(), bytes.end());
    return;
  }
  const std::size_t elements = element_count(spec);
  const std::size_t size = byte_size(spec.type);
  const std::size_t begin = batch.size();
  batch.resize(begin + elements * size);
  if (spec.conversion) {
    // The model takes them as numbers with fractions.
    for (std::size_t i = 0; i < elements; ++i) batch[begin + i] = byte_of(row, i);
    return;
  }
  for (std::size_t i = 0; i < elements; ++i) {
    std::byte* const to = batch.data() + begin + i * size;
    if (spec.range) {
      store_element(spec.type, to, float_in(*spec.range, row, i, content),
                    whole_in(*spec.range, row, i, content));
    } else {
      store_element(spec.type, to, float_of(row, i, content), whole_of(row, i, content));
    }
  }
}

// ---- comparing

bool is_float(DataType type) { return type >= DataType::fp16 && type <= DataType::fp64; }

double float_at(DataType type, const std::byte* from) {
  switch (type) {
    case DataType::fp16:
      return from_fp16(load_from<std::uint16_t>(from));
    case DataType::bf16:
      return from_bf16(load_from<std::uint16_t>(from));
    case DataType::fp32:
      return load_from<float>(from);
    default:
      return load_from<double>(from);
  }
}

bool close_floats(DataType type, std::span<const std::byte> left, std::span<const std::byte> right,
                  double tolerance) {
  const std::size_t size = byte_size(type);
  double largest = 0;
  double difference = 0;
  for (std::size_t at = 0; at < left.size(); at += size) {
    const double one = float_at(type, left.data() + at);
    const double other = float_at(type, right.data() + at);
    if (std::isnan(one) && std::isnan(other)) continue;
    if (!std::isfinite(one) || !std::isfinite(other)) {
      if (one != other) return false;  // also where one of them is not a number
      continue;
    }
    largest = std::max({largest, std::fabs(one), std::fabs(other)});
    difference = std::max(difference, std::fabs(one - other));
  }
  return difference <= std::max(tolerance * largest, kRounding);
}

// Quantised numbers may be rounded to the next one.
template <typename Number>
bool close_small(std::span<const std::byte> left, std::span<const std::byte> right) {
  for (std::size_t at = 0; at < left.size(); ++at) {
    const auto one = static_cast<Number>(left[at]);
    const auto other = static_cast<Number>(right[at]);
    if (std::max(one, other) - std::min(one, other) > 1) return false;
  }
  return true;
}

std::span<const std::byte> row_of(std::span<const std::byte> outputs, std::size_t begin,
                                  std::size_t size, std::size_t row) {
  return outputs.subspan(begin + row * size, size);
}

constexpr const char* kOneByOne = R"("max_batch" to 1 (gpulet serve: --max-batch 1))";

Status refused(const TensorSpec& output, const std::string& what) {
  return {StatusCode::invalid, "output '" + output.name + "' " + what};
}

std::vector<std::size_t> sizes_of(const std::vector<TensorSpec>& specs) {
  std::vector<std::size_t> sizes;
  sizes.reserve(specs.size());
  for (const TensorSpec& spec : specs) sizes.push_back(byte_size(spec).value());
  return sizes;
}

// Starts with rows 1 and 0, then 0, 1 and 2, and ends without an order.
std::vector<std::uint32_t> rows_of(std::uint32_t count, std::uint32_t check) {
  std::vector<std::uint32_t> rows(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t scatter = static_cast<std::uint32_t>(scattered(check, i) * kRows);
    rows[i] = i < kRows ? i : scatter;
  }
  if (check % 2 == 0 && count >= kCompared) std::swap(rows[0], rows[1]);
  return rows;
}

}  // namespace

std::vector<std::byte> sample_batch(const std::vector<TensorSpec>& inputs,
                                    std::span<const std::uint32_t> rows, SampleContent content) {
  std::vector<std::byte> batch;
  for (const TensorSpec& spec : inputs) {
    std::array<std::vector<std::byte>, kRows> made;
    for (const std::uint32_t row : rows) {
      std::vector<std::byte>& bytes = made.at(row);
      if (bytes.empty()) append_row(spec, row, content, bytes);
      batch.insert(batch.end(), bytes.begin(), bytes.end());
    }
  }
  return batch;
}

Status takes_one_only(const Status& failure) {
  if (failure.code() != StatusCode::invalid) return failure;
  return {StatusCode::invalid,
          failure.message() + "; it runs batches of 1: set " + kOneByOne +
              ", or export it with a first dimension of any size in every operation"};
}

RowCheck::RowCheck(const std::vector<TensorSpec>& inputs, const std::vector<TensorSpec>& outputs,
                   double tolerance, Run run)
    : inputs_(inputs),
      outputs_(outputs),
      tolerance_(tolerance),
      run_(std::move(run)),
      output_sizes_(sizes_of(outputs)),
      random_(outputs.size(), false) {}

Status RowCheck::run_alone() {
  alone_.clear();
  for (std::uint32_t row = 0; row < kCompared; ++row) {
    GPULET_TRY(auto outputs, run_(1, sample_batch(inputs_, {{row}}, content_), 0));
    alone_.push_back(std::move(outputs));
  }
  return {};
}

Status RowCheck::begin() {
  Status status;
  for (const auto content : {SampleContent::varied, SampleContent::careful, SampleContent::plain}) {
    content_ = content;
    status = run_alone();
    if (status.ok()) return status;
  }
  return status;
}

Status RowCheck::check(std::uint32_t count) {
  const std::vector<std::uint32_t> rows = rows_of(count, checks_++);
  while (true) {
    const std::vector<std::byte> input = sample_batch(inputs_, rows, content_);
    const auto outputs = run_(count, input, 0);
    if (outputs.ok()) return compare(count, rows, input, outputs.value());
    if (content_ == SampleContent::plain) return takes_one_only(outputs.status());
    // A neighbour's content may be at fault.
    content_ = SampleContent::plain;
    if (Status alone = run_alone(); !alone.ok()) return alone;
  }
}

bool RowCheck::same(std::size_t output, std::span<const std::byte> left,
                    std::span<const std::byte> right) const {
  const DataType type = outputs_[output].type;
  if (std::equal(left.begin(), left.end(), right.begin(), right.end())) return true;
  if (type == DataType::int8) return close_small<std::int8_t>(left, right);
  if (type == DataType::uint8) return close_small<std::uint8_t>(left, right);
  if (!is_float(type)) return false;
  const bool short_type = type == DataType::fp16 || type == DataType::bf16;
  return close_floats(type, left, right,
                      short_type ? std::max(tolerance_, kToleranceOf16Bits) : tolerance_);
}

Status RowCheck::compare(std::uint32_t count, std::span<const std::uint32_t> rows,
                         std::span<const std::byte> input, std::span<const std::byte> outputs) {
  std::size_t begin = 0;
  std::size_t begin_alone = 0;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const std::size_t size = output_sizes_[i];
    bool independent = true;
    for (std::size_t row = 0; row < rows.size(); ++row) {
      if (rows[row] >= kCompared) continue;
      independent = independent && same(i, row_of(outputs, begin, size, row),
                                        row_of(alone_[rows[row]], begin_alone, size, 0));
    }
    if (!independent && !random_[i]) {
      GPULET_TRY(const auto again, run_(count, input, 1));
      const auto tensor = outputs.subspan(begin, count * size);
      random_[i] = !same(i, tensor, std::span(again).subspan(begin, count * size));
      if (!random_[i]) {
        return refused(outputs_[i],
                       "of a request is another one in a batch of " + std::to_string(count) +
                           " than alone: the rows of the model depend on each other, so that one "
                           "client's input would change another client's answer; set " +
                           kOneByOne + ", or export a model that computes each row by itself");
      }
    }
    begin += count * size;
    begin_alone += size;
  }
  return {};
}

Status RowCheck::check_repeats() {
  GPULET_TRY(const auto again, run_(1, sample_batch(inputs_, {{0U}}, content_), 0));
  std::size_t begin = 0;
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const std::size_t size = output_sizes_[i];
    if (!same(i, row_of(alone_[0], begin, size, 0), row_of(again, begin, size, 0))) {
      return refused(
          outputs_[i],
          "differs between two equal batches: the model keeps what earlier batches left, "
          "as in training, or returns memory that it did not write, so that a client "
          "would receive what belongs to another one; export it for inference, with "
          "outputs that follow from its inputs alone");
    }
    begin += size;
  }
  return {};
}

}  // namespace gpulet::executor

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "gpulet/image/image.h"

namespace gpulet::image {
namespace {

// ---- where the crop lies

// One direction of an image that is resized and then cropped.
struct Direction {
  std::uint32_t source = 0;   // pixels of the image
  std::uint64_t resized = 0;  // pixels that these become
  std::uint64_t first = 0;    // of the crop
  std::uint32_t count = 0;
};

// As torchvision crops: the odd pixel goes where rounding to even puts it.
Direction direction(std::uint32_t source, std::uint64_t resized, std::uint32_t count) {
  const double margin = static_cast<double>(resized - count) / 2;
  return {source, resized, static_cast<std::uint64_t>(std::nearbyint(margin)), count};
}

std::uint64_t scaled(std::uint64_t length, std::uint64_t factor, std::uint64_t divisor) {
  return length * factor / divisor;
}

struct Placement {
  Direction horizontal;
  Direction vertical;
};

Placement place(const RgbImage& image, const Preprocessing& to) {
  // The shorter side gets its length exactly; the other one keeps the aspect ratio.
  std::uint64_t width = 0;
  std::uint64_t height = 0;
  const std::uint64_t wanted_width = to.shorter_side > 0 ? to.shorter_side : to.width;
  const std::uint64_t wanted_height = to.shorter_side > 0 ? to.shorter_side : to.height;
  if (wanted_width * image.height >= wanted_height * image.width) {
    width = wanted_width;
    height = std::max(wanted_height, scaled(wanted_width, image.height, image.width));
  } else {
    height = wanted_height;
    width = std::max(wanted_width, scaled(wanted_height, image.width, image.height));
  }
  return {direction(image.width, width, to.width), direction(image.height, height, to.height)};
}

// ---- weights
//
// The weights, the order of the directions and the roundings are those of Pillow, so that the
// result has its pixels.

constexpr int kPrecisionBits = 32 - 8 - 2;
constexpr double kOne = 1 << kPrecisionBits;

// The source pixels of each pixel of the crop, in one direction.
struct Weights {
  struct Span {
    std::size_t first = 0;
    std::size_t count = 0;
    std::size_t weights = 0;  // where they begin
  };
  std::vector<Span> pixels;
  std::vector<std::int32_t> weights;  // parts of kOne
};

// The triangle is as wide as a pixel of the coarser image.
Weights weights_of(const Direction& direction) {
  const double scale =
      static_cast<double>(direction.source) / static_cast<double>(direction.resized);
  const double support = std::max(scale, 1.0);
  Weights result;
  result.pixels.reserve(direction.count);
  std::vector<double> exact;
  for (std::uint32_t i = 0; i < direction.count; ++i) {
    const double centre = (static_cast<double>(direction.first + i) + 0.5) * scale;
    const auto first = static_cast<std::int64_t>(std::max(centre - support + 0.5, 0.0));
    const auto end =
        std::min<std::int64_t>(static_cast<std::int64_t>(centre + support + 0.5), direction.source);
    exact.clear();
    double sum = 0;
    for (std::int64_t at = first; at < end; ++at) {
      const double distance = std::abs((static_cast<double>(at) - centre + 0.5) * (1 / support));
      exact.push_back(std::max(1 - distance, 0.0));
      sum += exact.back();
    }
    result.pixels.push_back({static_cast<std::size_t>(first), exact.size(), result.weights.size()});
    for (const double weight : exact)
      result.weights.push_back(static_cast<std::int32_t>(0.5 + weight / sum * kOne));
  }
  return result;
}

std::uint8_t to_byte(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kPrecisionBits, 0, 255));
}

constexpr std::int32_t kHalf = 1 << (kPrecisionBits - 1);

// ---- the two directions

struct Rows {
  std::size_t first = 0;  // of the image
  std::size_t count = 0;
  std::vector<std::uint8_t> pixels{};  // of the crop's width
};

// A direction that keeps its length has weights that change nothing.
Rows narrowed(const RgbImage& image, const Weights& columns, const Weights& rows) {
  const Weights::Span& last = rows.pixels.back();
  Rows result{rows.pixels.front().first, 0};
  result.count = last.first + last.count - result.first;
  const std::size_t row_bytes = std::size_t{image.width} * kChannels;
  result.pixels.resize(result.count * columns.pixels.size() * kChannels);
  std::uint8_t* to = result.pixels.data();
  for (std::size_t y = 0; y < result.count; ++y) {
    const std::uint8_t* const row = image.pixels.data() + (result.first + y) * row_bytes;
    for (const Weights::Span& span : columns.pixels) {
      std::array<std::int32_t, kChannels> sums{kHalf, kHalf, kHalf};
      const std::uint8_t* pixel = row + span.first * kChannels;
      for (std::size_t i = 0; i < span.count; ++i) {
        const std::int32_t weight = columns.weights[span.weights + i];
        for (std::int32_t& sum : sums) sum += *pixel++ * weight;
      }
      for (const std::int32_t sum : sums) *to++ = to_byte(sum);
    }
  }
  return result;
}

// `row`: of as many bytes as those of `rows`.
void shorten(const Rows& rows, const Weights& weights, std::size_t y, std::span<std::uint8_t> row) {
  const Weights::Span& span = weights.pixels[y];
  const std::uint8_t* const first = rows.pixels.data() + (span.first - rows.first) * row.size();
  for (std::size_t x = 0; x < row.size(); ++x) {
    std::int32_t sum = kHalf;
    for (std::size_t i = 0; i < span.count; ++i)
      sum += first[i * row.size() + x] * weights.weights[span.weights + i];
    row[x] = to_byte(sum);
  }
}

// ---- the tensor

// Writes pixels one after another, each channel where the layout has it.
template <typename Number>
class TensorWriter {
 public:
  TensorWriter(const Preprocessing& preprocessing, std::span<std::byte> tensor)
      : tensor_(tensor.data()) {
    const bool planes = preprocessing.layout == Layout::nchw;
    const std::size_t pixels = std::size_t{preprocessing.width} * preprocessing.height;
    channel_step_ = planes ? pixels : 1;
    pixel_step_ = planes ? 1 : kChannels;
    for (std::size_t channel = 0; channel < kChannels; ++channel) {
      for (std::size_t value = 0; value < kValues; ++value)
        values_[channel][value] =
            static_cast<Number>((static_cast<float>(value) - preprocessing.mean[channel]) *
                                preprocessing.scale[channel]);
    }
  }

  void write(std::span<const std::uint8_t> row) {
    for (std::size_t x = 0; x < row.size(); x += kChannels, at_ += pixel_step_) {
      for (std::size_t channel = 0; channel < kChannels; ++channel) {
        const Number value = values_[channel][row[x + channel]];
        std::memcpy(tensor_ + (at_ + channel * channel_step_) * sizeof(Number), &value,
                    sizeof(Number));
      }
    }
  }

 private:
  static constexpr std::size_t kValues = 256;

  std::byte* tensor_;
  std::size_t channel_step_ = 0;
  std::size_t pixel_step_ = 0;
  std::size_t at_ = 0;
  std::array<std::array<Number, kValues>, kChannels> values_{};
};

template <typename Number>
void write_tensor(const Rows& rows, const Weights& weights, const Preprocessing& preprocessing,
                  std::span<std::byte> tensor) {
  TensorWriter<Number> writer(preprocessing, tensor);
  std::vector<std::uint8_t> row(std::size_t{preprocessing.width} * kChannels);
  for (std::size_t y = 0; y < preprocessing.height; ++y) {
    shorten(rows, weights, y, row);
    writer.write(row);
  }
}

}  // namespace

void to_tensor(const RgbImage& image, const Preprocessing& preprocessing,
               std::span<std::byte> tensor) {
  const Placement placement = place(image, preprocessing);
  const Weights columns = weights_of(placement.horizontal);
  const Weights row_weights = weights_of(placement.vertical);
  const Rows rows = narrowed(image, columns, row_weights);
  preprocessing.type == DataType::uint8
      ? write_tensor<std::uint8_t>(rows, row_weights, preprocessing, tensor)
      : write_tensor<float>(rows, row_weights, preprocessing, tensor);
}

}  // namespace gpulet::image

#include "gpulet/serve/application_steps.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <numeric>
#include <span>
#include <utility>

namespace gpulet::serve {
namespace {

using Tensors = std::vector<Tensor>;

// Tensors begin anywhere in a payload: their numbers need not be aligned.
float float_at(const std::byte* numbers, std::size_t index) {
  float value = 0;
  std::memcpy(&value, numbers + index * sizeof(float), sizeof(float));
  return value;
}

template <typename Number>
Bytes bytes_of(const std::vector<Number>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(Number));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return Bytes::own(std::move(bytes));
}

// The first of the largest; what is not a number counts as the smallest. `candidates`: none is all.
std::size_t best_of(const std::byte* numbers, std::size_t count,
                    std::span<const std::uint32_t> candidates) {
  constexpr float kLeast = -std::numeric_limits<float>::infinity();
  std::size_t best = candidates.empty() ? 0 : candidates[0];
  float highest = kLeast;
  const std::size_t number = candidates.empty() ? count : candidates.size();
  for (std::size_t i = 0; i < number; ++i) {
    const std::size_t at = candidates.empty() ? i : candidates[i];
    const float value = float_at(numbers, at);
    if (!(value > highest)) continue;
    highest = value;
    best = at;
  }
  return best;
}

Tensors run(const config::SelectStep& step, const Tensors& inputs) {
  const Tensor& rows = inputs[0];
  const Tensor& scores = inputs[1];
  const auto count = static_cast<std::size_t>(rows.spec.shape[0]);
  const std::size_t classes =
      scores.spec.shape.size() == 2 ? static_cast<std::size_t>(scores.spec.shape[1]) : 1;
  std::vector<std::pair<float, std::size_t>> best(count);  // score and class of each row
  for (std::size_t row = 0; row < count; ++row) {
    const std::byte* const own = scores.bytes.view().data() + row * classes * sizeof(float);
    const std::size_t at = best_of(own, classes, step.classes);
    const float score = float_at(own, at);
    best[row] = {std::isnan(score) ? -std::numeric_limits<float>::infinity() : score, at};
  }
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::partial_sort(order.begin(), order.begin() + step.count, order.end(),
                    [&best](std::size_t a, std::size_t b) {
                      return best[a].first != best[b].first ? best[a].first > best[b].first : a < b;
                    });
  const std::size_t row_bytes = rows.bytes.size() / count;
  std::vector<std::byte> chosen;
  std::vector<float> chosen_scores;
  std::vector<std::int64_t> chosen_classes;
  for (std::size_t i = 0; i < step.count; ++i) {
    const auto row = rows.bytes.view().subspan(order[i] * row_bytes, row_bytes);
    chosen.insert(chosen.end(), row.begin(), row.end());
    chosen_scores.push_back(best[order[i]].first);
    chosen_classes.push_back(static_cast<std::int64_t>(best[order[i]].second));
  }
  TensorSpec spec = rows.spec;
  spec.name = "rows";
  spec.shape[0] = step.count;
  return {{spec, Bytes::own(std::move(chosen))},
          {{"scores", DataType::fp32, {step.count}}, bytes_of(chosen_scores)},
          {{"classes", DataType::int64, {step.count}}, bytes_of(chosen_classes)}};
}

// From the first pixel that the box touches to the one after the last.
std::pair<std::size_t, std::size_t> touched(float from, float to, std::int64_t size) {
  const auto inside = [](float part) { return part > 0 ? std::min(part, 1.0F) : 0.0F; };
  const auto length = static_cast<float>(size);
  const auto first =
      std::min(static_cast<std::int64_t>(std::floor(inside(from) * length)), size - 1);
  const auto end =
      std::clamp(static_cast<std::int64_t>(std::ceil(inside(to) * length)), first + 1, size);
  return {static_cast<std::size_t>(first), static_cast<std::size_t>(end)};
}

Tensors run(const config::CropStep& /*step*/, const Tensors& inputs) {
  const Tensor& image = inputs[0];
  const std::byte* const box = inputs[1].bytes.view().data();
  const std::int64_t channels = image.spec.shape[0];
  const auto height = static_cast<std::size_t>(image.spec.shape[1]);
  const auto width = static_cast<std::size_t>(image.spec.shape[2]);
  const auto [top, bottom] = touched(float_at(box, 0), float_at(box, 2), image.spec.shape[1]);
  const auto [left, right] = touched(float_at(box, 1), float_at(box, 3), image.spec.shape[2]);
  const std::size_t element = byte_size(image.spec.type);
  const std::size_t row_bytes = (right - left) * element;
  std::vector<std::byte> pixels(static_cast<std::size_t>(channels) * (bottom - top) * row_bytes);
  std::byte* to = pixels.data();
  for (std::size_t channel = 0; channel < static_cast<std::size_t>(channels); ++channel) {
    for (std::size_t y = top; y < bottom; ++y, to += row_bytes) {
      const std::size_t at = ((channel * height + y) * width + left) * element;
      std::memcpy(to, image.bytes.view().data() + at, row_bytes);
    }
  }
  return {{{"image",
            image.spec.type,
            {channels, static_cast<std::int64_t>(bottom - top),
             static_cast<std::int64_t>(right - left)}},
           Bytes::own(std::move(pixels))}};
}

// Where one row or column of the result lies among those of the original.
struct Neighbours {
  std::size_t before = 0;
  std::size_t after = 0;
  float weight_after = 0;
};

std::vector<Neighbours> neighbours(std::size_t from, std::size_t to) {
  std::vector<Neighbours> places(to);
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  for (std::size_t i = 0; i < to; ++i) {
    const float centre = std::max(0.0F, scale * (static_cast<float>(i) + 0.5F) - 0.5F);
    const std::size_t before = std::min(static_cast<std::size_t>(centre), from - 1);
    places[i] = {before, std::min(before + 1, from - 1), centre - static_cast<float>(before)};
  }
  return places;
}

Tensors run(const config::ResizeStep& step, const Tensors& inputs) {
  const Tensor& image = inputs[0];
  const auto channels = static_cast<std::size_t>(image.spec.shape[0]);
  const auto height = static_cast<std::size_t>(image.spec.shape[1]);
  const auto width = static_cast<std::size_t>(image.spec.shape[2]);
  TensorSpec spec{"image", DataType::fp32, {image.spec.shape[0], step.height, step.width}};
  if (height == step.height && width == step.width) return {{std::move(spec), image.bytes}};
  const std::vector<Neighbours> rows = neighbours(height, step.height);
  const std::vector<Neighbours> columns = neighbours(width, step.width);
  std::vector<float> pixels;
  pixels.reserve(channels * step.height * step.width);
  for (std::size_t channel = 0; channel < channels; ++channel) {
    for (const Neighbours& row : rows) {
      const std::byte* const plane = image.bytes.view().data();
      const std::byte* const above =
          plane + (channel * height + row.before) * width * sizeof(float);
      const std::byte* const below = plane + (channel * height + row.after) * width * sizeof(float);
      for (const Neighbours& column : columns) {
        const float right = column.weight_after;
        const float upper =
            (1 - right) * float_at(above, column.before) + right * float_at(above, column.after);
        const float lower =
            (1 - right) * float_at(below, column.before) + right * float_at(below, column.after);
        pixels.push_back((1 - row.weight_after) * upper + row.weight_after * lower);
      }
    }
  }
  return {{std::move(spec), bytes_of(pixels)}};
}

Tensors run(const config::ArgMaxStep& /*step*/, const Tensors& inputs) {
  std::vector<std::int64_t> indices;
  for (const Tensor& input : inputs) {
    const auto length = static_cast<std::size_t>(input.spec.shape.back());
    const std::span<const std::byte> numbers = input.bytes.view();
    const std::size_t row_bytes = length * sizeof(float);
    for (std::size_t at = 0; at < numbers.size(); at += row_bytes) {
      indices.push_back(static_cast<std::int64_t>(best_of(numbers.data() + at, length, {})));
    }
  }
  const auto count = static_cast<std::int64_t>(indices.size());
  return {{{"index", DataType::int64, {count}}, bytes_of(indices)}};
}

}  // namespace

Tensor item(const Tensor& tensor, std::uint32_t index) {
  const std::size_t bytes = tensor.bytes.size() / static_cast<std::size_t>(tensor.spec.shape[0]);
  return {config::item_of(tensor.spec), tensor.bytes.slice(index * bytes, bytes)};
}

Result<Tensors> run_step(const config::Step& step, const Tensors& inputs) {
  try {
    return std::visit([&inputs](const auto& one) { return run(one, inputs); }, step);
  } catch (const std::bad_alloc&) {
    return Status(StatusCode::internal, "no memory for the step's output");
  }
}

}  // namespace gpulet::serve

#include "config/encoded_image.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "config/description.h"

namespace gpulet::config {
namespace {

constexpr double kPixelValues = 255;
constexpr double kLargestFactor = 1e6;
constexpr std::size_t kMostInputs = 64;

using Channels = std::array<double, image::kChannels>;

constexpr std::array<std::string_view, 3> kKeysOfNumbers{"scale", "mean", "std"};
constexpr std::array<std::string_view, 2> kOtherKeys{"resize", "max_megapixels"};

Channels read_colours(const JsonCursor& input, std::string_view key, NumberRange range,
                      double otherwise) {
  Channels values;
  values.fill(otherwise);
  const std::optional<JsonCursor> at = input.find(key);
  if (!at) return values;
  const std::vector<double> numbers = read_channels(*at, range);
  if (numbers.size() == 1) {
    values.fill(numbers.front());
  } else if (numbers.size() == values.size()) {
    std::copy(numbers.begin(), numbers.end(), values.begin());
  } else if (at->valid()) {
    at->fail(fmt::format("an encoded image has {} channels; there are {} numbers", values.size(),
                         numbers.size()),
             "write one number, or three for red, green and blue: [0.5,0.5,0.5]");
  }
  return values;
}

std::uint32_t read_count(const JsonCursor& input, std::string_view key, std::uint32_t most,
                         std::uint32_t otherwise) {
  const std::optional<JsonCursor> at = input.find(key);
  return at ? at->count(1, most) : otherwise;
}

// (pixel * scale - mean) / std, as (pixel - mean) * scale of Preprocessing.
void read_normalisation(const JsonCursor& input, image::Preprocessing& image) {
  const NumberRange factors = up_to(kLargestFactor);
  const std::optional<JsonCursor> given = input.find("scale");
  const double scale = given ? given->number(factors) : 1 / kPixelValues;
  const Channels mean = read_colours(input, "mean", between(-kLargestFactor, kLargestFactor), 0);
  const Channels deviation = read_colours(input, "std", factors, 1);
  if (!input.valid() || image.type == DataType::uint8) return;
  for (std::size_t i = 0; i < image::kChannels; ++i) {
    image.mean[i] = static_cast<float>(mean[i] / scale);
    image.scale[i] = static_cast<float>(scale / deviation[i]);
  }
}

// Width and height of a declared tensor. False: it is no image of three channels.
bool take_sides(const TensorSpec& declared, image::Preprocessing& image) {
  if (declared.shape.size() != image::kChannels) return false;
  const bool planes = image.layout == image::Layout::nchw;
  const std::int64_t channels = declared.shape[planes ? 0 : 2];
  const std::int64_t height = declared.shape[planes ? 1 : 0];
  const std::int64_t width = declared.shape[planes ? 2 : 1];
  const auto is_side = [](std::int64_t side) {
    return side >= 1 && side <= std::int64_t{image::kMostSidePixels};
  };
  if (channels != static_cast<std::int64_t>(image::kChannels) || !is_side(height) ||
      !is_side(width))
    return false;
  image.height = static_cast<std::uint32_t>(height);
  image.width = static_cast<std::uint32_t>(width);
  return true;
}

void refuse_keys(const JsonCursor& input, std::span<const std::string_view> keys,
                 std::string_view why, std::string_view fix) {
  for (const std::string_view key : keys) {
    if (const auto at = input.find(key)) at->fail(why, fix);
  }
}

// Empty: there are errors.
std::optional<image::Preprocessing> read_image(const JsonCursor& input, const TensorSpec& declared,
                                               ImageFormat format) {
  image::Preprocessing image;
  image.layout = format == ImageFormat::nhwc ? image::Layout::nhwc : image::Layout::nchw;
  image.type = declared.type;
  image.shorter_side = read_count(input, "resize", image::kMostSidePixels, 0);
  image.max_megapixels =
      read_count(input, "max_megapixels", image::kMostMegapixels, image.max_megapixels);
  read_normalisation(input, image);
  if (is_encoded(input) && image.type == DataType::uint8)
    refuse_keys(input, kKeysOfNumbers, "an input of UINT8 takes pixels as they are", "take it out");
  if (!is_encoded(input) || !input.valid()) return std::nullopt;
  const JsonCursor encoded = input.required("encoded");
  if (format == ImageFormat::none) {
    encoded.fail("an encoded image needs the order of the model's input",
                 R"(write "format":"NCHW" or "format":"NHWC" beside it)");
  } else if (!take_sides(declared, image)) {
    encoded.fail("the input is no image of three channels and a fixed size",
                 "write a shape like [3,224,224] for NCHW or [224,224,3] for NHWC");
  } else if (const Status possible = image::check(image); !possible.ok()) {
    encoded.fail(possible.message(), "correct the input");
  }
  return input.valid() ? std::optional(image) : std::nullopt;
}

void read_encoded_image(const JsonCursor& input, ModelConfig& model, TensorSpec& spec) {
  if (const auto from = input.find("from"); from && is_encoded(input)) {
    return from->fail(
        "clients send either bytes or encoded images for an input",
        R"(take "from" or "encoded" out; an encoded image has "mean" and "std" beside it)");
  }
  const auto format = model.formats.find(spec.name);
  const auto image =
      read_image(input, spec, format == model.formats.end() ? ImageFormat::none : format->second);
  if (!is_encoded(input)) {
    constexpr std::string_view kWhy = "only an encoded image has this key";
    refuse_keys(input, kKeysOfNumbers, kWhy, R"(take it out, or write it in "from")");
    refuse_keys(input, kOtherKeys, kWhy, "take it out");
  }
  if (!image) return;
  const std::size_t max_bytes = spec.max_bytes > 0 ? spec.max_bytes : kDefaultEncodedBytes;
  spec = TensorSpec{spec.name, DataType::bytes, {1}, max_bytes, std::nullopt, image};
  model.formats.erase(spec.name);  // clients send no such tensor
}

}  // namespace

void add_encoded_keys(ObjectReader& input) {
  input
      .optional("encoded", elsewhere({}, "false"),
                "Of an image of type FP32 or UINT8 with a format: clients send the bytes of a JPEG "
                "or PNG file instead, as one string of up to `max_bytes`, 262144 by default "
                "(docs/model-files.md, \"Encoded images\").")
      .optional("scale", elsewhere(), "Of an encoded image: as in `from`. Default: 1/255.")
      .optional("mean", elsewhere(), "Of an encoded image: as in `from`. Default: 0.")
      .optional("std", elsewhere(), "Of an encoded image: as in `from`. Default: 1.")
      .optional("resize", elsewhere(),
                "Of an encoded image: the length in pixels to which its shorter side is resized "
                "before the centre is cropped. Default: the image just covers the input.")
      .optional("max_megapixels", elsewhere({}, as_json(image::Preprocessing().max_megapixels)),
                "Of an encoded image: a larger one is refused before it is decoded.");
}

bool is_encoded(const JsonCursor& input) {
  const std::optional<JsonCursor> at = input.find("encoded");
  return at && at->boolean();
}

void read_encoded_bytes(const JsonCursor& cursor, TensorSpec& input) {
  constexpr std::uint32_t kLeastBytes = 1024;  // smaller than any useful image
  input.max_bytes = cursor.count(kLeastBytes, static_cast<std::uint32_t>(kMostSlotBytes));
}

void read_encoded_images(const JsonCursor& inputs, ModelConfig& model) {
  const std::vector<JsonCursor> elements = inputs.elements("inputs", 0, kMostInputs);
  for (std::size_t i = 0; i < std::min(elements.size(), model.inputs.size()); ++i)
    read_encoded_image(elements[i], model, model.inputs[i]);
}

}  // namespace gpulet::config

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/description.h"
#include "config/reading.h"
#include "gpulet/core/bucket.h"

namespace gpulet::config {
namespace {

constexpr std::size_t kImageRank = 3;

Reader channels(std::vector<double>& numbers, NumberRange range) {
  std::string otherwise = as_json(numbers.front());
  return {[&numbers, range](const JsonCursor& at) { numbers = read_channels(at, range); },
          std::move(otherwise)};
}

// What an entry says of one input that is converted.
struct Entry {
  InputConversion conversion;
  std::optional<ImageFormat> format{};
};

Entry read_entry(const JsonCursor& cursor) {
  Entry entry;
  InputConversion& made = entry.conversion;
  const auto type = [](const JsonCursor& at) { (void)at.choice({"UINT8"}); };
  const auto format = [&entry](const JsonCursor& at) {
    entry.format = at.choice({"NCHW", "NHWC"}) == 0 ? ImageFormat::nchw : ImageFormat::nhwc;
  };
  const auto scale = [&made](const JsonCursor& at) { made.scale = at.number(above(0)); };
  ObjectReader(cursor)
      .required("type", type, "The type that clients send.")
      .optional("format", format,
                "The order in which clients send an image. Default: that of the model.")
      .optional("scale", Reader(scale, "1/255"),
                "Of each byte x the model gets `(x * scale - mean) / std`.")
      .optional("mean", channels(made.mean, NumberRange{}), "Subtracted after `scale`.")
      .optional("std", channels(made.deviation, above(0)), "Divides the difference.")
      .read();
  return entry;
}

void read_conversion(const JsonCursor& cursor, TensorSpec& input,
                     std::map<std::string, ImageFormat>& formats) {
  Entry entry = read_entry(cursor);
  if (!cursor.valid()) return;
  if (input.type != DataType::fp32 && input.type != DataType::fp16) {
    return cursor.fail(
        fmt::format("the input is {}; UINT8 is converted to FP32 or FP16", to_string(input.type)),
        R"(write the type of the model's own tensor as the input's "type", or take "from" out)");
  }
  if (is_dynamic(input)) {
    return cursor.fail("an input with a dimension of -1 is not converted",
                       R"(write the size, or take "from" out)");
  }
  if (entry.format && input.shape.size() != kImageRank) {
    return cursor.required("format").fail("only an input of three dimensions is an image",
                                          "take the format out, or correct the shape");
  }
  const auto own = formats.find(input.name);
  const ImageFormat to = own == formats.end() ? ImageFormat::nchw : own->second;
  const ImageFormat from = entry.format.value_or(to);
  InputConversion conversion = std::move(entry.conversion);
  conversion.to_channels_last = to == ImageFormat::nhwc;
  conversion.from_channels_last = from == ImageFormat::nhwc;
  Result<TensorSpec> sent = sent_input(input, std::move(conversion));
  if (!sent.ok()) {
    return cursor.fail(
        sent.status().message(),
        "write numbers that fit the input (docs/model-files.md, \"Images of bytes\")");
  }
  input = std::move(sent).value();
  if (entry.format || own != formats.end()) formats[input.name] = from;
}

}  // namespace

std::vector<double> read_channels(const JsonCursor& cursor, const NumberRange& range) {
  const std::string expected =
      range.describe() + ", or a list of such numbers with one for each channel";
  if (describes(cursor, expected)) return {1};
  if (cursor.type() != JsonCursor::Type::array) return {cursor.number(range)};
  std::vector<double> numbers;
  for (const JsonCursor& one : cursor.elements(expected, 1, kMostConvertedChannels))
    numbers.push_back(one.number(range));
  return numbers;
}

void read_conversions(const JsonCursor& inputs, ModelConfig& model) {
  const std::vector<JsonCursor> elements = inputs.elements("inputs");
  for (std::size_t i = 0; i < std::min(elements.size(), model.inputs.size()); ++i) {
    if (const auto from = elements[i].find("from"))
      read_conversion(*from, model.inputs[i], model.formats);
  }
}

}  // namespace gpulet::config

#include "config/step_shapes.h"

#include <algorithm>
#include <cstdint>

namespace gpulet::config {
namespace {

using Specs = std::vector<TensorSpec>;
using Outcome = std::variant<Specs, Misfit>;

// A step makes its output in one piece: nothing that small steps are for is larger.
constexpr std::size_t kMostOutputBytes = 1U << 30U;

bool is_fixed(const TensorSpec& tensor) {
  return std::count(tensor.shape.begin(), tensor.shape.end(), kAnyDimension) == 0;
}

Misfit wrong_number(const std::string& takes, std::size_t given) {
  return {std::nullopt, "the step takes " + takes + "; " + std::to_string(given) + " are given",
          "write one edge for each"};
}

Misfit wrong_input(std::size_t input, const TensorSpec& given, const std::string& takes) {
  return {input, shown(given) + " does not fit here", "lead " + takes + " here"};
}

Outcome outputs(const SelectStep& step, const Specs& inputs) {
  if (inputs.size() != 2) return wrong_number("the rows and their scores", inputs.size());
  const TensorSpec& rows = inputs[0];
  const TensorSpec& scores = inputs[1];
  if (rows.shape.empty() || !is_fixed(rows)) return wrong_input(0, rows, "rows of a fixed shape");
  const std::string wanted = std::to_string(rows.shape[0]);
  const bool per_class = scores.shape.size() == 2;
  if (scores.type != DataType::fp32 || scores.shape.empty() || scores.shape.size() > 2 ||
      !is_fixed(scores) || scores.shape[0] != rows.shape[0]) {
    return wrong_input(1, scores,
                       "scores FP32[" + wanted + "] or FP32[" + wanted + ",classes], one per row,");
  }
  const std::int64_t classes = per_class ? scores.shape[1] : 0;
  for (const std::uint32_t one : step.classes) {
    if (one >= classes) {
      return Misfit{1, "there is no class " + std::to_string(one) + " in " + shown(scores),
                    "take it out of the classes"};
    }
  }
  if (step.count > rows.shape[0]) {
    return Misfit{0, std::to_string(step.count) + " rows cannot be chosen from " + shown(rows),
                  "write a smaller count"};
  }
  TensorSpec chosen = rows;
  chosen.name = "rows";
  chosen.shape[0] = step.count;
  return Specs{
      chosen, {"scores", DataType::fp32, {step.count}}, {"classes", DataType::int64, {step.count}}};
}

Outcome outputs(const CropStep&, const Specs& inputs) {
  if (inputs.size() != 2) return wrong_number("an image and a box", inputs.size());
  if (inputs[0].shape.size() != 3)
    return wrong_input(0, inputs[0], "an image [channels,height,width]");
  if (inputs[1].type != DataType::fp32 || inputs[1].shape != std::vector<std::int64_t>{4})
    return wrong_input(1, inputs[1], "a box FP32[4]: top, left, bottom, right");
  return Specs{{"image", inputs[0].type, {inputs[0].shape[0], kAnyDimension, kAnyDimension}}};
}

Outcome outputs(const ResizeStep& step, const Specs& inputs) {
  if (inputs.size() != 1) return wrong_number("one image", inputs.size());
  if (inputs[0].type != DataType::fp32 || inputs[0].shape.size() != 3)
    return wrong_input(0, inputs[0], "an image FP32[channels,height,width]");
  return Specs{{"image", DataType::fp32, {inputs[0].shape[0], step.height, step.width}}};
}

Outcome outputs(const ArgMaxStep&, const Specs& inputs) {
  std::int64_t rows = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].type != DataType::fp32 || inputs[i].shape.empty() || !is_fixed(inputs[i]))
      return wrong_input(i, inputs[i], "numbers FP32[...,n] of a fixed shape");
    std::int64_t own = 1;
    for (std::size_t d = 0; d + 1 < inputs[i].shape.size(); ++d) own *= inputs[i].shape[d];
    if (own > static_cast<std::int64_t>(kMostOutputBytes))
      return wrong_input(i, inputs[i], "fewer rows");
    rows += own;
  }
  return Specs{{"index", DataType::int64, {rows}}};
}

}  // namespace

Outcome outputs_of(const Step& step, const Specs& inputs) {
  Outcome outcome = std::visit([&inputs](const auto& one) { return outputs(one, inputs); }, step);
  if (const auto* specs = std::get_if<Specs>(&outcome)) {
    for (const TensorSpec& spec : *specs) {
      if (!is_fixed(spec)) continue;
      const Result<std::size_t> bytes = byte_size(spec);
      if (bytes.ok() && bytes.value() <= kMostOutputBytes) continue;
      return Misfit{std::nullopt, "the step would make " + shown(spec) + ", more than 1 GiB",
                    "lead smaller tensors here"};
    }
  }
  return outcome;
}

std::string shown(const TensorSpec& tensor) {
  std::string text(to_string(tensor.type));
  text += '[';
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (i > 0) text += ',';
    text += tensor.shape[i] == kAnyDimension ? "any" : std::to_string(tensor.shape[i]);
  }
  return text + ']';
}

}  // namespace gpulet::config

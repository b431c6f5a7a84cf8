#include "tools/serve/open_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/core/bucket.h"

namespace gpulet::tools {
namespace {

using config::OnnxDimension;
using config::OnnxTensor;

static_assert(OnnxDimension::kAny == kAnyLength);

constexpr const char* kShapeForm = "NAME:DIMS, such as tokens:128, or MODEL/NAME:DIMS";

Status wrong_shape(std::string message) { return {StatusCode::invalid, std::move(message)}; }

bool fits(const OnnxTensor& tensor, const std::vector<std::int64_t>& sizes) {
  if (tensor.shape->size() != sizes.size() + 1) return false;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t size = (*tensor.shape)[i + 1].size;
    if (size != OnnxDimension::kAny && size != sizes[i]) return false;
  }
  return true;
}

}  // namespace

std::optional<std::vector<std::int64_t>> parse_dimensions(std::string_view text) {
  std::vector<std::int64_t> dimensions;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    const auto value = parse_number<std::int64_t>(word);
    if (!value || (*value < 1 && *value != kAnyLength)) return std::nullopt;
    dimensions.push_back(*value);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return dimensions;
}

std::size_t open_dimensions(const OnnxTensor& tensor) {
  if (!tensor.shape || tensor.shape->empty()) return 0;
  return static_cast<std::size_t>(
      std::count_if(tensor.shape->begin() + 1, tensor.shape->end(),
                    [](const OnnxDimension& one) { return one.size == OnnxDimension::kAny; }));
}

Result<OpenShapes> OpenShapes::parse(const std::vector<std::string>& texts) {
  OpenShapes shapes;
  for (const std::string& text : texts) {
    const std::size_t colon = text.rfind(':');
    auto shape = colon == std::string::npos
                     ? std::nullopt
                     : parse_dimensions(std::string_view(text).substr(colon + 1));
    if (!shape || std::find(shape->begin(), shape->end(), kAnyLength) != shape->end())
      return wrong_shape(fmt::format("--shape \"{}\": write {}", text, kShapeForm));
    shapes.shapes_.push_back({text.substr(0, colon), std::move(*shape)});
  }
  return shapes;
}

std::vector<const OpenShapes::NamedShape*> OpenShapes::find(std::string_view model,
                                                            std::string_view name) {
  const std::string qualified = fmt::format("{}/{}", model, name);
  std::vector<const NamedShape*> found;
  for (const std::string_view wanted : {std::string_view(qualified), name}) {
    for (const NamedShape& one : shapes_) {
      if (one.name == wanted) found.push_back(&one);
    }
  }
  return found;
}

Status OpenShapes::close(std::string_view model, OnnxTensor& tensor) {
  if (open_dimensions(tensor) == 0) return {};
  const std::vector<const NamedShape*> named = find(model, tensor.name);
  for (const NamedShape* const one : named) used_.insert(one->name);
  const auto fitting = std::find_if(named.begin(), named.end(), [&tensor](const NamedShape* one) {
    return fits(tensor, one->shape);
  });
  if (fitting != named.end()) {
    for (std::size_t i = 0; i < (*fitting)->shape.size(); ++i)
      (*tensor.shape)[i + 1].size = (*fitting)->shape[i];
    return {};
  }
  for (std::size_t i = 1; i < tensor.shape->size(); ++i) {
    OnnxDimension& dimension = (*tensor.shape)[i];
    if (dimension.size != OnnxDimension::kAny || dimension.name.empty()) continue;
    for (const NamedShape* const one : find(model, dimension.name)) {
      if (one->shape.size() != 1) continue;
      used_.insert(one->name);
      if (dimension.size == OnnxDimension::kAny) dimension.size = one->shape.front();
    }
  }
  if (named.empty() || open_dimensions(tensor) == 0) return {};
  return wrong_shape(
      fmt::format("--shape {}:{}: does not fit {}, whose first dimension is the batch",
                  named.front()->name, fmt::join(named.front()->shape, ","), to_string(tensor)));
}

Status OpenShapes::all_used() const {
  for (const NamedShape& one : shapes_) {
    if (used_.contains(one.name)) continue;
    return wrong_shape(
        fmt::format("--shape \"{}\": no model has a tensor or a dimension of that name whose size "
                    "is open; leave it out, or correct the name",
                    one.name));
  }
  return {};
}

void NamedSizes::note(const OnnxTensor& open, const OnnxTensor& closed) {
  if (!open.shape || !closed.shape) return;
  for (std::size_t i = 1; i < open.shape->size(); ++i) {
    const OnnxDimension& before = (*open.shape)[i];
    const std::int64_t size = (*closed.shape)[i].size;
    if (before.size == OnnxDimension::kAny && !before.name.empty() && size != OnnxDimension::kAny)
      sizes_.emplace(before.name, size);
  }
}

void NamedSizes::close(OnnxTensor& tensor) const {
  if (!tensor.shape) return;
  for (std::size_t i = 1; i < tensor.shape->size(); ++i) {
    OnnxDimension& dimension = (*tensor.shape)[i];
    if (dimension.size != OnnxDimension::kAny) continue;
    const auto known = sizes_.find(dimension.name);
    if (known != sizes_.end()) dimension.size = known->second;
  }
}

}  // namespace gpulet::tools

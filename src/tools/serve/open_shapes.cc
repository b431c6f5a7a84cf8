#include "tools/serve/open_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/bucket.h"

namespace gpulet::tools {
namespace {

using config::OnnxDimension;
using config::OnnxTensor;

static_assert(OnnxDimension::kAny == kAnyLength);

constexpr const char* kShapeForm = "NAME:DIMS, such as tokens:128, or MODEL/NAME:DIMS";

Status wrong_shape(std::string message) { return {StatusCode::invalid, std::move(message)}; }

// Whether the sizes are those of the dimensions from `first` on.
bool fits(const OnnxTensor& tensor, std::size_t first, const std::vector<std::int64_t>& sizes) {
  if (tensor.shape->size() != sizes.size() + first) return false;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t size = (*tensor.shape)[i + first].size;
    if (size != OnnxDimension::kAny && size != sizes[i]) return false;
  }
  return true;
}

// Sets the sizes where they are those of all dimensions, or of those after the first one, and fit.
// The sizes of a whole tensor may leave out its first dimension, and those of another one may have
// a batch of one in front: whether there is a batch may show later.
bool set_sizes(const std::vector<std::int64_t>& sizes, bool all, bool whole, OnnxTensor& tensor) {
  const std::size_t first = all ? 0 : 1;
  if (!fits(tensor, first, sizes)) return false;
  const bool has_batch = all && !whole;
  if (has_batch && sizes.front() != 1) return false;
  for (std::size_t i = has_batch ? 1 : 0; i < sizes.size(); ++i)
    (*tensor.shape)[i + first].size = sizes[i];
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

std::size_t open_dimensions(const OnnxTensor& tensor, bool whole) {
  if (!tensor.shape || tensor.shape->empty()) return 0;
  return static_cast<std::size_t>(
      std::count_if(tensor.shape->begin() + (whole ? 0 : 1), tensor.shape->end(),
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

Status OpenShapes::close(std::string_view model, bool whole, OnnxTensor& tensor) {
  if (open_dimensions(tensor, whole) == 0) return {};
  const std::size_t batch = batch_dimensions(whole);
  const std::vector<const NamedShape*> named = find(model, tensor.name);
  for (const NamedShape* const one : named) used_.insert(one->name);
  for (const bool all : {whole, !whole}) {
    for (const NamedShape* const one : named) {
      if (set_sizes(one->shape, all, whole, tensor)) return {};
    }
  }
  for (std::size_t i = batch; i < tensor.shape->size(); ++i) {
    OnnxDimension& dimension = (*tensor.shape)[i];
    if (dimension.size != OnnxDimension::kAny || dimension.name.empty()) continue;
    for (const NamedShape* const one : find(model, dimension.name)) {
      if (one->shape.size() != 1) continue;
      used_.insert(one->name);
      if (dimension.size == OnnxDimension::kAny) dimension.size = one->shape.front();
    }
  }
  if (named.empty() || open_dimensions(tensor, whole) == 0) return {};
  return wrong_shape(
      fmt::format("--shape {}:{}: does not fit {}, {}", named.front()->name,
                  fmt::join(named.front()->shape, ","), to_string(tensor),
                  whole ? "all of whose sizes are given, because the model has no batch dimension"
                        : "whose first dimension is the batch"));
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
  for (std::size_t i = 0; i < open.shape->size(); ++i) {
    const OnnxDimension& before = (*open.shape)[i];
    const std::int64_t size = (*closed.shape)[i].size;
    if (before.size == OnnxDimension::kAny && !before.name.empty() && size != OnnxDimension::kAny)
      sizes_.emplace(before.name, size);
  }
}

void NamedSizes::close(bool whole, OnnxTensor& tensor) const {
  if (!tensor.shape) return;
  for (std::size_t i = batch_dimensions(whole); i < tensor.shape->size(); ++i) {
    OnnxDimension& dimension = (*tensor.shape)[i];
    if (dimension.size != OnnxDimension::kAny) continue;
    const auto known = sizes_.find(dimension.name);
    if (known != sizes_.end()) dimension.size = known->second;
  }
}

// ---- ranges

Result<SampleRanges> SampleRanges::parse(const std::vector<std::string>& texts) {
  SampleRanges ranges;
  for (const std::string& text : texts) {
    const std::string_view whole = text;
    const std::size_t colon = text.rfind(':');
    const std::size_t comma = colon == std::string::npos ? colon : text.find(',', colon);
    std::optional<double> least;
    std::optional<double> most;
    if (comma != std::string::npos) {
      least = parse_number<double>(whole.substr(colon + 1, comma - colon - 1));
      most = parse_number<double>(whole.substr(comma + 1));
    }
    if (!least || !most || !std::isfinite(*least) || !std::isfinite(*most)) {
      return wrong_shape(
          fmt::format("--range \"{}\": write INPUT:LEAST,MOST, such as tokens:0,29999, or "
                      "MODEL/INPUT:LEAST,MOST",
                      text));
    }
    ranges.ranges_.push_back({text.substr(0, colon), {*least, *most}});
  }
  return ranges;
}

Status SampleRanges::set(std::string_view model, std::vector<TensorSpec>& inputs) {
  for (TensorSpec& input : inputs) {
    const std::string qualified = fmt::format("{}/{}", model, input.name);
    // The range of a model's input alone is preferred.
    for (const std::string_view wanted :
         {std::string_view(input.name), std::string_view(qualified)}) {
      for (NamedRange& one : ranges_) {
        if (one.name != wanted) continue;
        if (Status fits = config::check_range(input.type, one.range); !fits.ok())
          return fits.within("--range " + one.name);
        input.range = one.range;
        one.used = true;
      }
    }
  }
  return {};
}

Status SampleRanges::all_used() const {
  for (const NamedRange& one : ranges_) {
    if (one.used) continue;
    return wrong_shape(
        fmt::format("--range {}: no model has such an input; correct the name", one.name));
  }
  return {};
}

}  // namespace gpulet::tools

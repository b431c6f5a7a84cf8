#include "serve/values/dynamic_models.h"

#include <algorithm>

namespace gpulet::serve {
namespace {

// Sizes that differ between the buckets are shown as open.
std::vector<TensorSpec> outputs_of(const DynamicModel& model) {
  std::vector<TensorSpec> outputs = model.buckets.rbegin()->second->outputs;
  for (const auto& [length, bucket] : model.buckets) {
    for (std::size_t i = 0; i < std::min(outputs.size(), bucket->outputs.size()); ++i) {
      std::vector<std::int64_t>& shape = outputs[i].shape;
      const std::vector<std::int64_t>& other = bucket->outputs[i].shape;
      for (std::size_t at = 0; at < std::min(shape.size(), other.size()); ++at) {
        if (shape[at] != other[at]) shape[at] = kAnyLength;
      }
    }
  }
  return outputs;
}

void show_longest(DynamicModel& model) {
  ServedModel& front = model.front;
  front.bucket = model.buckets.rbegin()->second;
  front.name = front.bucket->model;
  front.inputs = front.bucket->inputs;
  front.outputs = outputs_of(model);
  // with_sizes() has checked that the size is representable.
  const Result<std::size_t> bytes = byte_size(with_length(front.inputs, front.bucket->length));
  front.input_bytes = bytes.ok() ? bytes.value() : 0;
  front.input_sizes.clear();
  front.output_sizes.clear();
}

}  // namespace

std::vector<std::string> DynamicModel::names() const {
  std::vector<std::string> names;
  for (const auto& [length, bucket] : buckets) names.push_back(bucket_name(front.name, length));
  return names;
}

void DynamicModels::set(const ServedModel& model) {
  if (model.bucket == nullptr) return;
  DynamicModel& known = models_[model.bucket->model];
  known.buckets.insert_or_assign(model.bucket->length, model.bucket);
  known.front = model;
  show_longest(known);
}

void DynamicModels::remove(const ServedModel& model) {
  if (model.bucket == nullptr) return;
  const auto known = models_.find(model.bucket->model);
  if (known == models_.end()) return;
  known->second.buckets.erase(model.bucket->length);
  if (known->second.buckets.empty()) {
    models_.erase(known);
  } else {
    show_longest(known->second);
  }
}

const DynamicModel* DynamicModels::find(std::string_view name) const {
  const auto found = models_.find(name);
  return found == models_.end() ? nullptr : &found->second;
}

}  // namespace gpulet::serve

// DynamicModels: the models with dynamic dimensions, as clients see them, and their buckets, each
// of which is a model of its own to everything else. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/bucket.h"
#include "gpulet/serve/values/served_model.h"

namespace gpulet::serve {

struct DynamicModel {
  // The model as clients see it: with the shapes as declared, and with the bucket and the bytes of
  // the longest bucket.
  ServedModel front;
  std::map<std::int64_t, std::shared_ptr<const Bucket>> buckets{};  // by length; at least one

  [[nodiscard]] std::vector<std::string> names() const;
};

class DynamicModels {
 public:
  using ByName = std::map<std::string, DynamicModel, std::less<>>;

  // A bucket is served, or its settings have changed. Ignores models with fixed shapes.
  void set(const ServedModel& model);
  // A model is not served any more.
  void remove(const ServedModel& model);

  // Null: no model of that name has dynamic dimensions.
  [[nodiscard]] const DynamicModel* find(std::string_view name) const;
  [[nodiscard]] const ByName& all() const { return models_; }

 private:
  ByName models_;
};

}  // namespace gpulet::serve

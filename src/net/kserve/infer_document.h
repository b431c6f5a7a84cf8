// The JSON of an inference, read and bounded, before anybody asks whether it fits a model. Pure;
// any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpulet/core/status.h"
#include "gpulet/net/kserve/parameters.h"

namespace gpulet::net::kserve {

using Number = std::variant<bool, std::int64_t, std::uint64_t, double>;

struct InputDocument {
  std::string name;
  std::string datatype;
  bool has_shape = false;
  bool has_data = false;
  std::vector<std::int64_t> shape{};
  std::vector<Number> data{};  // row-major, however it was nested
  TensorParameters parameters{};
};

struct InferDocument {
  std::string id;
  RequestParameters parameters;
  std::vector<InputDocument> inputs;
  std::vector<NamedOutput> outputs;  // empty: all are wanted
};

// More than the model could take is refused while it is read.
struct DocumentLimits {
  std::string_view model;  // for messages
  std::size_t inputs = 0;
  std::size_t outputs = 0;
  std::size_t values = 0;  // of one input
};

[[nodiscard]] Result<InferDocument> read_document(std::string_view text,
                                                  const DocumentLimits& limits);

}  // namespace gpulet::net::kserve

// The sizes of dimensions that model files leave open: what the command line says about them, and
// what follows from it for the other tensors of a model. Values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/onnx_signature.h"
#include "gpulet/core/tensor.h"

namespace gpulet::tools {

// The values of --shape: "NAME:DIMS" or "MODEL/NAME:DIMS", such as "tokens:128". NAME is that of a
// tensor, with all of its sizes after the batch, or that of one dimension. One that begins with a
// model is preferred to one that does not, and a tensor to a dimension. Of several that name a
// tensor, the first that fits counts.
class OpenShapes {
 public:
  // Fails with invalid.
  [[nodiscard]] static Result<OpenShapes> parse(const std::vector<std::string>& texts);

  // Sets the open dimensions of the tensor, beside the first one, as far as the command line names
  // them. Fails with invalid where none of those that name the tensor fits.
  [[nodiscard]] Status close(std::string_view model, config::OnnxTensor& tensor);

  // Fails with invalid where one of them named no tensor and no dimension.
  [[nodiscard]] Status all_used() const;

 private:
  struct NamedShape {
    std::string name;  // with the model, if it was given
    std::vector<std::int64_t> shape;
  };

  [[nodiscard]] std::vector<const NamedShape*> find(std::string_view model, std::string_view name);

  std::vector<NamedShape> shapes_;
  std::set<std::string> used_;  // names
};

// The sizes of the dimensions of a model that have names.
class NamedSizes {
 public:
  // Notes the sizes that `closed` has where `open` has named dimensions of any size.
  // REQUIRES: they have equal numbers of dimensions.
  void note(const config::OnnxTensor& open, const config::OnnxTensor& closed);
  // Sets the open dimensions, beside the first one, whose names are known.
  void close(config::OnnxTensor& tensor) const;

 private:
  std::map<std::string, std::int64_t> sizes_;
};

// How many dimensions beside the first one are open.
[[nodiscard]] std::size_t open_dimensions(const config::OnnxTensor& tensor);

// The dimensions after "--shape NAME:"; empty: they are none. -1 is one of any size.
[[nodiscard]] std::optional<std::vector<std::int64_t>> parse_dimensions(std::string_view text);

}  // namespace gpulet::tools

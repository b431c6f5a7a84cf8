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

// How many dimensions of a tensor are the batch.
[[nodiscard]] constexpr std::size_t batch_dimensions(bool whole) { return whole ? 0 : 1; }

// The values of --shape: "NAME:DIMS" or "MODEL/NAME:DIMS", such as "tokens:128". NAME is that of a
// tensor, with all of its sizes after the batch, if it has one, or that of one dimension. One that
// begins with a model is preferred to one that does not, and a tensor to a dimension. Of several
// that name a tensor, the first that fits counts.
class OpenShapes {
 public:
  // Fails with invalid.
  [[nodiscard]] static Result<OpenShapes> parse(const std::vector<std::string>& texts);

  // Sets the open dimensions of the tensor, beside the batch, as far as the command line names
  // them. `whole`: it has no batch. Fails with invalid where none of those that name the tensor
  // fits.
  [[nodiscard]] Status close(std::string_view model, bool whole, config::OnnxTensor& tensor);

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
  // Sets the open dimensions whose names are known; that of the batch is left to each request.
  void close(bool whole, config::OnnxTensor& tensor) const;

 private:
  std::map<std::string, std::int64_t> sizes_;
};

// How many dimensions beside the batch are open.
[[nodiscard]] std::size_t open_dimensions(const config::OnnxTensor& tensor, bool whole);

// The values of --range: "INPUT:LEAST,MOST" or "MODEL/INPUT:LEAST,MOST".
class SampleRanges {
 public:
  // Fails with invalid.
  [[nodiscard]] static Result<SampleRanges> parse(const std::vector<std::string>& texts);

  // Sets the ranges of the model's inputs. Fails with invalid where a type does not have the
  // values.
  [[nodiscard]] Status set(std::string_view model, std::vector<TensorSpec>& inputs);
  // Fails with invalid where one of them is for no input of a model.
  [[nodiscard]] Status all_used() const;

 private:
  struct NamedRange {
    std::string name;
    ValueRange range;
    bool used = false;
  };
  std::vector<NamedRange> ranges_;
};

// The dimensions after "--shape NAME:"; empty: they are none. -1 is one of any size.
[[nodiscard]] std::optional<std::vector<std::int64_t>> parse_dimensions(std::string_view text);

}  // namespace gpulet::tools

#include "gpulet/executor/executor.h"

#include <algorithm>
#include <numeric>

#include "gpulet/base/text.h"

namespace gpulet::executor {

Result<std::vector<std::size_t>> tensor_sizes(const std::vector<TensorSpec>& specs) {
  std::vector<std::size_t> sizes;
  sizes.reserve(specs.size());
  for (const TensorSpec& spec : specs) {
    GPULET_TRY(const std::size_t size, byte_size(spec));
    sizes.push_back(size);
  }
  return sizes;
}

Status check_whole(const ModelToLoad& model) {
  const bool whole = are_whole(model.inputs) || are_whole(model.outputs);
  if (!whole || model.max_batch <= 1) return {};
  return {StatusCode::invalid,
          "a model without a batch dimension takes one request at a time; set \"max_batch\" to 0"};
}

Status check_sizes(const BatchToRun& batch, const std::vector<std::size_t>& input_sizes,
                   const std::vector<std::size_t>& output_sizes) {
  const std::string where =
      "batch of " + std::to_string(batch.count) + " for model '" + std::string(batch.model) + "'";
  if (batch.count == 0) return {StatusCode::internal, where + " must contain at least one request"};
  // Divides because a count from the wire times a declared size may overflow.
  const std::size_t input = std::accumulate(input_sizes.begin(), input_sizes.end(), std::size_t{0});
  if (batch.input.size() / batch.count != input || batch.input.size() % batch.count != 0) {
    return {StatusCode::internal, where + ": the input must have " + std::to_string(input) +
                                      " bytes per request; it has " +
                                      std::to_string(batch.input.size()) + " in total"};
  }
  const std::size_t output =
      std::accumulate(output_sizes.begin(), output_sizes.end(), std::size_t{0});
  if (batch.output.size() / batch.count < output) {
    return {StatusCode::internal, where + ": the output needs " + std::to_string(output) +
                                      " bytes per request; it has " +
                                      std::to_string(batch.output.size()) + " in total"};
  }
  return {};
}

Status not_loaded(std::string_view model) {
  return {StatusCode::not_found,
          "model '" + std::string(model) + "' is not loaded in this process; load it first"};
}

Status input_at_fault(std::string_view sentence) {
  constexpr std::size_t kLongest = 200;
  const bool tells_too_much =
      sentence.size() > kLongest || std::any_of(sentence.begin(), sentence.end(), [](char letter) {
        return letter >= '0' && letter <= '9';
      });
  const std::string detail =
      sentence.empty() || tells_too_much ? "" : " (" + escaped(sentence) + ")";
  return {StatusCode::invalid,
          "the model cannot compute this input" + detail +
              "; check that its values are in the range that the model accepts, such as indices of "
              "its vocabulary (the frontend's log has the model's own words)"};
}

Status model_at_fault(std::string_view model) {
  return {StatusCode::internal, "model '" + std::string(model) +
                                    "' failed, and fails with other inputs too; see the frontend's "
                                    "log"};
}

}  // namespace gpulet::executor

#include "tools/cli/infer_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <system_error>
#include <utility>
#include <variant>

#include "gpulet/base/text.h"
#include "gpulet/load/call.h"

namespace gpulet::tools {
namespace {

using Clock = std::chrono::steady_clock;

// Added to the timeout of the request, because an idle model has to load.
constexpr Duration kInferGrace = std::chrono::seconds(30);

}  // namespace

Result<ModelInfo> find_model(const load::Target& target, const std::string& name) {
  GPULET_TRY(std::vector<ModelInfo> models, load::fetch_models(target));
  std::vector<std::string> names;
  for (ModelInfo& model : models) {
    if (model.name == name) return std::move(model);
    names.push_back(model.name);
  }
  return Status(StatusCode::not_found,
                fmt::format("{}: has no model {}; it has {}", config::to_string(target.endpoint),
                            name, names.empty() ? "none" : joined(names)));
}

Result<Bytes> read_image_input(const std::string& file, ModelInfo& model,
                               const std::optional<Normalisation>& normalisation) {
  if (model.inputs.size() != 1) {
    return Status(StatusCode::invalid, fmt::format("{}: model {} has {} inputs; give them all in a "
                                                   ".json file",
                                                   file, model.name, model.inputs.size()));
  }
  if (model.inputs.front().image) {  // the server decodes it
    if (normalisation) {
      return Status(StatusCode::invalid,
                    fmt::format("--mean and --std: the entry of model {} has them", model.name));
    }
    return read_infer_input(file, model.inputs);
  }
  GPULET_TRY(const Image image, read_image(file));
  Result<Bytes> tensor = to_tensor(image, model.inputs.front(), normalisation);
  if (!tensor.ok()) return tensor.status().within(file);
  return tensor;
}

Result<InferResponse> send_request(const load::Target& target, const InferRequest& request) {
  const Clock::time_point began = Clock::now();
  GPULET_TRY(FrontendReply reply, load::call(target, request, request.timeout + kInferGrace));
  auto* const infer = std::get_if<InferReply>(&reply);
  if (infer == nullptr)
    return Status(StatusCode::malformed, config::to_string(target.endpoint) +
                                             ": the response is not for an inference request");
  if (!infer->status.ok())
    return Status(infer->status.code(), request.model + ": " + infer->status.to_string());
  const std::chrono::duration<double, std::milli> taken = Clock::now() - began;
  return InferResponse{std::move(*infer), taken.count()};
}

Result<std::vector<std::string>> read_labels(const std::string& file) {
  std::vector<std::string> labels;
  if (file.empty()) return labels;
  std::ifstream stream(file);
  if (!stream)
    return Status(StatusCode::not_found,
                  file + ": cannot be read: " + std::generic_category().message(errno));
  for (std::string line; std::getline(stream, line);) labels.push_back(line);
  return labels;
}

std::string label_of(const std::vector<std::string>& labels, std::size_t index) {
  return index < labels.size() ? labels[index] : std::string();
}

std::vector<ClassScore> largest(const TensorSpec& output, const Bytes& bytes, std::size_t count) {
  std::vector<ClassScore> classes(bytes.size() / byte_size(output.type));
  for (std::size_t i = 0; i < classes.size(); ++i)
    classes[i] = {i, value_at(output.type, bytes.view(), i)};
  std::stable_sort(classes.begin(), classes.end(),
                   [](const ClassScore& a, const ClassScore& b) { return a.value > b.value; });
  classes.resize(std::min(count, classes.size()));
  return classes;
}

}  // namespace gpulet::tools

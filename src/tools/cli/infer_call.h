// One inference request to a running frontend, for the commands that send one (infer, try). Blocks
// on the network and on files.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/core/tensor.h"
#include "gpulet/load/client.h"
#include "gpulet/protocol/messages.h"
#include "tools/cli/infer_input.h"

namespace gpulet::tools {

struct InferResponse {
  InferReply reply;
  double latency_ms = 0;  // as this machine saw it
};

// Fails with not_found, and lists the models, where the frontend has no model of that name.
[[nodiscard]] Result<ModelInfo> find_model(const load::Target& target, const std::string& name);

// The file as the input of a model with one image as input: decoded, resized and normalised, or as
// it is where the server decodes it. Sets the size of an encoded image in the model's inputs. Fails
// with invalid for other models and images; the message has the file.
[[nodiscard]] Result<Bytes> read_image_input(const std::string& file, ModelInfo& model,
                                             const std::optional<Normalisation>& normalisation);

// Sends the request and waits for its deadline and the loading of an idle model. Fails as the
// frontend's reply says.
[[nodiscard]] Result<InferResponse> send_request(const load::Target& target,
                                                 const InferRequest& request);

// The lines of the file; none where `file` is empty. Fails with not_found.
[[nodiscard]] Result<std::vector<std::string>> read_labels(const std::string& file);
// The label of a class; empty where it has none.
[[nodiscard]] std::string label_of(const std::vector<std::string>& labels, std::size_t index);

struct ClassScore {
  std::size_t index = 0;
  double value = 0;
};
// The `count` largest elements in descending order, equal elements by their index. REQUIRES: the
// output's type has numbers.
[[nodiscard]] std::vector<ClassScore> largest(const TensorSpec& output, const Bytes& bytes,
                                              std::size_t count);

}  // namespace gpulet::tools

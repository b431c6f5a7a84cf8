// Applications: graphs of models and small built-in steps that answer one request as a whole, as in
// gpulet (ATC 2022), figure 12. They stand beside the models in models.json (docs/applications.md):
//
// {"models":[...],
//  "applications":[{"name":"traffic",
//    "inputs":[{"name":"image","type":"FP32","shape":[3,300,300]}],
//    "nodes":[{"name":"detect","model":"ssd_mobilenet_v1","inputs":["request.image"]},
//             {"name":"best","step":"select","count":2,"inputs":["detect.boxes","detect.scores"]},
//             {"name":"cut","step":"crop","inputs":["request.image","best.rows[0]"]},
//             {"name":"fit","step":"resize","height":224,"width":224,"inputs":["cut.image"]},
//             {"name":"vehicle","model":"googlenet","inputs":["fit.image"]}],
//    "outputs":[{"name":"vehicle","from":"vehicle.logits"}],
//    "slo_ms":5000,"rate":0}]}
//
// An edge is written where it ends: "<node>.<tensor>", or "request.<input>", and with "[i]" the
// i-th item along the first dimension. Nodes may stand in any order. What is checked here holds for
// every value of these types: the edges are there and without a cycle, tensors fit along them,
// every node and every input of the request is used. Errors as in model_config.h. Plain values;
// loading is blocking file I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpulet/config/model_config.h"
#include "gpulet/core/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::config {

// In the shape of a step's output: known only once it has run (a crop's height and width). Such a
// tensor goes into steps that take any size, never into a model or an answer.
inline constexpr std::int64_t kAnyDimension = 0;

// The `count` rows of the first input, any type [n,...], with the highest scores in the second,
// FP32 [n] or [n,classes]: then a row's score is its highest, of `classes` alone where any are
// given. The best first; of equal scores the first row. Outputs: rows [count,...], scores
// FP32[count], classes INT64[count].
struct SelectStep {
  std::uint32_t count = 1;
  std::vector<std::uint32_t> classes;
  friend bool operator==(const SelectStep&, const SelectStep&) = default;
};
// The part of an image [channels,height,width] of any type that a box FP32[4] bounds: top, left,
// bottom, right as parts of the image, cut off at its borders; every pixel that the box touches,
// and one at least. Output: image.
struct CropStep {
  friend bool operator==(const CropStep&, const CropStep&) = default;
};
// An image FP32[channels,any,any] at that size: bilinear, pixels counted by their centres, as
// torch.nn.functional.interpolate(mode="bilinear", align_corners=False). Output: image.
struct ResizeStep {
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  friend bool operator==(const ResizeStep&, const ResizeStep&) = default;
};
// Where the highest number of each row stands: inputs FP32 [...,n], each row along its last
// dimension, the inputs one after another. Of equal ones the first. Output: index INT64[rows].
struct ArgMaxStep {
  friend bool operator==(const ArgMaxStep&, const ArgMaxStep&) = default;
};
using Step = std::variant<SelectStep, CropStep, ResizeStep, ArgMaxStep>;

struct ModelCall {
  std::string model;
  friend bool operator==(const ModelCall&, const ModelCall&) = default;
};

struct TensorSource {
  std::optional<std::size_t> node;    // index into the nodes; empty: the request
  std::size_t tensor = 0;             // among the node's outputs, or the request's inputs
  std::optional<std::uint32_t> item;  // only this one along the first dimension
  friend bool operator==(const TensorSource&, const TensorSource&) = default;
};

struct ApplicationNode {
  std::string name;  // [A-Za-z0-9_-]+, unique in the application, not "request"
  std::variant<ModelCall, Step> work;
  std::vector<TensorSource> inputs;
  std::vector<TensorSpec> outputs;
  std::vector<std::string> input_names{};  // of a model, beside inputs; none of a step
  friend bool operator==(const ApplicationNode&, const ApplicationNode&) = default;
};

struct ApplicationConfig {
  std::string name;                    // as a model's; unique among models and applications
  std::vector<TensorSpec> inputs;      // of a request
  std::vector<TensorSpec> outputs;     // of the answer
  std::vector<TensorSource> answered;  // beside outputs: where each comes from
  double slo_ms = 0;                   // > 0, of the whole
  double rate = 0;                     // >= 0, requests per second that the first plan expects
  std::vector<ApplicationNode> nodes;  // every node after those that it takes tensors from
  friend bool operator==(const ApplicationConfig&, const ApplicationConfig&) = default;
};

// All of models.json.
struct ServingConfig {
  std::vector<ModelConfig> models;
  std::vector<ApplicationConfig> applications;
};

[[nodiscard]] Result<ServingConfig> load_serving(const std::filesystem::path& file);
// The same from memory; `file` names the text in errors and is what its paths are relative to.
// Where `errors` is given, it gets all errors, and what could be read comes back.
[[nodiscard]] Result<ServingConfig> parse_serving(std::string_view text,
                                                  const std::filesystem::path& file,
                                                  std::vector<Status>* errors = nullptr);

// Items along the first dimension; the shape of one of them. REQUIRES: shape is not empty.
[[nodiscard]] TensorSpec item_of(const TensorSpec& tensor);

}  // namespace gpulet::config

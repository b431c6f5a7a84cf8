// models.json: the models and applications to serve, their objectives, and the files that it names.
// docs/configuration.md has the keys; docs/guide.md and docs/applications.md explain them. A member
// has the name of its key, and its initialiser is the default; the readers have the bounds and the
// help texts (config/reading.h).
//
// Paths are relative to the JSON file. Loading fails with invalid or not_found; the message reads
// "<file>: <json pointer>: <what is wrong>; <how to fix it>". Unknown keys are errors that suggest
// the nearest known key. Values; any thread. Functions that take only a path do blocking file I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/url.h"
#include "gpulet/core/bucket.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/queue_rules.h"
#include "gpulet/core/tensor.h"

namespace gpulet::config {

inline constexpr std::uint32_t kLargestBatch = 1024;  // the largest max_batch

// A model file in a store of another machine.
struct RemoteFile {
  Url url;
  std::string sha256{};  // that the file must have; empty: any
  friend bool operator==(const RemoteFile&, const RemoteFile&) = default;
};

// Of a model with dynamic dimensions (core/bucket.h).
struct DynamicLength {
  std::vector<std::int64_t> lengths;  // of its buckets, ascending; at least one
  // By input: the number that fills it up to the bucket. Empty: requests must have one of these
  // lengths.
  std::vector<double> padding{};
  // By output: the sizes of its dynamic dimension in the buckets, in their order, where they are
  // not the lengths. Such an output is not cut to the request's length.
  std::map<std::string, std::vector<std::int64_t>> output_lengths{};

  friend bool operator==(const DynamicLength&, const DynamicLength&) = default;
};

// The order of the dimensions of an input that is an image: for clients, which read it in the
// model's configuration.
enum class ImageFormat : std::uint8_t { none, nhwc, nchw };

using ValueRange = gpulet::ValueRange;
// Fails with invalid where no value of the type is in the range, or the type has no numbers.
[[nodiscard]] Status check_range(DataType type, const ValueRange& range);

// Latencies that an entry brings along for one type of device. They take the place of the figures
// that the profile of the type has for the model.
struct MeasuredCell {
  std::int64_t length = 0;  // of the bucket; 0: the model has fixed shapes
  std::uint32_t batch = 0;
  Share share;
  double latency_ms = 0;
  std::optional<double> p99_ms{};
  std::optional<double> cv{};
  friend bool operator==(const MeasuredCell&, const MeasuredCell&) = default;
};
struct Measurement {
  std::vector<MeasuredCell> cells;  // not empty; no length, batch and share twice
  std::optional<double> memory_mb{};
  friend bool operator==(const Measurement&, const Measurement&) = default;
};

struct ModelConfig {
  std::string name;                // unique
  std::filesystem::path file;      // absolute once loaded; empty with `remote`
  std::vector<TensorSpec> inputs;  // at least one
  std::vector<TensorSpec> outputs;
  double slo_ms = 0;
  double rate = 0;
  std::uint32_t max_batch = 32;     // 1 where the tensors are whole
  std::optional<double> memory_mb;  // empty: of the profile
  Numerics numerics;
  std::map<std::string, std::filesystem::path> labels{};  // by output; absolute once loaded
  std::optional<QueueRules> queue{};                      // empty: requests are ordered by deadline
  std::optional<RemoteFile> remote{};                     // empty: `file`
  std::optional<DynamicLength> dynamic{};        // set where an input has a dynamic dimension
  std::optional<Bucket> bucket{};                // set in the results of buckets_of()
  std::map<std::string, ImageFormat> formats{};  // by input; never none
  // By input that requests may leave out: the bytes of one request's tensor in its place.
  std::map<std::string, std::vector<std::byte>> defaults{};
  std::uint64_t version = 0;  // that clients see; 0: the frontend counts the versions
  std::map<std::string, Measurement> measured{};  // by type of device

  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

// Applications are graphs of models and small built-in steps that answer one request as a whole
// (gpulet, ATC 2022, figure 12). Each input of a node is an edge "<node>.<tensor>" or
// "request.<input>"; "[i]" selects the i-th item along the first dimension. Nodes may be listed in
// any order. Loading guarantees that every edge exists, the graph has no cycle, tensors fit along
// the edges, and every node and every input of the request is used.

// A dimension that is known only after the step ran, such as the height of a crop. A tensor with
// such a dimension may enter steps that accept any size, but no model and no output.
inline constexpr std::int64_t kAnyDimension = 0;

// Selects the `count` rows of the first input (any type, [n,...]) with the highest scores in the
// second (FP32 [n] or [n,classes]). A row's score is its highest over all classes, or over
// `classes` where that is not empty. The best row comes first; among equal scores, the first row.
// Outputs: rows [count,...], scores FP32[count], classes INT64[count].
struct SelectStep {
  std::uint32_t count = 1;
  std::vector<std::uint32_t> classes;
  friend bool operator==(const SelectStep&, const SelectStep&) = default;
};
// Crops an image [channels,height,width] of any type to a box FP32[4]: top, left, bottom, right as
// fractions of the image, clipped to its borders. Keeps every pixel that the box touches, and at
// least one. Output: image.
struct CropStep {
  friend bool operator==(const CropStep&, const CropStep&) = default;
};
// Resizes an image FP32[channels,any,any]: bilinear, with half-pixel centres, like
// torch.nn.functional.interpolate(mode="bilinear", align_corners=False). Output: image.
struct ResizeStep {
  std::uint32_t height = 0;
  std::uint32_t width = 0;
  friend bool operator==(const ResizeStep&, const ResizeStep&) = default;
};
// The index of the largest value in each row. Inputs: FP32 [...,n], whose rows are along the last
// dimension, concatenated. Among equal values, the first index. Output: index INT64[rows].
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
  std::size_t tensor = 0;             // among the node's outputs or the request's inputs
  std::optional<std::uint32_t> item;  // one item along the first dimension; empty: all
  friend bool operator==(const TensorSource&, const TensorSource&) = default;
};

struct ApplicationNode {
  std::string name;  // [A-Za-z0-9_-]+, unique in the application, not "request"
  std::variant<ModelCall, Step> work;
  std::vector<TensorSource> inputs;
  std::vector<TensorSpec> outputs;
  std::vector<std::string> input_names{};  // parallel to inputs for a model; empty for a step
  friend bool operator==(const ApplicationNode&, const ApplicationNode&) = default;
};

struct ApplicationConfig {
  std::string name;                    // unique among models and applications
  std::vector<TensorSpec> inputs;      // of a request
  std::vector<TensorSpec> outputs;     // of its response
  std::vector<TensorSource> answered;  // the source of each output
  double slo_ms = 0;                   // for the whole application
  double rate = 0;
  std::vector<ApplicationNode> nodes;  // in topological order
  friend bool operator==(const ApplicationConfig&, const ApplicationConfig&) = default;
};

// All of models.json.
struct ServingConfig {
  std::vector<ModelConfig> models;
  std::vector<ApplicationConfig> applications;
};

[[nodiscard]] Result<ServingConfig> load_serving(const std::filesystem::path& file);
// Parses text in memory. `file` names the text in errors and is the base of its relative paths.
// With `errors`, stores all errors there and returns what could be read.
[[nodiscard]] Result<ServingConfig> parse_serving(std::string_view text,
                                                  const std::filesystem::path& file,
                                                  std::vector<Status>* errors = nullptr);

// The models alone.
[[nodiscard]] Result<std::vector<ModelConfig>> load_models(const std::filesystem::path& file);
[[nodiscard]] Result<std::vector<ModelConfig>> parse_models(std::string_view text,
                                                            const std::filesystem::path& file);

// The models that serve requests of this one: its buckets, or the model itself where its shapes are
// fixed. Buckets divide the rate as if all lengths up to the longest were equally frequent.
[[nodiscard]] std::vector<ModelConfig> buckets_of(const ModelConfig& model);
// Those of all models, in order.
[[nodiscard]] std::vector<ModelConfig> with_buckets(const std::vector<ModelConfig>& models);

// What the entry's "file" names, without the folders.
[[nodiscard]] std::string file_name_of(const ModelConfig& model);
// The same as a whole, for messages.
[[nodiscard]] std::string place_of(const ModelConfig& model);

// One item of the tensor along its first dimension. REQUIRES: shape is not empty.
[[nodiscard]] TensorSpec item_of(const TensorSpec& tensor);

// The output of that name. REQUIRES: the model has it.
[[nodiscard]] const TensorSpec& output_named(const ModelConfig& model, std::string_view name);

// Label files name the classes of an output: line n, counted from 0, names its element n. Lines may
// end in CRLF.
inline constexpr std::size_t kMostLabelBytes = 1U << 20U;  // per file
inline constexpr std::size_t kLongestLabel = 256;          // bytes

// The labels of `output`. Fails with not_found where the file cannot be read or is not a regular
// file. Fails with invalid where it is empty or too large, has more lines than the output has
// elements, or has a line that is too long or contains control characters.
[[nodiscard]] Result<std::vector<std::string>> load_labels(const std::filesystem::path& file,
                                                           const TensorSpec& output);
[[nodiscard]] Result<std::vector<std::string>> parse_labels(std::string_view text,
                                                            const std::filesystem::path& file,
                                                            const TensorSpec& output);

// Checks that a file looks like a TorchScript archive: a zip archive with the members that
// torch.jit.save writes. Does not read the members. Reads the ends of the file with pread. Fails
// with invalid where it is something else and with unavailable where it cannot be read.
[[nodiscard]] Status check_torchscript(int descriptor);

// The format of a model file. TorchScript and packages of AOTInductor (.pt2) are zip archives.
// Every other file is taken for ONNX, which has no signature. A package is native code.
enum class FileFormat : std::uint8_t { torchscript, onnx, package };

// Reads the first bytes and, of an archive, its directory. Fails with unavailable where the file
// cannot be read.
[[nodiscard]] Result<FileFormat> format_of(int descriptor);
[[nodiscard]] Result<FileFormat> format_of(const std::filesystem::path& file);

// Checks that a file is a TorchScript archive or an ONNX model, as far as check_torchscript and
// read_onnx_signature see it. Fails as these do.
[[nodiscard]] Status check_model_file(int descriptor);

// What a model file may be: TorchScript or ONNX; TorchScript; TorchScript, ONNX or an AOTInductor
// package; anything.
enum class ModelFormat : std::uint8_t { known, torchscript, native, any };

// Checks a file as far as that says. Fails as check_model_file().
[[nodiscard]] Status check_file_of(ModelFormat allowed, int descriptor);

}  // namespace gpulet::config

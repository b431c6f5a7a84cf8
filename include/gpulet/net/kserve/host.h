// InferenceHost and ProtocolHost: the server behind the HTTP and gRPC endpoints of the standard
// inference protocol. All calls and callbacks of an object happen on one thread, that of its
// io_context; no callback is made from within a call.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/queue_rules.h"
#include "gpulet/core/tensor.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/serve/values/application.h"
#include "gpulet/serve/values/served_model.h"

namespace gpulet::net::kserve {

// ---- settings
//
// The logging and trace extensions: Triton's settings, mapped to those of this server. HTTP and
// gRPC use the same names and values. Pure; any thread.

// A setting with its values as text.
struct Setting {
  std::string name;
  std::vector<std::string> values;  // empty: null, which requests the default

  friend bool operator==(const Setting&, const Setting&) = default;
};

// Parses a JSON object of scalars and lists of scalars. Fails with invalid.
[[nodiscard]] Result<std::vector<Setting>> read_settings(const Bytes& body);

// The least severe messages that the daemon logs.
enum class LogLevel : std::uint8_t { off, error, warning, info, debug, trace };

// The switches that Triton has instead of a level.
struct LogSwitches {
  bool error = true;
  bool warning = true;
  bool info = true;
  std::uint32_t verbose = 0;  // 1: debug; 2 and more: trace
};
[[nodiscard]] LogSwitches switches_of(LogLevel level);

// The level after applying the settings. Fails (invalid) for an unknown or fixed setting, or if the
// switches are not a level: one is on while a more severe one is off.
[[nodiscard]] Result<LogLevel> change_log(LogLevel level, std::span<const Setting> settings);

// Which requests are traced without being asked for (docs/tracing.md).
struct TraceSampling {
  static constexpr std::uint32_t kDefaultEvery = 1000;

  bool on = false;
  std::uint32_t every = kDefaultEvery;  // at least 1; kept while off

  friend bool operator==(const TraceSampling&, const TraceSampling&) = default;
};

// trace_level, trace_rate and so on, in the order of the protocol.
[[nodiscard]] std::vector<Setting> settings_of(const TraceSampling& sampling);

// The sampling after applying the settings. Fails (invalid) for an unknown or unsupported setting.
[[nodiscard]] Result<TraceSampling> change_tracing(TraceSampling sampling,
                                                   std::span<const Setting> settings);
// Checks one model's settings. All models share one sampling: also fails if they would change it.
[[nodiscard]] Status check_model_tracing(const TraceSampling& sampling,
                                         std::span<const Setting> settings);

// ---- model
//
// Models as the Open Inference Protocol shows them: description, names and states, ensembles,
// repository changes and configuration overrides, over HTTP and gRPC alike. Shapes in the protocol
// have the batch as first dimension, unless the model has none; shapes here are those of one
// request. Pure; any thread.

using ModelStatistics = InferenceStatistics;

// A model or an application. `version` is a decimal number, as the protocol requires: that of the
// models file, or else it counts the versions of that name since the frontend's start. Empty for an
// unloaded model.
struct Model {
  std::string name;
  std::string version = "1";
  std::vector<TensorSpec> inputs;   // of one request
  std::vector<TensorSpec> outputs;  // of one request
  std::uint32_t max_batch = 1;      // rows of one call
  ModelState state = ModelState::loading;
  std::string reason;                                            // why it is not ready
  std::shared_ptr<const serve::ModelDescription> description{};  // null: none
  std::shared_ptr<const serve::Application> application{};       // null: a model
  std::optional<QueueRules> queue{};  // empty: requests are ordered by deadline alone
  // The largest size of dynamic dimensions, which are -1 in the shapes (core/bucket.h); 0: none.
  std::int64_t longest = 0;
};
// The inputs of its longest requests.
[[nodiscard]] std::vector<TensorSpec> longest_inputs(const Model& model);

// ---- names

inline constexpr const char* kServerName = "gpulet";

// The names that Triton has for them: "onnxruntime_onnx", "pytorch_libtorch" or "ensemble".
[[nodiscard]] const char* platform_of(const Model& model);
// "onnxruntime" or "pytorch". Empty for an application.
[[nodiscard]] const char* backend_of(const Model& model);
// The names of the model file, and of the label file of an output; empty where there is none.
[[nodiscard]] std::string model_filename(const Model& model);
[[nodiscard]] std::string label_filename(const Model& model, std::size_t output);
// How the dimensions of an input are ordered where it is an image.
[[nodiscard]] config::ImageFormat input_format(const Model& model, std::size_t input);
// Whether requests may leave that input out.
[[nodiscard]] bool is_optional(const Model& model, std::size_t input);
// The largest batch, in Triton's words: 0 for a model without a batch dimension.
[[nodiscard]] std::uint32_t max_batch_size(const Model& model);
// The type in a model configuration: "TYPE_FP32"; BYTES is "TYPE_STRING".
[[nodiscard]] std::string config_type(DataType type);

// The supported extensions.
[[nodiscard]] std::vector<std::string> extensions(bool shared_memory);

// READY, LOADING, UNLOADING or UNAVAILABLE. An idle model is READY: the next request wakes it.
[[nodiscard]] std::string_view repository_state(ModelState state);
// Whether the protocol calls the model ready.
[[nodiscard]] bool takes_requests(ModelState state);

// ---- ensembles
//
// The model configuration describes an application as an ensemble whose steps are model calls. A
// tensor has the name of the request input or response output that it is, otherwise
// "<node>.<tensor>" as in the models file, with "[i]" for one item. Built-in steps (select, crop,
// resize, argmax) are not models; clients look up the model of every step, so that built-in steps
// are configuration parameters instead.

struct EnsembleStep {
  std::string model;
  std::map<std::string, std::string> input_map;   // model input -> tensor
  std::map<std::string, std::string> output_map;  // model output -> tensor
};

// In an order in which they can run.
[[nodiscard]] std::vector<EnsembleStep> ensemble_steps(const config::ApplicationConfig& graph);
// "step.<node>" -> operation and tensors, such as "resize(cut.image)".
[[nodiscard]] std::map<std::string, std::string> built_in_steps(
    const config::ApplicationConfig& graph);

// ---- repository changes

// The change for a load request. `config` is empty (read the model's entry of the server's models
// file again), the text of a models file (an object with "models"), or a model configuration that
// overrides the entry (read_configuration). Fails (invalid) where a models file is malformed or has
// other models than this one.
[[nodiscard]] Result<ModelsChange> loading(const std::string& model, std::string config);
// Fails (invalid) for any parameter of a load other than "config".
[[nodiscard]] Status check_load_parameter(std::string_view name);
// Prefixes a failure with "failed to load 'MODEL'", as Triton's Python examples expect.
[[nodiscard]] Status load_status(const std::string& model, const Status& status);
[[nodiscard]] ModelsChange unloading(const std::string& model);
// The protocol's answer to it: a model that is not loaded counts as unloaded.
[[nodiscard]] Status unload_status(const Status& status);

// The fields of a model configuration that a load can override. Empty: as in the models file.
struct Configuration {
  std::optional<std::uint32_t> max_batch{};
};

// Parses protobuf's JSON form: names in either case, integers with or without quotes. Other fields
// may be present with the value in the model's configuration, or with a default where it has none.
// Fails (invalid) with the field and the accepted values.
[[nodiscard]] Result<Configuration> read_configuration(const Model& model, std::string_view text);

// ---- host

// What inferences need of it.
class InferenceHost {
 public:
  using OnReplies = std::function<void(std::vector<InferReply>)>;  // in the order of the rows

  virtual ~InferenceHost() = default;

  // A model or an application, for requests to it. Null for an unknown name.
  [[nodiscard]] virtual std::shared_ptr<const Model> model(std::string_view name) = 0;

  // Submits the rows of one call. The id is valid for cancel() until `done`, when all have replies.
  [[nodiscard]] virtual ClientId infer(std::vector<InferRequest> rows, OnReplies done) = 0;
  // Drops the rows that still wait; `done` is not called.
  virtual void cancel(ClientId call) = 0;
};

// All of it. model() has the current state.
class ProtocolHost : public InferenceHost {
 public:
  using OnChanged = std::function<void(ModelsChanged)>;
  using Models = std::shared_ptr<const std::vector<Model>>;                // never null
  using Statistics = std::shared_ptr<const std::vector<ModelStatistics>>;  // never null
  using OnModels = std::function<void(const Models&)>;
  using OnStatistics = std::function<void(const Statistics&)>;

  // True if the model was unloaded and could be loaded again.
  [[nodiscard]] virtual bool is_unloaded(std::string_view name) const = 0;
  // All models by name, without their tensors, including unloaded ones. The list may be slightly
  // old: it may be long, so that requests share it for a while.
  virtual void models(OnModels done) = 0;
  // Of one model; no entry for an unknown name.
  virtual void statistics(std::string_view name, OnStatistics done) = 0;
  // Of all models by name; shared as models().
  virtual void statistics(OnStatistics done) = 0;
  // Runs long work on a background thread, one at a time, then calls done().
  virtual void in_background(std::function<void()> work, std::function<void()> done) = 0;
  // True while requests are accepted: not draining, and a plan is in force.
  [[nodiscard]] virtual bool ready() const = 0;

  // As `gpulet models load|unload`.
  virtual void change_models(ModelsChange change, OnChanged done) = 0;

  [[nodiscard]] virtual LogLevel log_level() const = 0;
  virtual void set_log_level(LogLevel level) = 0;
  // Applies to all models.
  [[nodiscard]] virtual TraceSampling trace_sampling() const = 0;
  virtual void set_trace_sampling(const TraceSampling& sampling) = 0;
};

}  // namespace gpulet::net::kserve

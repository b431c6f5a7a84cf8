#include "tools/serve/repository_config.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "gpulet/base/text.h"
#include "repository.pb.h"

namespace gpulet::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kDeepestMessage = 32;
constexpr std::size_t kMostListedTensors = 1024;
constexpr int kImageDimensions = 3;

Status wrong_config(std::string message) { return {StatusCode::invalid, std::move(message)}; }

// ---- the text

class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (text_.empty())
      text_ = fmt::format("line {}, column {}: {}", line + 1, column + 1, escaped(message));
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

Result<std::string> read_text(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return wrong_config("it is not a file");
  if (fs::file_size(file, error) > kLargestRepositoryConfig || error) {
    return wrong_config(
        fmt::format("it cannot be read, or has more than {} MB", kLargestRepositoryConfig >> 20U));
  }
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in && text.empty()) return wrong_config("it cannot be read; check its permissions");
  if (text.size() > kLargestRepositoryConfig) return wrong_config("it grows while it is read");
  if (!is_utf8(text)) return wrong_config("it is not UTF-8; save it as UTF-8");
  return text;
}

// An unknown field is an error: nobody knows what it would change.
Result<triton::ModelConfig> parse(const fs::path& file) {
  GPULET_TRY(const auto text, read_text(file));
  FirstError first;
  google::protobuf::TextFormat::Parser parser;
  parser.SetRecursionLimit(kDeepestMessage);
  parser.RecordErrorsTo(&first);
  triton::ModelConfig config;
  if (!parser.ParseFromString(text, &config)) return wrong_config(first.text());
  return config;
}

// ---- what runs the model

struct Runner {
  std::string_view name;  // of a platform or a backend
  std::string_view what;  // it runs; empty: a format that is served
  config::FileFormat format = config::FileFormat::onnx;
};
constexpr std::array kRunners{
    Runner{"onnxruntime_onnx", "", config::FileFormat::onnx},
    Runner{"onnxruntime", "", config::FileFormat::onnx},
    Runner{"pytorch_libtorch", "", config::FileFormat::torchscript},
    Runner{"torch_aoti", "", config::FileFormat::package},
    Runner{"pytorch", "", config::FileFormat::torchscript},
    Runner{"ensemble", "an ensemble"},
    Runner{"python", "a Python model"},
    Runner{"tensorrt_plan", "a TensorRT engine"},
    Runner{"tensorrt", "a TensorRT engine"},
    Runner{"tensorrtllm", "a TensorRT-LLM model"},
    Runner{"tensorflow_graphdef", "a TensorFlow model"},
    Runner{"tensorflow_savedmodel", "a TensorFlow model"},
    Runner{"tensorflow", "a TensorFlow model"},
    Runner{"openvino", "an OpenVINO model"},
    Runner{"dali", "a DALI pipeline"},
    Runner{"fil", "a FIL model of trees"},
    Runner{"vllm", "a vLLM model"},
};

struct ForeignFile {
  std::string_view name;
  std::string_view what;
};
constexpr std::array kForeignFiles{
    ForeignFile{"model.plan", "a TensorRT engine"},
    ForeignFile{"model.graphdef", "a TensorFlow model"},
    ForeignFile{"model.savedmodel", "a TensorFlow model"},
    ForeignFile{"model.py", "a Python model"},
    ForeignFile{"model.xml", "an OpenVINO model"},
    ForeignFile{"model.dali", "a DALI pipeline"},
    ForeignFile{"model.json", "a vLLM or FIL model"},
    ForeignFile{"xgboost.model", "a FIL model of trees"},
    ForeignFile{"xgboost.json", "a FIL model of trees"},
    ForeignFile{"model.txt", "a FIL model of trees"},
    ForeignFile{"checkpoint.tl", "a FIL model of trees"},
    ForeignFile{"model.pt2", "a program of torch.export"},
};

constexpr const char* kServed = "ONNX and TorchScript models are served";

Status not_served(std::string_view what, const std::string& key) {
  return wrong_config(fmt::format("it is {} ({}); {}", what, key, kServed));
}

Status read_runner(const std::string& key, const std::string& name, RepositoryConfig& config) {
  if (name.empty()) return {};
  const auto known = std::find_if(kRunners.begin(), kRunners.end(),
                                  [&name](const Runner& one) { return one.name == name; });
  const std::string said = fmt::format("{}: \"{}\"", key, name);
  if (known == kRunners.end()) return not_served("a model of another backend", said);
  if (!known->what.empty()) return not_served(known->what, said);
  if (config.format && *config.format != known->format)
    return wrong_config(R"("platform" and "backend" contradict each other; take one out)");
  config.format = known->format;
  return {};
}

Status check_runtime(const std::string& runtime) {
  constexpr std::array<std::string_view, 3> kOwn = {"", "libtriton_onnxruntime.so",
                                                    "libtriton_pytorch.so"};
  if (std::find(kOwn.begin(), kOwn.end(), runtime) != kOwn.end()) return {};
  return not_served("a model with a runtime of its own", fmt::format("runtime: \"{}\"", runtime));
}

// ---- fields

// How a field of config.pbtxt is treated. One that is not here is honoured.
enum class Use : std::uint8_t {
  tunes,   // it is named, and not used
  refuses  // it would change answers
};
struct Field {
  std::string_view name;
  Use use;
  std::string_view why{};  // it refuses the model
};
constexpr std::array kFields{
    Field{"optimization", Use::tunes},
    Field{"instance_group", Use::tunes},
    Field{"metric_tags", Use::tunes},
    Field{"model_warmup", Use::tunes},
    Field{"response_cache", Use::tunes},
    Field{"model_metrics", Use::tunes},
    Field{"rate_limiter", Use::tunes},
    Field{"ensemble_scheduling", Use::refuses,
          "it is an ensemble; write it as an application of a models file (docs/applications.md)"},
    Field{"sequence_batching", Use::refuses,
          "models that keep a state from request to request are not served"},
    Field{"batch_input", Use::refuses, "inputs that the server computes are not supported"},
    Field{"batch_output", Use::refuses, "outputs that the server divides are not supported"},
    Field{"cc_model_filenames", Use::refuses,
          "files that depend on the GPU are not supported; write default_model_filename"},
    Field{"model_operations", Use::refuses, "libraries of operations are not loaded"},
    Field{"model_repository_agents", Use::refuses, "agents are not run; give the file as it is"},
};

// Parameters with which Triton's backends answer otherwise.
constexpr std::array<std::string_view, 2> kAnsweringParameters = {"MODULE_METHOD_NAME",
                                                                  "TRITON_BATCH_STRATEGY_PATH"};

std::vector<const google::protobuf::FieldDescriptor*> set_fields(
    const google::protobuf::Message& message) {
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  return fields;
}

Status read_fields(const triton::ModelConfig& config, std::vector<std::string>& unused) {
  for (const auto* const set : set_fields(config)) {
    const auto field = std::find_if(kFields.begin(), kFields.end(),
                                    [set](const Field& one) { return one.name == set->name(); });
    if (field == kFields.end()) continue;
    if (field->use == Use::refuses)
      return wrong_config(fmt::format("{}: {}", field->name, field->why));
    unused.emplace_back(field->name);
  }
  const bool limits = std::any_of(config.instance_group().begin(), config.instance_group().end(),
                                  [](const auto& group) { return group.has_rate_limiter(); });
  if (limits) unused.emplace_back("instance_group.rate_limiter");
  for (const auto* const set : set_fields(config.dynamic_batching()))
    unused.push_back("dynamic_batching." + set->name());
  for (const auto& [key, value] : config.parameters()) {
    const auto* const answering =
        std::find(kAnsweringParameters.begin(), kAnsweringParameters.end(), key);
    if (answering != kAnsweringParameters.end())
      return wrong_config(fmt::format("parameters: \"{}\" is not supported; take it out", key));
    unused.push_back("parameters." + key);
  }
  std::sort(unused.begin(), unused.end());
  return {};
}

Result<VersionPolicy> read_policy(const triton::ModelVersionPolicy& policy) {
  VersionPolicy read;
  if (policy.has_all()) read.latest = 0;
  if (policy.has_latest()) read.latest = std::max(policy.latest().num_versions(), 1U);
  if (!policy.has_specific()) return read;
  std::set<std::uint64_t> versions;
  for (const std::int64_t version : policy.specific().versions()) {
    if (version < 1)
      return wrong_config(fmt::format("version_policy: there is no version {}", version));
    versions.insert(static_cast<std::uint64_t>(version));
  }
  if (versions.empty()) return wrong_config("version_policy: specific names no version");
  read.versions.assign(versions.begin(), versions.end());
  return read;
}

// ---- tensors

Result<std::optional<DataType>> type_of(triton::DataType type) {
  if (type == triton::TYPE_INVALID) return std::optional<DataType>();
  std::string name = triton::DataType_Name(type);
  if (name.starts_with("TYPE_")) name.erase(0, 5);
  if (type == triton::TYPE_STRING) name = "BYTES";
  const auto served = parse_data_type(name);
  if (!served) return wrong_config(fmt::format("{} is not served", triton::DataType_Name(type)));
  return served;
}

template <typename Tensor>
Result<ListedTensor> read_tensor(const Tensor& tensor) {
  if (tensor.name().empty()) return wrong_config("a tensor has no name; write it");
  const auto fail = [&tensor](const std::string& why) {
    return wrong_config(fmt::format("{}: {}", tensor.name(), why));
  };
  if (tensor.has_reshape()) {
    return fail("\"reshape\" is not supported; export the model with the shape that clients send");
  }
  if (tensor.is_shape_tensor()) return fail("\"is_shape_tensor\" is of TensorRT models only");
  if (tensor.is_non_linear_format_io())
    return fail("\"is_non_linear_format_io\" is of TensorRT models only");
  auto type = type_of(tensor.data_type());
  if (!type.ok()) return type.status().within(tensor.name());
  ListedTensor listed{tensor.name(), type.value()};
  if (tensor.dims().empty()) return listed;
  listed.dims.emplace(tensor.dims().begin(), tensor.dims().end());
  const bool possible =
      std::all_of(listed.dims->begin(), listed.dims->end(),
                  [](std::int64_t size) { return size == kAnyLength || size >= 1; });
  if (!possible) return fail("\"dims\" are -1 or at least 1");
  return listed;
}

template <typename Tensors>
Status read_tensors(const Tensors& tensors, std::vector<ListedTensor>& listed) {
  if (static_cast<std::size_t>(tensors.size()) > kMostListedTensors)
    return wrong_config(fmt::format("it lists more than {} tensors", kMostListedTensors));
  std::set<std::string> names;
  for (const auto& tensor : tensors) {
    GPULET_TRY(auto read, read_tensor(tensor));
    if (!names.insert(tensor.name()).second)
      return wrong_config(fmt::format("{} is listed twice; take one out", tensor.name()));
    listed.push_back(std::move(read));
  }
  return {};
}

Status read_input(const triton::ModelInput& input, RepositoryEntry& entry) {
  const auto fail = [&input](const std::string& why) {
    return wrong_config(fmt::format("{}: {}", input.name(), why));
  };
  for (ListedTensor& listed : entry.inputs) {
    if (listed.name == input.name()) listed.optional = input.optional();
  }
  if (input.allow_ragged_batch())
    return fail("\"allow_ragged_batch\": requests of different shapes do not share a batch");
  if (input.format() == triton::ModelInput::FORMAT_NONE) return {};
  if (!input.dims().empty() && input.dims().size() != kImageDimensions)
    return fail("\"format\": an image has three \"dims\"");
  entry.formats.emplace(input.name(), input.format() == triton::ModelInput::FORMAT_NCHW
                                          ? config::ImageFormat::nchw
                                          : config::ImageFormat::nhwc);
  return {};
}

Status read_tensors(const fs::path& folder, const triton::ModelConfig& config,
                    RepositoryEntry& entry) {
  Status read = read_tensors(config.input(), entry.inputs);
  if (read.ok()) read = read_tensors(config.output(), entry.outputs);
  for (auto input = config.input().begin(); read.ok() && input != config.input().end(); ++input)
    read = read_input(*input, entry);
  if (!read.ok()) return read;
  for (const auto& output : config.output()) {
    if (output.label_filename().empty()) continue;
    if (fs::path(output.label_filename()).filename() != output.label_filename()) {
      return wrong_config(
          fmt::format("{}: label_filename has to be in the model's folder", output.name()));
    }
    entry.labels.emplace(output.name(), fs::absolute(folder / output.label_filename()));
  }
  return {};
}

Status read(const fs::path& folder, const triton::ModelConfig& from, RepositoryConfig& config) {
  Status status = read_fields(from, config.entry.unused);
  if (status.ok()) status = read_runner("platform", from.platform(), config);
  if (status.ok()) status = read_runner("backend", from.backend(), config);
  if (status.ok()) status = check_runtime(from.runtime());
  if (!status.ok()) return status;
  if (from.model_transaction_policy().decoupled()) {
    return wrong_config(
        "model_transaction_policy: decoupled: models that send several responses to a request are "
        "not served");
  }
  const int batch = from.max_batch_size();
  if (batch < 0 || batch > static_cast<int>(config::kLargestBatch)) {
    return wrong_config(
        fmt::format("max_batch_size {}: write 0 to {}", batch, config::kLargestBatch));
  }
  GPULET_TRY(auto policy, read_policy(from.version_policy()));
  config.policy = std::move(policy);
  config.entry.name = from.name();
  config.entry.configured = true;
  config.entry.max_batch = static_cast<std::uint32_t>(batch);
  config.file_name = from.default_model_filename();
  return read_tensors(folder, from, config.entry);
}

}  // namespace

Result<RepositoryConfig> read_repository_config(const fs::path& file) {
  const auto parsed = parse(file);
  if (!parsed.ok()) return parsed.status().within(kRepositoryConfig);
  RepositoryConfig config;
  if (Status status = read(file.parent_path(), parsed.value(), config); !status.ok())
    return status.within(kRepositoryConfig);
  return config;
}

std::string foreign_model(const std::string& file_name) {
  const auto known = std::find_if(kForeignFiles.begin(), kForeignFiles.end(),
                                  [&](const ForeignFile& one) { return one.name == file_name; });
  return std::string(known == kForeignFiles.end() ? std::string_view() : known->what);
}

}  // namespace gpulet::tools

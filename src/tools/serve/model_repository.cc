#include "tools/serve/model_repository.h"

#include <fmt/format.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/config/readers.h"
#include "kserve.pb.h"

namespace gpulet::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfig = "config.pbtxt";
constexpr std::uintmax_t kLargestConfig = 1U << 20U;

Status refused(std::string message) { return {StatusCode::invalid, std::move(message)}; }

class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (text_.empty()) text_ = fmt::format("line {}, column {}: {}", line + 1, column + 1, message);
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// The end of the comment, the quoted text or the word that begins at `at`, or of the one character
// there.
std::size_t token_end(std::string_view text, std::size_t at) {
  const char first = text[at];
  std::size_t end = at + 1;
  if (first == '#') {
    while (end < text.size() && text[end] != '\n') ++end;
  } else if (first == '"' || first == '\'') {
    while (end < text.size() && text[end] != first) end += text[end] == '\\' ? 2 : 1;
    ++end;
  } else if (is_name(first)) {
    while (end < text.size() && is_name(text[end])) ++end;
  }
  return std::min(end, text.size());
}

// Writes "field [" as "field: [", which means the same. protobuf 3.21 skips an unknown field that
// holds a list of messages only in the second form.
std::string with_colons(std::string_view text) {
  std::string written;
  bool after_field = false;  // no colon has come since the word
  bool after_colon = false;
  for (std::size_t at = 0, end = 0; at < text.size(); at = end) {
    end = token_end(text, at);
    const std::string_view token = text.substr(at, end - at);
    const char first = token.front();
    const bool blank = first == '#' || std::string_view(" \t\r\n").find(first) != text.npos;
    if (first == '[' && after_field) written += ':';
    written += token;
    if (blank) continue;
    after_field = is_name(first) && !after_colon;
    after_colon = first == ':';
  }
  return written;
}

// Unknown fields are skipped: most of them choose how Triton runs a model.
Result<inference::ModelConfig> parse_config(const fs::path& file) {
  std::error_code error;
  if (fs::file_size(file, error) > kLargestConfig || error)
    return refused(fmt::format("{}: cannot be read, or has more than 1 MB", file.string()));
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  FirstError first;
  google::protobuf::TextFormat::Parser parser;
  parser.AllowUnknownField(true);
  parser.RecordErrorsTo(&first);
  inference::ModelConfig config;
  if (!parser.ParseFromString(with_colons(text), &config))
    return refused(fmt::format("{}: {}", file.string(), first.text()));
  return config;
}

std::optional<DataType> type_of(inference::DataType type) {
  std::string name = inference::DataType_Name(type);
  if (name.starts_with("TYPE_")) name.erase(0, 5);
  if (type == inference::TYPE_STRING) name = "BYTES";
  return parse_data_type(name);
}

Status refused_reshape(const std::string& tensor) {
  return refused(
      fmt::format("{}: {}: \"reshape\" is not supported; export the model with the shape that "
                  "clients send",
                  kConfig, tensor));
}

// An input or output of config.pbtxt. Without batching, `dims` begin with a batch of one.
template <typename Tensor>
Result<TensorSpec> spec_of(const Tensor& tensor, bool batched) {
  const auto fail = [&tensor](const std::string& why) {
    return refused(fmt::format("{}: {}: {}", kConfig, tensor.name(), why));
  };
  const auto type = type_of(tensor.data_type());
  if (!type)
    return fail(fmt::format("{} is not served", inference::DataType_Name(tensor.data_type())));
  std::vector<std::int64_t> shape(tensor.dims().begin(), tensor.dims().end());
  if (!batched) {
    if (shape.empty() || (shape.front() != 1 && shape.front() != -1)) {
      return fail(
          "with max_batch_size 0, the first of \"dims\" has to be the batch, 1 or -1; set "
          "max_batch_size if the model takes batches");
    }
    shape.erase(shape.begin());
  }
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t size) { return size < 1; }))
    return fail(
        "\"dims\" of -1 are not supported for this format; write the sizes that clients send");
  return TensorSpec{tensor.name(), *type, std::move(shape)};
}

// The folder of the highest version; empty: there is none.
fs::path highest_version(const fs::path& model) {
  fs::path highest;
  std::uint64_t most = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(model, error)) {
    const auto version = parse_number<std::uint64_t>(entry.path().filename().string());
    std::error_code ignored;
    if (!version || *version <= most || !entry.is_directory(ignored)) continue;
    most = *version;
    highest = entry.path();
  }
  return highest;
}

Result<fs::path> model_file(const fs::path& version, const std::string& named) {
  const std::vector<std::string> candidates =
      named.empty() ? std::vector<std::string>{"model.onnx", "model.pt"} : std::vector{named};
  for (const std::string& candidate : candidates) {
    std::error_code error;
    const fs::path file = version / candidate;
    if (fs::path(candidate).filename() == candidate && fs::is_regular_file(file, error))
      return fs::absolute(file).lexically_normal();
  }
  return Status(StatusCode::not_found,
                fmt::format("{} has no file {}; ONNX and TorchScript models are served",
                            version.string(), fmt::join(candidates, " or ")));
}

Status read_config(const fs::path& folder, const inference::ModelConfig& config,
                   RepositoryEntry& entry) {
  if (config.has_ensemble_scheduling()) {
    return refused(
        fmt::format("{}: an ensemble; write it as an application of a models file "
                    "(docs/applications.md)",
                    kConfig));
  }
  if (config.has_sequence_batching()) {
    return refused(
        fmt::format("{}: sequence_batching: models that keep a state from request to request are "
                    "not served",
                    kConfig));
  }
  if (config.model_transaction_policy().decoupled()) {
    return refused(fmt::format(
        "{}: decoupled: models that send several responses to a request are not served", kConfig));
  }
  if (!config.name().empty()) entry.name = config.name();
  if (config.max_batch_size() < 0 ||
      config.max_batch_size() > static_cast<int>(config::kLargestBatch)) {
    return refused(fmt::format("{}: max_batch_size {}: write 0 to {}", kConfig,
                               config.max_batch_size(), config::kLargestBatch));
  }
  const bool batched = config.max_batch_size() > 0;
  entry.max_batch = batched ? static_cast<std::uint32_t>(config.max_batch_size()) : 1;
  for (const auto& input : config.input()) {
    if (input.has_reshape()) return refused_reshape(input.name());
    entry.listed_inputs.push_back(input.name());
  }
  for (const auto& output : config.output()) {
    if (output.has_reshape()) return refused_reshape(output.name());
    entry.listed_outputs.push_back(output.name());
  }
  // An ONNX file describes its own tensors.
  if (entry.file.extension() != ".onnx") {
    for (const auto& input : config.input()) {
      auto spec = spec_of(input, batched);
      if (!spec.ok()) return spec.status();
      entry.inputs.push_back(std::move(spec).value());
    }
    for (const auto& output : config.output()) {
      auto spec = spec_of(output, batched);
      if (!spec.ok()) return spec.status();
      entry.outputs.push_back(std::move(spec).value());
    }
  }
  for (const auto& input : config.input()) {
    if (input.format() == inference::ModelInput::FORMAT_NONE) continue;
    entry.formats.emplace(input.name(), input.format() == inference::ModelInput::FORMAT_NCHW
                                            ? config::ImageFormat::nchw
                                            : config::ImageFormat::nhwc);
  }
  for (const auto& output : config.output()) {
    if (output.label_filename().empty()) continue;
    if (fs::path(output.label_filename()).filename() != output.label_filename())
      return refused(fmt::format("{}: {}: label_filename has to be in the model's folder", kConfig,
                                 output.name()));
    entry.labels.emplace(output.name(), fs::absolute(folder / output.label_filename()));
  }
  return {};
}

Result<RepositoryEntry> read_entry(const fs::path& folder) {
  RepositoryEntry entry;
  entry.name = fs::absolute(folder).lexically_normal().filename().string();
  const fs::path version = highest_version(folder);
  if (version.empty())
    return refused("has no folder of a version, such as 1/, with the model's file");
  std::error_code error;
  inference::ModelConfig config;
  const bool configured = fs::exists(folder / kConfig, error);
  if (configured) {
    auto parsed = parse_config(folder / kConfig);
    if (!parsed.ok()) return parsed.status();
    config = std::move(parsed).value();
  }
  auto file = model_file(version, config.default_model_filename());
  if (!file.ok()) return file.status();
  entry.file = std::move(file).value();
  if (!configured) return entry;
  if (Status read = read_config(folder, config, entry); !read.ok()) return read;
  return entry;
}

bool is_model(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / kConfig, error) || !highest_version(folder).empty();
}

}  // namespace

Result<std::vector<RepositoryEntry>> read_repository(const fs::path& folder) {
  std::vector<fs::path> folders;
  if (is_model(fs::absolute(folder).lexically_normal())) {
    folders.push_back(folder);
  } else {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
      std::error_code ignored;
      if (entry.is_directory(ignored) && is_model(entry.path())) folders.push_back(entry.path());
    }
    if (error) return Status(StatusCode::not_found, error.message());
  }
  std::sort(folders.begin(), folders.end());
  if (folders.empty()) {
    return refused(
        "no models here; a repository has a folder for each, with config.pbtxt and a "
        "folder of its version, such as resnet18/1/model.onnx");
  }
  std::vector<RepositoryEntry> entries;
  for (const fs::path& one : folders) {
    auto entry = read_entry(one);
    if (!entry.ok()) return entry.status().within(one.filename().string());
    entries.push_back(std::move(entry).value());
  }
  return entries;
}

}  // namespace gpulet::tools

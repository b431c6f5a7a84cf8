// What the readers of all configuration files share: text of a file, documents to values, relative
// paths, quoting, and objects that occur in several kinds of files. Errors of the read_* functions
// are recorded at the cursor. Any thread.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/text.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/config/model_config.h"
#include "gpulet/config/readers.h"

namespace gpulet::config {

// Fails with not_found, naming the file and why it cannot be read.
[[nodiscard]] Result<std::string> read_text(const std::filesystem::path& file);

// `path` as written in `file`, made absolute and normal. A relative path starts at the file's
// folder.
[[nodiscard]] std::filesystem::path resolve(const std::filesystem::path& file,
                                            const std::string& path);

// The text in double quotes, with control characters escaped and long text cut.
[[nodiscard]] std::string in_quotes(std::string_view text);

// Parses the text and passes its root to `read(root) -> T`. Without `errors`, fails with the
// document's first error. With `errors`, stores all of them there and returns what could be read,
// with neutral values in the place of what could not.
template <typename Read>
[[nodiscard]] auto parse_document(std::string_view text, const std::filesystem::path& file,
                                  std::vector<Status>* errors, Read read)
    -> Result<decltype(read(std::declval<const JsonCursor&>()))> {
  const Result<JsonCursor> root = JsonCursor::parse(text, file.string());
  if (!root.ok()) {
    if (errors != nullptr) errors->push_back(root.status());
    return root.status();
  }
  auto value = read(root.value());
  if (errors != nullptr) {
    *errors = root.value().errors();
    return value;
  }
  if (Status status = root.value().status(); !status.ok()) return status;
  return value;
}

// The same for a file, through `parse(text, file, errors)`.
template <typename Parse>
[[nodiscard]] auto load_file(const std::filesystem::path& file, Parse parse,
                             std::vector<Status>* errors = nullptr)
    -> decltype(parse(std::string_view(), file, errors)) {
  const Result<std::string> text = read_text(file);
  if (!text.ok()) {
    if (errors != nullptr) errors->push_back(text.status());
    return text.status();
  }
  return parse(text.value(), file, errors);
}

// Finds names that occur twice. `what` is singular: "model".
class UniqueNames {
 public:
  explicit UniqueNames(std::string what) : what_(std::move(what)) {}
  // Records an error at the cursor where the name was added before.
  void add(const std::string& name, const JsonCursor& place);

 private:
  std::string what_;
  std::set<std::string> seen_;
};

// True for devices that are real GPUs: partitioned by mps, mig or green.
[[nodiscard]] bool is_on_gpu(const DeviceConfig& device);

// The list "devices" of a node in a cluster file or of a backend file: at least one device, and no
// core or GPU in two devices.
[[nodiscard]] std::vector<DeviceConfig> read_devices(const JsonCursor& cursor);

[[nodiscard]] std::vector<TensorSpec> read_tensors(const JsonCursor& cursor, std::size_t least);

// The list under "models" of the document.
[[nodiscard]] std::vector<ModelConfig> read_models(const JsonCursor& root,
                                                   const std::filesystem::path& file);

}  // namespace gpulet::config

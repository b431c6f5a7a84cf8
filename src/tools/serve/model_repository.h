// Folders in the layout of Triton's model repositories: NAME/config.pbtxt and NAME/VERSION/FILE.
//
// A field of config.pbtxt that changes answers is honoured, or its model is left out with the
// reason. Fields that only tune how Triton runs a model are named in RepositoryEntry::unused. What
// is wrong with one model's folder leaves out that model alone.
//
// The folder is not trusted: the size of config.pbtxt is limited. Blocking file I/O; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/config/model_config.h"
#include "gpulet/core/tensor.h"

namespace gpulet::tools {

// A tensor of config.pbtxt.
struct ListedTensor {
  std::string name;
  std::optional<DataType> type{};  // empty: it is not said
  // -1: any size. Without the batch dimension where RepositoryEntry::max_batch is above 0. Empty:
  // it is not said.
  std::optional<std::vector<std::int64_t>> dims{};
  bool optional = false;  // of an input: a request may leave it out
};

struct RepositoryEntry {
  std::string name;
  std::filesystem::path file;  // absolute
  config::FileFormat format = config::FileFormat::onnx;
  std::uint64_t version = 0;  // the number of its folder; at least 1
  bool configured = false;    // there is a config.pbtxt
  std::uint32_t max_batch = 0;
  // As listed; TorchScript's in the order of their positions. Empty: config.pbtxt lists none.
  std::vector<ListedTensor> inputs{};
  std::vector<ListedTensor> outputs{};
  std::map<std::string, std::filesystem::path> labels{};  // by output
  std::map<std::string, config::ImageFormat> formats{};   // by input, where config.pbtxt has one
  std::vector<std::string> unused{};                      // keys of config.pbtxt
};

// A model that is not served.
struct LeftOut {
  std::string name;
  Status reason;
};

struct Repository {
  std::vector<RepositoryEntry> entries{};  // by name
  std::vector<LeftOut> left_out{};         // by name
};

// Whether the folder is one model, and not a repository of several.
[[nodiscard]] bool is_model_folder(const std::filesystem::path& folder);

// The models of the repository, or the model, if the folder is one. Fails with not_found where the
// folder cannot be read, and with invalid where it has no folder at all.
[[nodiscard]] Result<Repository> read_repository(const std::filesystem::path& folder);

}  // namespace gpulet::tools

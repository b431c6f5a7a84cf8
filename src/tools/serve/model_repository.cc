#include "tools/serve/model_repository.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/config/readers.h"
#include "tools/serve/proxy_formats.h"
#include "tools/serve/repository_config.h"

namespace gpulet::tools {
namespace {

namespace fs = std::filesystem;

Status refused(std::string message) { return {StatusCode::invalid, std::move(message)}; }

// ---- versions

struct Version {
  std::uint64_t number = 0;
  fs::path folder;
};

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

// The number that a folder's name is, as Triton reads it: without leading zeros.
std::optional<std::uint64_t> version_number(const fs::path& folder) {
  const std::string name = folder.filename().string();
  const auto number = parse_number<std::uint64_t>(name);
  return number && *number > 0 && !name.starts_with('0') ? number : std::nullopt;
}

// The paths in the folder, by name.
Result<std::vector<fs::path>> paths_in(const fs::path& folder) {
  std::vector<fs::path> paths;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    paths.push_back(at->path());
  if (error)
    return Status(StatusCode::not_found, fmt::format("it cannot be read: {}", error.message()));
  std::sort(paths.begin(), paths.end());
  return paths;
}

// The latest version first.
Result<std::vector<Version>> versions_in(const fs::path& folder) {
  GPULET_TRY(const auto paths, paths_in(folder));
  std::vector<Version> versions;
  for (const fs::path& path : paths) {
    const auto number = version_number(path);
    if (number && is_folder(path)) versions.push_back({*number, path});
  }
  std::sort(versions.begin(), versions.end(),
            [](const Version& a, const Version& b) { return a.number > b.number; });
  return versions;
}

std::string list_of(const std::vector<Version>& versions) {
  std::vector<std::string> numbers;
  for (const Version& version : versions) numbers.push_back(std::to_string(version.number));
  std::reverse(numbers.begin(), numbers.end());
  return joined(numbers);
}

Status several(const std::string& said) {
  return refused(
      fmt::format("{}: version_policy: {}, but one version of a model is served; write "
                  "version_policy: {{specific {{versions: [N]}}}}",
                  kRepositoryConfig, said));
}

Result<Version> choose_version(const std::vector<Version>& versions, const VersionPolicy& policy) {
  if (versions.empty())
    return refused("it has no folder of a version, such as 1/, with the model's file");
  if (policy.versions.empty()) {
    const bool one = policy.latest == 1 || versions.size() == 1;
    if (one) return versions.front();
    return several(policy.latest == 0
                       ? fmt::format("all of {}", list_of(versions))
                       : fmt::format("the latest {} of {}", policy.latest, list_of(versions)));
  }
  if (policy.versions.size() > 1)
    return several(fmt::format("versions {}", fmt::join(policy.versions, ", ")));
  const auto named = std::find_if(versions.begin(), versions.end(), [&](const Version& one) {
    return one.number == policy.versions.front();
  });
  if (named != versions.end()) return *named;
  return refused(fmt::format("{}: version_policy: it has no folder {}, only {}", kRepositoryConfig,
                             policy.versions.front(), list_of(versions)));
}

// ---- the model's file

std::vector<std::string> candidates_of(const RepositoryConfig& config) {
  if (!config.file_name.empty()) return {config.file_name};
  if (!config.format) return {"model.onnx", "model.pt"};
  switch (*config.format) {
    case config::FileFormat::onnx:
      return {"model.onnx"};
    case config::FileFormat::torchscript:
      return {"model.pt"};
    case config::FileFormat::package:
      break;
  }
  return {"model.pt2"};
}

Status no_file(const fs::path& version, const std::vector<std::string>& candidates) {
  const auto paths = paths_in(version);
  if (!paths.ok()) return paths.status().within(version.string());
  for (const fs::path& path : paths.value()) {
    const std::string what = foreign_model(path.filename().string());
    if (!what.empty()) {
      return refused(fmt::format("it is {} ({}); ONNX and TorchScript models are served", what,
                                 path.filename().string()));
    }
  }
  return {StatusCode::not_found,
          fmt::format("{} has no file {}; ONNX and TorchScript models are served", version.string(),
                      fmt::join(candidates, " or "))};
}

Result<fs::path> find_file(const fs::path& version, const RepositoryConfig& config) {
  const std::vector<std::string> candidates = candidates_of(config);
  for (const std::string& candidate : candidates) {
    if (fs::path(candidate).filename() != candidate) {
      return refused(
          fmt::format("{}: default_model_filename: write the name of a file in the folder of the "
                      "version",
                      kRepositoryConfig));
    }
    const fs::path file = version / candidate;
    std::error_code error;
    if (fs::is_regular_file(file, error)) return fs::absolute(file).lexically_normal();
    if (fs::is_directory(file, error)) {
      return refused(fmt::format(
          "{} is a folder; export the model with all its weights in one file", file.string()));
    }
  }
  return no_file(version, candidates);
}

// ---- TorchScript's tensors

// The position in a name such as "INPUT__0".
std::optional<std::size_t> position_of(const std::string& name) {
  const std::size_t at = name.rfind("__");
  if (at == std::string::npos || at == 0) return std::nullopt;
  return parse_number<std::size_t>(std::string_view(name).substr(at + 2));
}

// Triton passes a tensor with such a name at that position, wherever it is listed.
Status sort_by_position(std::vector<ListedTensor>& tensors) {
  const auto positioned =
      std::count_if(tensors.begin(), tensors.end(),
                    [](const ListedTensor& one) { return position_of(one.name).has_value(); });
  if (positioned == 0) return {};
  if (static_cast<std::size_t>(positioned) == tensors.size()) {
    std::sort(tensors.begin(), tensors.end(), [](const ListedTensor& a, const ListedTensor& b) {
      return *position_of(a.name) < *position_of(b.name);
    });
    std::size_t next = 0;
    const bool complete =
        std::all_of(tensors.begin(), tensors.end(),
                    [&next](const ListedTensor& one) { return *position_of(one.name) == next++; });
    if (complete) return {};
  }
  return refused(fmt::format(
      "{}: tensors of a TorchScript file are named NAME__0, NAME__1, ... without a gap, or all of "
      "them otherwise, in the order of the arguments",
      kRepositoryConfig));
}

// ---- models

Result<RepositoryEntry> read_entry(const fs::path& folder) {
  RepositoryConfig config;
  std::error_code error;
  if (fs::exists(fs::symlink_status(folder / kRepositoryConfig, error))) {
    GPULET_TRY(auto read, read_repository_config(folder / kRepositoryConfig));
    config = std::move(read);
  }
  GPULET_TRY(const auto versions, versions_in(folder));
  GPULET_TRY(const auto version, choose_version(versions, config.policy));
  GPULET_TRY(auto file, find_file(version.folder, config));
  const auto format = config::format_of(file);
  if (!format.ok()) return format.status().within(file.string());
  if (config.format && *config.format != format.value()) {
    return refused(fmt::format("{}: the platform is that of {}, but {} is {}", kRepositoryConfig,
                               name_of(*config.format), file.string(), name_of(format.value())));
  }
  RepositoryEntry entry = std::move(config.entry);
  if (entry.name.empty()) entry.name = fs::absolute(folder).lexically_normal().filename().string();
  if (!config::is_name(entry.name)) {
    return refused(
        fmt::format("\"{}\" is not a valid name for a model; write one of letters, "
                    "digits, \".\", \"_\" and \"-\"",
                    escaped(entry.name)));
  }
  entry.file = std::move(file);
  entry.format = format.value();
  entry.version = version.number;
  if (entry.format == config::FileFormat::onnx) return entry;
  Status sorted = sort_by_position(entry.inputs);
  if (sorted.ok()) sorted = sort_by_position(entry.outputs);
  if (!sorted.ok()) return sorted;
  return entry;
}

// Whether the folder has a version of a model, and is not itself a model whose name is a number.
bool is_version_folder(const fs::path& folder) {
  if (!version_number(folder) || !is_folder(folder)) return false;
  std::error_code error;
  if (fs::exists(folder / kRepositoryConfig, error)) return false;
  const auto versions = versions_in(folder);
  return !versions.ok() || versions.value().empty();
}

void add_entry(const fs::path& folder, Repository& repository) {
  auto entry = read_entry(folder);
  if (entry.ok()) {
    repository.entries.push_back(std::move(entry).value());
  } else {
    repository.left_out.push_back({escaped(folder.filename().string()), entry.status()});
  }
}

// Triton takes every folder for a model.
void add_path(const fs::path& path, Repository& repository) {
  if (path.filename().string().starts_with('.')) return;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const bool broken = error && fs::is_symlink(fs::symlink_status(path, error));
  if (broken || (!fs::exists(status) && fs::is_symlink(fs::symlink_status(path, error)))) {
    repository.left_out.push_back(
        {escaped(path.filename().string()), refused("it is a symbolic link that leads nowhere")});
  } else if (fs::is_directory(status)) {
    add_entry(path, repository);
  }
}

}  // namespace

bool is_model_folder(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(folder / kRepositoryConfig, error))) return true;
  const auto paths = paths_in(folder);
  return paths.ok() && std::any_of(paths.value().begin(), paths.value().end(), is_version_folder);
}

Result<Repository> read_repository(const fs::path& folder) {
  Repository repository;
  const fs::path whole = fs::absolute(folder).lexically_normal();
  if (is_model_folder(whole)) {
    add_entry(whole.has_filename() ? whole : whole.parent_path(), repository);
    return repository;
  }
  GPULET_TRY(const auto paths, paths_in(whole));
  for (const fs::path& path : paths) add_path(path, repository);
  if (!repository.entries.empty() || !repository.left_out.empty()) return repository;
  return refused(
      "no models here; a repository has a folder for each, with config.pbtxt and a "
      "folder of its version, such as resnet18/1/model.onnx");
}

}  // namespace gpulet::tools

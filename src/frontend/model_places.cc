#include "model_places.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include "gpulet/config/torchscript_file.h"

namespace gpulet::frontend {
namespace {

constexpr mode_t kReadableByOthers = S_IRGRP | S_IROTH;

bool lies_below(const std::filesystem::path& file, const std::filesystem::path& folder) {
  const auto ends = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  return ends.first == folder.end() && ends.second != file.end();
}

// Links and ".." followed; empty where that fails.
std::filesystem::path real(const std::filesystem::path& path) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(path, error);
  if (error) return {};
  auto found = std::filesystem::weakly_canonical(absolute, error);
  return error ? std::filesystem::path() : found;
}

class NamedFile {
 public:
  explicit NamedFile(const std::filesystem::path& file)
      : descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)) {}
  ~NamedFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  NamedFile(const NamedFile&) = delete;
  NamedFile& operator=(const NamedFile&) = delete;
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  const int descriptor_;
};

std::vector<std::filesystem::path> secrets_of(const config::FrontendConfig& config) {
  std::vector<std::filesystem::path> secrets{config.tokens.admin, config.tokens.inference,
                                             config.tokens.observe};
  if (config.tls) secrets.push_back(config.tls->key);
  if (config.backend_tls) secrets.push_back(config.backend_tls->key);
  return secrets;
}

bool is_same_file(const struct stat& facts, const std::filesystem::path& other) {
  struct stat its {};
  return !other.empty() && ::stat(other.c_str(), &its) == 0 && its.st_dev == facts.st_dev &&
         its.st_ino == facts.st_ino;
}

}  // namespace

ModelPlaces::ModelPlaces(const config::FrontendConfig& config,
                         const std::vector<config::ModelConfig>& known)
    : config_(config) {
  if (config.model_root) root_ = real(*config.model_root);
  for (const config::ModelConfig& model : known) folders_.insert(real(model.file).parent_path());
}

Result<std::filesystem::path> ModelPlaces::admit(const std::filesystem::path& file) const {
  return admit(file, config_.model_format);
}

Result<std::filesystem::path> ModelPlaces::admit_text(const std::filesystem::path& file) const {
  return admit(file, config::ModelFormat::any);
}

Result<std::filesystem::path> ModelPlaces::admit(const std::filesystem::path& file,
                                                 config::ModelFormat format) const {
  std::filesystem::path found = real(file);
  if (Status place = check_place(found); !place.ok()) return place.within(file.string());
  if (Status contents = check_contents(found, format); !contents.ok())
    return contents.within(file.string());
  return found;
}

Status ModelPlaces::check_place(const std::filesystem::path& file) const {
  if (config_.model_root) {
    if (!file.empty() && !root_.empty() && lies_below(file, root_)) return {};
    return {StatusCode::invalid, "it lies outside of model_root, " + config_.model_root->string() +
                                     "; put it there, or add the model to the models file"};
  }
  if (!file.empty() && folders_.contains(file.parent_path())) return {};
  return {StatusCode::invalid, "it lies outside of the folders that the models of " +
                                   config_.models.string() +
                                   " are in; put it there, add the model to that file, or set "
                                   "\"model_root\" of the frontend"};
}

Status ModelPlaces::check_contents(const std::filesystem::path& file,
                                   config::ModelFormat format) const {
  const NamedFile open(file);
  if (open.descriptor() < 0) {
    return {errno == ENOENT ? StatusCode::not_found : StatusCode::invalid,
            "it cannot be opened: " + std::string(std::strerror(errno))};
  }
  struct stat facts {};
  if (::fstat(open.descriptor(), &facts) != 0 || !S_ISREG(facts.st_mode))
    return {StatusCode::invalid, "it is no regular file"};
  for (const std::filesystem::path& secret : secrets_of(config_)) {
    if (is_same_file(facts, secret))
      return {StatusCode::invalid, "it is a key or a tokens file of the frontend"};
  }
  if (!config_.model_root && (facts.st_mode & kReadableByOthers) == 0) {
    return {StatusCode::invalid,
            "only its owner may read it, so it may be a secret; chmod o+r it, or set "
            "\"model_root\" of the frontend"};
  }
  if (format == config::ModelFormat::any) return {};
  return config::check_torchscript(open.descriptor());
}

}  // namespace gpulet::frontend

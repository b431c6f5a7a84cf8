// What a CatalogueLoader reads of files that may not answer (FileGuard).
#include <utility>

#include "frontend/catalogue/catalogue.h"

namespace gpulet::frontend {

Result<CatalogueLoader::HashedFile> CatalogueLoader::hash_of(const std::filesystem::path& file) {
  const auto known = hashes_.find(file);
  std::optional<HashedFile> before;
  if (known != hashes_.end()) before = known->second;
  Result<HashedFile> hashed = guard_->run<HashedFile>(
      file, [file, before, hash = reading_.hash](ReadProgress& progress) -> Result<HashedFile> {
        const std::optional<FileStamp> stamp = stamp_of(file);
        if (stamp && before && before->stamp == *stamp) return *before;
        GPULET_TRY(std::string sha256, hash(file, progress));
        // For clients only: the backend looks at its own copy of the file.
        const auto format = config::format_of(file);
        return HashedFile{stamp.value_or(FileStamp()), std::move(sha256),
                          format.ok() ? format.value() : config::FileFormat::torchscript};
      });
  if (hashed.ok() && hashed.value().stamp != FileStamp())
    hashes_.insert_or_assign(file, hashed.value());
  return hashed;
}

Result<config::ServingConfig> CatalogueLoader::read_serving() const {
  return guard_->run<config::ServingConfig>(config_.models, [file = config_.models](ReadProgress&) {
    return config::load_serving(file);
  });
}

Result<CatalogueLoader::PolicyPointer> CatalogueLoader::policy_for(
    const config::ServingConfig& serving) const {
  return guard_->run<PolicyPointer>(
      "the folders of the models", [config = config_, models = serving.models](ReadProgress&) {
        return Result<PolicyPointer>(std::make_shared<const ModelPathPolicy>(config, models));
      });
}

Result<std::filesystem::path> CatalogueLoader::admit(const PolicyPointer& policy,
                                                     const std::filesystem::path& file,
                                                     bool is_text) const {
  return guard_->run<std::filesystem::path>(file, [policy, file, is_text](ReadProgress&) {
    return is_text ? policy->admit_text(file) : policy->admit(file);
  });
}

}  // namespace gpulet::frontend

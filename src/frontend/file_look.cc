#include "file_look.h"

#include <sys/stat.h>

namespace gpulet::frontend {
namespace {

constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;

FileLook look_of(const struct stat& facts) {
  return {facts.st_dev, facts.st_ino, facts.st_size,
          facts.st_mtim.tv_sec * kNanosecondsPerSecond + facts.st_mtim.tv_nsec};
}

}  // namespace

std::optional<FileLook> look_at(const std::filesystem::path& file) {
  struct stat facts {};
  if (::stat(file.c_str(), &facts) != 0) return std::nullopt;
  return look_of(facts);
}

std::optional<FileLook> look_at(int descriptor) {
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0) return std::nullopt;
  return look_of(facts);
}

}  // namespace gpulet::frontend

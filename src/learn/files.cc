#include "gpulet/learn/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

namespace gpulet::learn {
namespace {

Status write_all(int descriptor, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(descriptor, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return {StatusCode::internal, std::generic_category().message(errno)};
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  // A name that is moved before its content is on the disk would be an empty file after a crash.
  if (::fsync(descriptor) != 0)
    return {StatusCode::internal, std::generic_category().message(errno)};
  return {};
}

}  // namespace

Status write_file(const std::filesystem::path& file, std::string_view content) {
  std::filesystem::path staged = file;
  staged += ".new";
  const int descriptor =
      ::open(staged.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);  // NOLINT(*-vararg)
  if (descriptor < 0) {
    return {StatusCode::internal,
            staged.string() + ": cannot be written: " + std::generic_category().message(errno)};
  }
  Status status = write_all(descriptor, content);
  ::close(descriptor);
  std::error_code error;
  if (status.ok()) {
    std::filesystem::rename(staged, file, error);
    if (!error) return {};
    status = {StatusCode::internal, error.message()};
  }
  std::error_code ignored;
  std::filesystem::remove(staged, ignored);
  return status.within(file.string() + ": cannot be written");
}

Result<std::string> read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream content;
  content << in.rdbuf();
  if (!in || !content) return Status(StatusCode::not_found, file.string() + ": cannot be read");
  return std::move(content).str();
}

}  // namespace gpulet::learn

#include "config/loading.h"

#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>

#include "config/wording.h"

namespace gpulet::config {

Result<std::string> read_text(const std::filesystem::path& file) {
  const auto cannot = [&file](const std::string& why) {
    return Status(StatusCode::not_found,
                  file.string() + ": cannot be read (" + why + "); check the path");
  };
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) return cannot("it is a directory");
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return cannot(std::generic_category().message(errno));
  std::string text((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (stream.bad()) return cannot("reading failed");
  return text;
}

std::filesystem::path resolve(const std::filesystem::path& file, const std::string& path) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(file, error).parent_path();
  return (folder / path).lexically_normal();
}

void UniqueNames::add(const std::string& name, const JsonCursor& place) {
  if (!seen_.insert(name).second) {
    place.fail("a " + what_ + " called " + in_quotes(name) + " stands above already",
               "give every " + what_ + " a name of its own");
  }
}

}  // namespace gpulet::config

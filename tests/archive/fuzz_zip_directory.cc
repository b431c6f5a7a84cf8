// Any bytes, read as a zip archive: members within the file, or a Status that calls it invalid.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "gpulet/archive/zip_directory.h"
#include "gpulet/base/files.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gpulet;
  const FileDescriptor file(::memfd_create("zip", MFD_CLOEXEC));
  if (::write(file.get(), data, size) != static_cast<ssize_t>(size)) return 0;
  const auto members = read_zip_directory(file.get());
  if (!members.ok()) {
    if (members.status().code() != StatusCode::invalid) std::abort();
    return 0;
  }
  for (const ZipMember& member : members.value()) {
    const auto begin = content_of(file.get(), member);
    if (begin.ok() && (begin.value() > size || member.bytes > size - begin.value())) std::abort();
    if (!begin.ok() && begin.status().code() != StatusCode::invalid) std::abort();
  }
  return 0;
}

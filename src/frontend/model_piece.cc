#include "model_piece.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>

namespace gpulet::frontend {
namespace {

// The bytes of an open file; empty where they cannot be mapped. A mapping begins with a page.
Bytes map(int descriptor, std::uint64_t offset, std::size_t length) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = offset - offset % page;
  const std::size_t skipped = offset - begin;
  const std::size_t mapped = skipped + length;
  void* const memory =
      ::mmap(nullptr, mapped, PROT_READ, MAP_SHARED, descriptor, static_cast<off_t>(begin));
  if (memory == MAP_FAILED) return {};
  const std::shared_ptr<const void> owner(
      memory, [mapped](const void* address) { ::munmap(const_cast<void*>(address), mapped); });
  return {owner, std::span(static_cast<const std::byte*>(memory) + skipped, length)};
}

}  // namespace

serve::ModelPiece model_piece(const std::string& sha256, const std::filesystem::path& file,
                              std::uint64_t offset) {
  serve::ModelPiece piece;
  piece.sha256 = sha256;
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return piece;
  struct stat facts {};
  const bool sized = ::fstat(descriptor, &facts) == 0 && facts.st_size > 0;
  const auto total = static_cast<std::uint64_t>(sized ? facts.st_size : 0);
  if (offset < total) {
    piece.data = map(descriptor, offset, std::min(serve::kModelPieceBytes, total - offset));
  }
  ::close(descriptor);
  if (piece.data.empty()) return piece;
  piece.offset = offset;
  piece.total_bytes = total;
  return piece;
}

}  // namespace gpulet::frontend

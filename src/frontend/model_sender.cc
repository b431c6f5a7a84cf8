#include "model_sender.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "gpulet/net/codec/codec.h"

namespace gpulet::frontend {
namespace {

constexpr std::size_t kPieceBytes = 1U << 20U;
constexpr std::size_t kQueuedBytes = 4U << 20U;

}  // namespace

Result<Bytes> map_file(const std::filesystem::path& file) {
  const auto failure = [&file](const char* what) {
    return Status(StatusCode::not_found, file.string() + ": " + what + ": " + std::strerror(errno));
  };
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return failure("cannot be opened");
  struct stat facts {};
  const bool sized = ::fstat(descriptor, &facts) == 0 && facts.st_size > 0;
  const auto size = static_cast<std::size_t>(sized ? facts.st_size : 0);
  void* const memory =
      sized ? ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0) : MAP_FAILED;
  ::close(descriptor);
  if (memory == MAP_FAILED) return failure("is empty or cannot be mapped");
  const std::shared_ptr<const void> owner(
      memory, [size](const void* mapped) { ::munmap(const_cast<void*>(mapped), size); });
  return Bytes(owner, std::span(static_cast<const std::byte*>(memory), size));
}

void ModelSender::add(const std::string& sha256, const std::filesystem::path& file) {
  Result<Bytes> mapped = map_file(file);
  transfers_.push_back({sha256, mapped.ok() ? std::move(mapped).value() : Bytes(), 0});
}

void ModelSender::add_missing(const std::string& sha256) { transfers_.push_back({sha256, {}, 0}); }

void ModelSender::pump(net::Connection& connection) {
  while (!transfers_.empty() && connection.queued_bytes() < kQueuedBytes) {
    Transfer& transfer = transfers_.front();
    const std::uint64_t left = transfer.file.size() - transfer.offset;
    const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, left));
    serve::ModelPiece piece{transfer.sha256, transfer.offset, transfer.file.size(),
                            transfer.file.slice(static_cast<std::size_t>(transfer.offset), length)};
    connection.send(net::encode(serve::BackendCommand(std::move(piece))));
    transfer.offset += length;
    if (transfer.offset >= transfer.file.size()) transfers_.pop_front();
  }
}

}  // namespace gpulet::frontend

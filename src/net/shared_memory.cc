#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "gpulet/net/buffer_pool.h"

namespace gpulet::net {
namespace {

std::size_t whole_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

Status failure(const char* doing, std::size_t bytes) {
  return {StatusCode::unavailable, fmt::format("cannot {} shared memory of {} bytes: {}", doing,
                                               bytes, std::strerror(errno))};
}

}  // namespace

// ---- SharedMemory

Result<std::shared_ptr<SharedMemory>> SharedMemory::create(std::size_t bytes) {
  bytes = whole_pages(bytes);
  FileDescriptor file(::memfd_create("gpulet-requests", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return failure("create", bytes);
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) return failure("reserve", bytes);
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return failure("seal", bytes);
  void* const address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (address == MAP_FAILED) return failure("map", bytes);
  // A core dump would hold all requests, and a child process needs none.
  ::madvise(address, bytes, MADV_DONTDUMP);
  ::madvise(address, bytes, MADV_DONTFORK);
  return std::shared_ptr<SharedMemory>(
      new SharedMemory(std::move(file), {static_cast<std::byte*>(address), bytes}));
}

SharedMemory::SharedMemory(FileDescriptor file, std::span<std::byte> bytes)
    : file_(std::move(file)), bytes_(bytes) {
  room_.emplace(0, bytes.size());
}

SharedMemory::~SharedMemory() { ::munmap(bytes_.data(), bytes_.size()); }

std::byte* SharedMemory::allocate(std::size_t bytes) {
  bytes = whole_pages(bytes);
  const std::lock_guard lock(mutex_);
  for (auto place = room_.begin(); place != room_.end(); ++place) {
    const auto [offset, room] = *place;
    if (room < bytes || bytes == 0) continue;
    room_.erase(place);
    if (room > bytes) room_.emplace(offset + bytes, room - bytes);
    blocks_.emplace(offset, Block{bytes});
    return bytes_.data() + offset;
  }
  return nullptr;
}

void SharedMemory::release(std::byte* block) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(offset_of(block));
  if (found == blocks_.end()) return;
  const auto [offset, given] = *found;
  blocks_.erase(found);
  ::madvise(block, given.bytes, MADV_REMOVE);
  if (!given.retired) add_room(offset, given.bytes);
}

std::optional<SharedSlice> SharedMemory::find(const Bytes& bytes) const {
  const std::byte* const begin = bytes.view().data();
  if (bytes.empty() || begin < bytes_.data() || begin >= bytes_.data() + bytes_.size())
    return std::nullopt;
  return SharedSlice{offset_of(begin), bytes.size()};
}

void SharedMemory::retire(const Bytes& bytes) {
  const std::optional<SharedSlice> slice = find(bytes);
  if (!slice) return;
  const std::lock_guard lock(mutex_);
  auto after = blocks_.upper_bound(slice->offset);
  if (after != blocks_.begin()) std::prev(after)->second.retired = true;
}

bool SharedMemory::retired(const std::byte* block) const {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(offset_of(block));
  return found != blocks_.end() && found->second.retired;
}

Result<FileDescriptor> SharedMemory::reader() const {
  const std::string path = fmt::format("/proc/self/fd/{}", file_.get());
  FileDescriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened.valid()) return failure("open", bytes_.size());
  return opened;
}

std::size_t SharedMemory::offset_of(const std::byte* at) const {
  return static_cast<std::size_t>(at - bytes_.data());
}

// Joins the neighbours. REQUIRES: mutex_ is held.
void SharedMemory::add_room(std::size_t offset, std::size_t bytes) {
  auto after = room_.lower_bound(offset);
  if (after != room_.end() && after->first == offset + bytes) {
    bytes += after->second;
    after = room_.erase(after);
  }
  if (after != room_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  room_.emplace(offset, bytes);
}

// ---- SharedView

Result<std::shared_ptr<const SharedView>> SharedView::map(const FileDescriptor& file) {
  struct stat found {};
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return Status(StatusCode::invalid, "cannot read shared memory that its owner could shrink");
  if (::fstat(file.get(), &found) != 0) return failure("check", 0);
  const auto bytes = static_cast<std::size_t>(found.st_size);
  void* const address =
      ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, file.get(), 0);
  if (address == MAP_FAILED) return failure("map", bytes);
  ::madvise(address, bytes, MADV_DONTDUMP);
  ::madvise(address, bytes, MADV_DONTFORK);
  return std::shared_ptr<const SharedView>(
      new SharedView({static_cast<const std::byte*>(address), bytes}));
}

SharedView::~SharedView() {
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());  // NOLINT: munmap takes no const
}

std::optional<std::span<const std::byte>> SharedView::find(const SharedSlice& slice) const {
  if (slice.offset > bytes_.size() || slice.bytes > bytes_.size() - slice.offset)
    return std::nullopt;
  return bytes_.subspan(slice.offset, slice.bytes);
}

}  // namespace gpulet::net

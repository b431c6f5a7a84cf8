#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "gpulet/base/files.h"
#include "gpulet/net/kserve/infer_call.h"
#include "net/kserve/json.h"

namespace gpulet::net::kserve {
namespace {

constexpr std::size_t kMostRegions = 1024;  // each holds a file descriptor

std::string shown_region(const std::string& name) {
  return "shared memory region " + in_quotes(name);
}

Status failed(const std::string& name, std::string_view doing, int reason) {
  return invalid(fmt::format("{}: {}: {}", shown_region(name), doing, std::strerror(reason)));
}

// The size of the open file; 0 if it is not shared memory.
std::uint64_t size_of(const FileDescriptor& memory) {
  struct stat about {};
  if (::fstat(memory.get(), &about) != 0 || !S_ISREG(about.st_mode)) return 0;
  return static_cast<std::uint64_t>(about.st_size);
}

// Read-only memory is accepted: it can hold inputs. Not valid on failure; errno has the reason.
FileDescriptor open_memory(const std::string& key) {
  FileDescriptor memory(::shm_open(key.c_str(), O_RDWR | O_NONBLOCK, 0));
  if (memory.valid() || errno != EACCES) return memory;
  return FileDescriptor(::shm_open(key.c_str(), O_RDONLY | O_NONBLOCK, 0));
}

}  // namespace

std::string cuda_memory_refusal(const std::string& region) {
  return "failed to register CUDA shared memory region " + in_quotes(region) +
         ": CUDA shared memory is not supported; register system shared memory "
         "(systemsharedmemory, SystemSharedMemoryRegister) or send the tensors with the request";
}

Status unknown_cuda_region(const std::string& region) {
  return {StatusCode::not_found, "Unable to find cuda shared memory region: " + in_quotes(region)};
}

Status SharedMemory::check_enabled() const {
  if (enabled_) return {};
  return {
      StatusCode::invalid,
      R"(shared memory is disabled; set "shared_memory": "on" in the frontend's file, or start )"
      "gpulet serve with --shared-memory"};
}

Status SharedMemory::add(const RegionInfo& region) {
  if (Status enabled = check_enabled(); !enabled.ok()) return enabled;
  const std::lock_guard lock(mutex_);
  if (regions_.contains(region.name))
    return invalid(shown_region(region.name) + " already in manager; unregister it first");
  if (regions_.size() == kMostRegions) {
    return invalid(fmt::format("{}: the limit of {} regions is reached; unregister unused ones",
                               shown_region(region.name), kMostRegions));
  }
  if (region.key.find('\0') != std::string::npos)
    return invalid(shown_region(region.name) + ": its key has a zero byte");
  FileDescriptor memory = open_memory(region.key);
  if (!memory.valid())
    return failed(region.name, "cannot open shared memory " + in_quotes(region.key), errno);
  const std::uint64_t available = size_of(memory);
  if (region.bytes == 0 || region.offset > available || region.bytes > available - region.offset) {
    return invalid(fmt::format("{}: {} bytes at offset {} exceed the {} bytes of {}",
                               shown_region(region.name), region.bytes, region.offset, available,
                               in_quotes(region.key)));
  }
  regions_.emplace(region.name, std::make_shared<const Region>(Region{region, std::move(memory)}));
  return {};
}

void SharedMemory::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (name.empty()) {
    regions_.clear();
  } else {
    regions_.erase(name);
  }
}

std::vector<RegionInfo> SharedMemory::regions() const {
  const std::lock_guard lock(mutex_);
  std::vector<RegionInfo> all;
  all.reserve(regions_.size());
  for (const auto& [name, region] : regions_) all.push_back(region->info);
  return all;
}

Result<SharedMemory::RegionPointer> SharedMemory::find(const RegionSlice& slice) const {
  if (Status enabled = check_enabled(); !enabled.ok()) return enabled;
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(slice.region);
  if (found == regions_.end())
    return invalid("unable to find " + shown_region(slice.region) + "; register it first");
  const std::uint64_t available = found->second->info.bytes;
  if (slice.offset > available || slice.bytes > available - slice.offset) {
    return invalid(fmt::format("{}: {} bytes at offset {} exceed its {} bytes",
                               shown_region(slice.region), slice.bytes, slice.offset, available));
  }
  return found->second;
}

Result<Bytes> SharedMemory::read(const RegionSlice& slice) const {
  GPULET_TRY(const RegionPointer found, find(slice));
  const Region& region = *found;
  const std::uint64_t from = region.info.offset + slice.offset;
  if (slice.bytes > size_of(region.memory)) return failed(slice.region, "cannot be read", EIO);
  std::vector<std::byte> bytes(slice.bytes);
  const ssize_t got = read_at(region.memory.get(), bytes, from);
  if (got < 0) return failed(slice.region, "cannot be read", errno);
  if (static_cast<std::size_t>(got) < bytes.size())
    return failed(slice.region, "cannot be read", EIO);
  return Bytes::own(std::move(bytes));
}

Status SharedMemory::write(const RegionSlice& slice, const Bytes& data) {
  GPULET_TRY(const RegionPointer found, find(slice));
  if (data.size() > slice.bytes) {
    return invalid(fmt::format("{}: the output has {} bytes, but 'shared_memory_byte_size' is {}",
                               shown_region(slice.region), data.size(), slice.bytes));
  }
  const Region& region = *found;
  const std::uint64_t to = region.info.offset + slice.offset;
  // Writing beyond the end would make the memory grow.
  if (to + data.size() > size_of(region.memory))
    return failed(slice.region, "cannot be written", EIO);
  if (write_at(region.memory.get(), data.view(), to)) return {};
  return failed(slice.region, "cannot be written", errno);
}

}  // namespace gpulet::net::kserve

#include "gpulet/net/kserve/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "wording.h"

namespace gpulet::net::kserve {
namespace {

constexpr std::size_t kMostRegions = 1024;  // each holds a file descriptor

std::string shown_region(const std::string& name) {
  return "shared memory region " + in_quotes(name);
}

Status failed(const std::string& name, std::string_view what, int reason) {
  return invalid(shown_region(name) + ": " + std::string(what) + ": " + std::strerror(reason));
}

// Calls `move(done)` for what is left until all bytes are moved. Returns 0 or errno; EIO where the
// memory ends too early.
template <typename Move>
int move_all(std::size_t bytes, const Move& move) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t moved = move(done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) return errno;
    if (moved == 0) return EIO;
    done += static_cast<std::size_t>(moved);
  }
  return 0;
}

}  // namespace

std::string cuda_memory_refusal(const std::string& region) {
  return "failed to register CUDA shared memory region " + in_quotes(region) +
         ": this server takes no tensors from GPU memory; register system shared memory "
         "(systemsharedmemory, SystemSharedMemoryRegister) or send the tensors with the request";
}

Status unknown_cuda_region(const std::string& region) {
  return {StatusCode::not_found, "Unable to find cuda shared memory region: " + in_quotes(region)};
}

class SharedMemory::Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { ::close(number_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  [[nodiscard]] int number() const { return number_; }

  // Of what is open; 0 where it is no shared memory.
  [[nodiscard]] std::uint64_t bytes() const {
    struct stat about {};
    if (::fstat(number_, &about) != 0 || !S_ISREG(about.st_mode)) return 0;
    return static_cast<std::uint64_t>(about.st_size);
  }

  // -1 where there is none of that name; errno says why. Memory that may only be read is good for
  // inputs.
  [[nodiscard]] static int open(const std::string& key) {
    const int number = ::shm_open(key.c_str(), O_RDWR | O_NONBLOCK, 0);
    if (number >= 0 || errno != EACCES) return number;
    return ::shm_open(key.c_str(), O_RDONLY | O_NONBLOCK, 0);
  }

 private:
  int number_;
};

Status SharedMemory::check_enabled() const {
  if (enabled_) return {};
  return {StatusCode::unavailable,
          R"(shared memory is off; "shared_memory": "on" in the frontend's file switches it on)"};
}

Status SharedMemory::add(const RegionToRegister& region) {
  if (Status enabled = check_enabled(); !enabled.ok()) return enabled;
  if (regions_.contains(region.name))
    return invalid(shown_region(region.name) + " is registered already; unregister it first");
  if (regions_.size() == kMostRegions) {
    return invalid(shown_region(region.name) + ": no more than " + std::to_string(kMostRegions) +
                   " regions; unregister what is not used any more");
  }
  if (region.key.find('\0') != std::string::npos)
    return invalid(shown_region(region.name) + ": its key holds a zero byte");
  const int number = Descriptor::open(region.key);
  if (number < 0)
    return failed(region.name, "cannot open shared memory " + in_quotes(region.key), errno);
  auto memory = std::make_shared<const Descriptor>(number);
  const std::uint64_t there = memory->bytes();
  if (region.bytes == 0 || region.offset > there || region.bytes > there - region.offset) {
    return invalid(shown_region(region.name) + ": " + std::to_string(region.bytes) +
                   " bytes at offset " + std::to_string(region.offset) + " do not lie within the " +
                   std::to_string(there) + " bytes of " + in_quotes(region.key));
  }
  regions_.emplace(region.name, Region{region, std::move(memory)});
  return {};
}

void SharedMemory::remove(const std::string& name) {
  if (name.empty()) {
    regions_.clear();
  } else {
    regions_.erase(name);
  }
}

std::vector<RegionInfo> SharedMemory::regions() const {
  std::vector<RegionInfo> all;
  all.reserve(regions_.size());
  for (const auto& [name, region] : regions_) all.push_back(region.info);
  return all;
}

Result<const SharedMemory::Region*> SharedMemory::find(const RegionSlice& slice) const {
  if (Status enabled = check_enabled(); !enabled.ok()) return enabled;
  const auto found = regions_.find(slice.region);
  if (found == regions_.end())
    return invalid("unable to find " + shown_region(slice.region) + "; register it first");
  const std::uint64_t there = found->second.info.bytes;
  if (slice.offset > there || slice.bytes > there - slice.offset) {
    return invalid(shown_region(slice.region) + ": " + std::to_string(slice.bytes) +
                   " bytes at offset " + std::to_string(slice.offset) + " do not lie within its " +
                   std::to_string(there) + " bytes");
  }
  return &found->second;
}

Result<Bytes> SharedMemory::read(const RegionSlice& slice) const {
  const Result<const Region*> found = find(slice);
  if (!found.ok()) return found.status();
  const Region& region = *found.value();
  const std::uint64_t from = region.info.offset + slice.offset;
  if (slice.bytes > region.memory->bytes()) return failed(slice.region, "cannot be read", EIO);
  std::vector<std::byte> bytes(slice.bytes);
  const int reason = move_all(bytes.size(), [&](std::size_t done) {
    return ::pread(region.memory->number(), bytes.data() + done, bytes.size() - done,
                   static_cast<off_t>(from + done));
  });
  if (reason != 0) return failed(slice.region, "cannot be read", reason);
  return Bytes::own(std::move(bytes));
}

Status SharedMemory::write(const RegionSlice& slice, const Bytes& data) {
  const Result<const Region*> found = find(slice);
  if (!found.ok()) return found.status();
  if (data.size() > slice.bytes) {
    return invalid(shown_region(slice.region) + ": the output has " + std::to_string(data.size()) +
                   " bytes, but 'shared_memory_byte_size' is " + std::to_string(slice.bytes));
  }
  const Region& region = *found.value();
  const std::uint64_t to = region.info.offset + slice.offset;
  // Writing would make it grow again.
  if (to + data.size() > region.memory->bytes())
    return failed(slice.region, "cannot be written", EIO);
  const auto view = data.view();
  const int reason = move_all(view.size(), [&](std::size_t done) {
    return ::pwrite(region.memory->number(), view.data() + done, view.size() - done,
                    static_cast<off_t>(to + done));
  });
  return reason == 0 ? Status() : failed(slice.region, "cannot be written", reason);
}

}  // namespace gpulet::net::kserve

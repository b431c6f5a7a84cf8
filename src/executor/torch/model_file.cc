#include "executor/torch/model_file.h"

#include <caffe2/serialize/read_adapter_interface.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <system_error>
#include <utility>

#include "gpulet/base/files.h"

namespace gpulet::executor {
namespace {

using Clock = std::chrono::steady_clock;

Status cannot_map(int error) {
  return {StatusCode::internal, "cannot be mapped: " + std::generic_category().message(error)};
}

}  // namespace

class ModelFile::Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  ~Reader() {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): munmap() takes no constant memory.
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  [[nodiscard]] std::size_t size() const { return bytes_.size(); }
  std::size_t read(std::uint64_t position, void* to, std::size_t count) const {
    const Clock::time_point begin = Clock::now();
    const std::size_t start = std::min<std::uint64_t>(position, bytes_.size());
    const std::size_t copied = std::min(count, bytes_.size() - start);
    if (copied > 0) std::memcpy(to, bytes_.data() + start, copied);
    time_read_ += Clock::now() - begin;
    return copied;
  }
  [[nodiscard]] Duration time_read() const { return time_read_; }

 private:
  std::span<const std::byte> bytes_;
  mutable Duration time_read_{};
};

namespace {

// LibTorch's view of a mapped file.
template <typename Reader>
class Adapter final : public caffe2::serialize::ReadAdapterInterface {
 public:
  explicit Adapter(std::shared_ptr<const Reader> reader) : reader_(std::move(reader)) {}
  std::size_t size() const override { return reader_->size(); }
  std::size_t read(std::uint64_t position, void* to, std::size_t count,
                   const char* /*what*/) const override {
    return reader_->read(position, to, count);
  }

 private:
  std::shared_ptr<const Reader> reader_;
};

}  // namespace

Result<ModelFile> ModelFile::open(const std::filesystem::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat state {};
  if (file.get() < 0 || ::fstat(file.get(), &state) != 0) return cannot_map(errno);
  const auto size = static_cast<std::size_t>(state.st_size);
  if (size == 0) return ModelFile(std::make_shared<Reader>(std::span<const std::byte>()));
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) return cannot_map(errno);
  // Starts to read what the page cache lacks; best effort.
  (void)::madvise(address, size, MADV_WILLNEED);
  return ModelFile(std::make_shared<Reader>(
      std::span<const std::byte>(static_cast<const std::byte*>(address), size)));
}

torch::jit::Module ModelFile::load(const c10::Device& device) const {
  return torch::jit::load(std::make_shared<Adapter<Reader>>(reader_), device);
}

Duration ModelFile::time_read() const { return reader_->time_read(); }

}  // namespace gpulet::executor

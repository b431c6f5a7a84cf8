#include "executor/torch/package.h"

#include <fcntl.h>
#include <stdlib.h>  // setenv
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner_cpu.h>

#include <cerrno>
#include <cstring>

#include "executor/torch/package_file.h"
#include "executor/torch/tensors.h"
#include "gpulet/base/files.h"

namespace gpulet::executor {
namespace {

Status cannot_load(const std::string& why) {
  return {StatusCode::invalid, "is an AOTInductor package that cannot be loaded: " + why};
}

// ---- the CPU

class CpuPackage final : public TorchPackage {
 public:
  explicit CpuPackage(const std::string& library) : runner_(library) {}
  [[nodiscard]] std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) override {
    return runner_.run(inputs);
  }

 private:
  torch::inductor::AOTIModelContainerRunnerCpu runner_;
};

// A file in memory with the bytes of the library.
Result<FileDescriptor> unpack(int archive, const ZipMember& library) {
  const auto begin = content_of(archive, library);
  if (!begin.ok()) return cannot_load(begin.status().message());
  FileDescriptor memory(::memfd_create("gpulet-model", MFD_CLOEXEC));
  if (!memory.valid()) return cannot_load(std::string("no memory: ") + std::strerror(errno));
  auto offset = static_cast<off_t>(begin.value());
  for (std::uint64_t left = library.bytes; left > 0;) {
    const ssize_t sent = ::sendfile(memory.get(), archive, &offset, left);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return cannot_load(std::string("it cannot be copied: ") + std::strerror(errno));
    left -= static_cast<std::uint64_t>(sent);
  }
  return memory;
}

// The dynamic linker knows libraries by their path and may keep one for ever, and large weights are
// mapped from the file at the first use. So the descriptor, whose number is the path, stays open
// until the process ends.
Result<std::shared_ptr<TorchPackage>> open_on_cpu(int archive, const ZipMember& library) {
  auto memory = unpack(archive, library);
  if (!memory.ok()) return memory.status();
  const std::string path = "/proc/self/fd/" + std::to_string(memory.value().release());
  return std::shared_ptr<TorchPackage>(std::make_shared<CpuPackage>(path));
}

// ---- a GPU

class GpuPackage final : public TorchPackage {
 public:
  explicit GpuPackage(const std::filesystem::path& file) : loader_(file.string()) {}
  [[nodiscard]] std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) override {
    return loader_.run(inputs);
  }

 private:
  torch::inductor::AOTIModelPackageLoader loader_;
};

std::string kind_of(const c10::Device& device) {
  return c10::DeviceTypeName(device.type(), /*lower_case=*/true);
}

}  // namespace

bool built_with_packages() { return true; }

Result<std::shared_ptr<TorchPackage>> open_package(const std::filesystem::path& file,
                                                   const c10::Device& device) {
  const FileDescriptor archive(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!archive.valid()) return cannot_load(std::strerror(errno));
  const auto package = read_package(archive.get());
  if (!package.ok()) return package.status();
  if (package.value().device != kind_of(device)) {
    return cannot_load("it was compiled for the device \"" + package.value().device +
                       "\"; export it for \"" + kind_of(device) + "\"");
  }
  // Code of PyTorch 2.8 or later then checks its inputs, so that another size is an error of the
  // batch and not one of the process.
  ::setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", 1);  // NOLINT(concurrency-mt-unsafe)
  try {
    if (device.is_cpu()) return open_on_cpu(archive.get(), package.value().library);
    return std::shared_ptr<TorchPackage>(std::make_shared<GpuPackage>(file));
  } catch (const std::exception& error) {
    return cannot_load(short_message(error));
  }
}

}  // namespace gpulet::executor

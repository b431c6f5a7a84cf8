#include "gpu/shared_library.h"

#include <dlfcn.h>

namespace gpulet::gpu {

Result<SharedLibrary> SharedLibrary::open(const std::filesystem::path& file) {
  if (void* const handle = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE))
    return SharedLibrary(file.string(), handle);
  const char* const reason = ::dlerror();
  return Status(StatusCode::unavailable, reason != nullptr ? reason : file.string());
}

void* SharedLibrary::find(const char* symbol) const { return ::dlsym(handle_.get(), symbol); }

void SharedLibrary::Close::operator()(void* handle) const noexcept { ::dlclose(handle); }

void Symbols::missing(const char* symbol) {
  status_ = Status(StatusCode::unavailable,
                   library_.name() + " has no " + symbol + "; install a newer driver from NVIDIA");
}

}  // namespace gpulet::gpu

#include <dlfcn.h>

#include <cstring>

#include "gpulet/executor/boundary/boundary.h"

namespace gpulet::executor::boundary {

Result<const Boundary*> open_boundary(const std::filesystem::path& library, const char* shown) {
  // Not global: what the executor's libraries bring along (protobuf, BLAS) may be of other versions
  // than the program's own.
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* const reason = ::dlerror();
    return Status(StatusCode::unavailable, reason != nullptr ? reason : library.string());
  }
  auto* const function = reinterpret_cast<const Boundary* (*)()>(::dlsym(handle, shown));
  if (function == nullptr) {
    return Status(StatusCode::invalid,
                  library.string() + " has no function " + shown + "; it is another library");
  }
  const Boundary* const boundary = function();
  if (std::strcmp(boundary->stamp, stamp()) != 0) {
    return Status(StatusCode::invalid,
                  library.string() + " was built for another version of gpulet (its boundary is " +
                      boundary->stamp + ", this program's is " + stamp() + ")");
  }
  return boundary;
}

}  // namespace gpulet::executor::boundary

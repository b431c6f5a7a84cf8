// What the build knows: the generated source defines it. A new commit compiles that source alone.
#pragma once

namespace gpulet::version {

extern const char* const kCommit;

}  // namespace gpulet::version

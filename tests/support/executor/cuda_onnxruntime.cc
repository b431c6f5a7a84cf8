// A library like onnxruntime-gpu: the ONNX Runtime that GPULET_TEST_ONNXRUNTIME names, with a CUDA
// execution provider that appends its options to the file GPULET_TEST_CUDA_OPTIONS and leaves the
// computation to the CPU. The device "9" fails.
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "executor/onnx/onnx_abi.h"

namespace {

using namespace gpulet::executor::onnx_abi;

const Base* real_base() {
  static const Base* const base = [] {
    void* const library =
        ::dlopen(std::getenv("GPULET_TEST_ONNXRUNTIME"), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    auto* const entry = reinterpret_cast<EntryPoint*>(::dlsym(library, kEntryPoint));
    return entry();
  }();
  return base;
}

std::ofstream record() {
  return std::ofstream(std::getenv("GPULET_TEST_CUDA_OPTIONS"), std::ios::app);
}

Failure* create(CudaOptions** made) {
  static char object = 0;
  *made = reinterpret_cast<CudaOptions*>(&object);
  return nullptr;
}

// Of the real library: it does not know the level -1.
Failure* some_failure() {
  const Function* const functions = real_base()->api(kApiVersion);
  auto* const set =
      reinterpret_cast<Failure* (*)(SessionOptions*, int)>(functions[kSetOptimizations.position]);
  auto* const make =
      reinterpret_cast<Failure* (*)(SessionOptions**)>(functions[kCreateSessionOptions.position]);
  SessionOptions* options = nullptr;
  if (Failure* const failure = make(&options)) return failure;
  Failure* const failure = set(options, -1);
  reinterpret_cast<void (*)(SessionOptions*)>(functions[kReleaseSessionOptions.position])(options);
  return failure;
}

Failure* set(CudaOptions* /*options*/, const char* const* keys, const char* const* values,
             std::size_t count) {
  std::ofstream file = record();
  for (std::size_t i = 0; i < count; ++i) {
    if (std::strcmp(keys[i], "device_id") == 0 && std::strcmp(values[i], "9") == 0)
      return some_failure();
    file << keys[i] << '=' << values[i] << '\n';
  }
  return nullptr;
}

Failure* use(SessionOptions* /*session*/, const CudaOptions* /*options*/) {
  record() << "used\n";
  return nullptr;
}

void release(CudaOptions* /*options*/) {}

const Function* api(std::uint32_t version) {
  static std::array<Function, kResizeString.position + 1> functions{};
  std::copy_n(real_base()->api(version), functions.size(), functions.begin());
  functions[kCreateCudaOptions.position] = reinterpret_cast<Function>(create);
  functions[kSetCudaOptions.position] = reinterpret_cast<Function>(set);
  functions[kUseCuda.position] = reinterpret_cast<Function>(use);
  functions[kReleaseCudaOptions.position] = reinterpret_cast<Function>(release);
  return functions.data();
}

}  // namespace

extern "C" [[gnu::visibility("default")]] const Base* OrtGetApiBase() {
  static const Base base{api, [] { return real_base()->version(); }};
  return &base;
}

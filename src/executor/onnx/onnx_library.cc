#include "executor/onnx/onnx_library.h"

#include <dlfcn.h>
#include <stdlib.h>  // setenv
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>
#include <system_error>
#include <vector>

#include "gpulet/base/files.h"
#include "gpulet/executor/executor.h"
#include "gpulet/executor/onnx/onnx_executor.h"

namespace gpulet::executor {
namespace {

namespace abi = onnx_abi;

// The library opens it from its own folder.
constexpr const char* kCudaProvider = "libonnxruntime_providers_cuda.so";
constexpr const char* kFix =
    "; run scripts/setup, install ONNX Runtime 1.17 or later, or set GPULET_ONNXRUNTIME to the "
    "path of its libonnxruntime.so";

Status unavailable(const std::string& why) {
  return {StatusCode::unavailable, "cannot load ONNX Runtime: " + why + kFix};
}

std::string linker_message() {
  const char* const reason = ::dlerror();
  return reason != nullptr ? reason : "unknown reason";
}

// Some models cause a warning for each of their weights.
constexpr int kMostWarnings = 10;

// The library reports errors as failures of calls, too, so that only warnings are passed on.
void pass_on_warning(void* /*place*/, int severity, const char* /*category*/,
                     const char* /*logger*/, const char* /*code_location*/, const char* message) {
  static std::atomic<int> warnings = 0;
  if (severity != abi::kWarning || warnings++ >= kMostWarnings) return;
  std::fprintf(stderr, "gpulet-proxy[%d]: ONNX Runtime warns: %s\n", static_cast<int>(::getpid()),
               message);
}

}  // namespace

OnnxFailure OnnxLibrary::take(abi::Failure* failure) const {
  if (failure == nullptr) return {};
  const auto owned = own(abi::kReleaseFailure, failure);
  return {call(abi::kGetErrorCode, failure), call(abi::kGetErrorMessage, failure)};
}

namespace {

// Its threads may still run when the process ends, so it is never closed. RTLD_LOCAL: LibTorch may
// be in the same process, and both contain a protobuf.
Result<const abi::Base*> open_first(const std::vector<std::string>& candidates) {
  // Read when the environment of the library is made; the sandbox refuses the network, too.
  ::setenv("ORT_DISABLE_TELEMETRY", "1", 1);  // NOLINT(concurrency-mt-unsafe)
  void* handle = nullptr;
  std::string reasons;
  for (const std::string& candidate : candidates) {
    handle = ::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (handle != nullptr) break;
    reasons += (reasons.empty() ? "" : "; ") + linker_message();
  }
  if (handle == nullptr) return unavailable(reasons);
  auto* const entry = reinterpret_cast<abi::EntryPoint*>(::dlsym(handle, abi::kEntryPoint));
  if (entry == nullptr) return unavailable(linker_message());
  return entry();
}

const std::vector<std::string> kNames = {"libonnxruntime.so.1", "libonnxruntime.so"};

std::filesystem::path folder_of(const abi::Base* base) {
  Dl_info found{};
  if (::dladdr(reinterpret_cast<const void*>(base->version), &found) == 0) return {};
  std::error_code error;
  return std::filesystem::canonical(found.dli_fname, error).parent_path();
}

}  // namespace

Result<OnnxLibrary> OnnxLibrary::open(const std::string& file, abi::Log* log) {
  GPULET_TRY(const auto opened, open_first(file.empty() ? kNames : std::vector{file}));
  const abi::Base* const base = opened;
  const std::string version = base->version();
  const abi::Function* const functions = base->api(abi::kApiVersion);
  if (functions == nullptr) {
    return unavailable("its version " + version + " is too old; needed is " + abi::kOldestVersion +
                       " or later");
  }
  OnnxLibrary library(functions, version, folder_of(base));
  OnnxFailure failure;
  library.environment_ = library.make(abi::kReleaseEnvironment, failure, abi::kCreateEnvironment,
                                      log, nullptr, abi::kWarning, "gpulet");
  if (!failure.ok()) return unavailable(failure.message);
  return library;
}

const Result<OnnxLibrary>& OnnxLibrary::of_process() {
  // Never destroyed: sessions may outlive static objects.
  static const auto* const library = [] {
    return new Result<OnnxLibrary>(
        open(std::string(environment_variable(kOnnxRuntimeVariable)), pass_on_warning));
  }();
  return *library;
}

namespace {

// Whether the library was built for CUDA.
Result<bool> names_cuda(const OnnxLibrary& library) {
  char** names = nullptr;
  int count = 0;
  const OnnxFailure failure = library.attempt(abi::kAvailableProviders, &names, &count);
  if (!failure.ok()) return unavailable(failure.message);
  const std::span<char* const> providers(names, static_cast<std::size_t>(count));
  const bool cuda = std::find(providers.begin(), providers.end(),
                              std::string_view("CUDAExecutionProvider")) != providers.end();
  (void)library.attempt(abi::kReleaseAvailableProviders, names, count);
  return cuda;
}

}  // namespace

Status check_cuda_provider(const OnnxLibrary& library) {
  GPULET_TRY(const auto cuda, names_cuda(library));
  const std::filesystem::path provider = library.folder() / kCudaProvider;
  std::error_code error;
  if (cuda && std::filesystem::exists(provider, error)) return {};
  return {StatusCode::unavailable,
          "this ONNX Runtime has no CUDA execution provider (" + provider.string() +
              "); install onnxruntime-gpu, and name its libonnxruntime.so with GPULET_ONNXRUNTIME"};
}

Status check_onnx_runtime(bool on_gpu) {
  const Result<OnnxLibrary>& library = OnnxLibrary::of_process();
  if (!library.ok()) return library.status();
  return on_gpu ? check_cuda_provider(library.value()) : Status();
}

Result<std::string> onnx_runtime_version(const std::vector<std::filesystem::path>& folders) {
  std::vector<std::string> candidates;
  if (const auto file = environment_variable(kOnnxRuntimeVariable); !file.empty()) {
    candidates.emplace_back(file);
  } else {
    for (const std::filesystem::path& folder : folders)
      candidates.push_back((folder / kNames.front()).string());
    candidates.insert(candidates.end(), kNames.begin(), kNames.end());
  }
  GPULET_TRY(const auto opened, open_first(candidates));
  return std::string(opened->version());
}

}  // namespace gpulet::executor

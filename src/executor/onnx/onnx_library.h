// OnnxLibrary: ONNX Runtime as this process has it loaded, with its one environment. Objects of the
// library as owning handles. Any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "executor/onnx/onnx_abi.h"
#include "gpulet/base/status.h"

namespace gpulet::executor {

// A failure of a call. Empty: it succeeded.
struct OnnxFailure {
  onnx_abi::ErrorCode code = onnx_abi::ErrorCode::ok;
  std::string message{};

  [[nodiscard]] bool ok() const { return code == onnx_abi::ErrorCode::ok; }
};

template <typename Object>
using OnnxHandle = std::unique_ptr<Object, void (*)(Object*)>;

class OnnxLibrary {
 public:
  // Opens the library at the first call, and returns the same result to every call. Fails with
  // unavailable; the message says what was tried and how to get the library. It stays open until
  // the process ends.
  [[nodiscard]] static const Result<OnnxLibrary>& of_process();
  // Opens that file, or searches the names where it is empty. `log` receives its warnings. Sets
  // ORT_DISABLE_TELEMETRY, which keeps later versions from reporting their use over the network.
  // REQUIRES: no other thread uses the environment.
  [[nodiscard]] static Result<OnnxLibrary> open(const std::string& file, onnx_abi::Log* log);

  // "1.17.0"
  [[nodiscard]] const std::string& version() const { return version_; }
  // Of the library's file; empty if it is not known.
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] const onnx_abi::Environment* environment() const { return environment_.get(); }

  template <typename Return, typename... Parameters, typename... Arguments>
  Return call(onnx_abi::Member<Return(Parameters...)> member, Arguments... arguments) const {
    return function(member)(arguments...);
  }
  // For functions that may fail.
  template <typename... Parameters, typename... Arguments>
  [[nodiscard]] OnnxFailure attempt(onnx_abi::Member<onnx_abi::Failure*(Parameters...)> member,
                                    Arguments... arguments) const {
    return take(function(member)(arguments...));
  }
  // Makes an object by a function whose last parameter is the place for it; null after a failure.
  template <typename Object, typename... Parameters, typename... Arguments>
  [[nodiscard]] OnnxHandle<Object> make(onnx_abi::Member<void(Object*)> release,
                                        OnnxFailure& failure,
                                        onnx_abi::Member<onnx_abi::Failure*(Parameters...)> create,
                                        Arguments... arguments) const {
    Object* made = nullptr;
    failure = attempt(create, arguments..., &made);
    return own(release, failure.ok() ? made : nullptr);
  }
  template <typename Object>
  [[nodiscard]] OnnxHandle<Object> own(onnx_abi::Member<void(Object*)> release,
                                       Object* object) const {
    return {object, function(release)};
  }

 private:
  OnnxLibrary(const onnx_abi::Function* functions, std::string version,
              std::filesystem::path folder)
      : functions_(functions), version_(std::move(version)), folder_(std::move(folder)) {}

  template <typename Signature>
  [[nodiscard]] Signature* function(onnx_abi::Member<Signature> member) const {
    return reinterpret_cast<Signature*>(functions_[member.position]);
  }
  [[nodiscard]] OnnxFailure take(onnx_abi::Failure* failure) const;

  const onnx_abi::Function* functions_;
  std::string version_;
  std::filesystem::path folder_;
  OnnxHandle<onnx_abi::Environment> environment_{nullptr, nullptr};
};

// Fails with unavailable where the library has no CUDA execution provider.
[[nodiscard]] Status check_cuda_provider(const OnnxLibrary& library);

}  // namespace gpulet::executor

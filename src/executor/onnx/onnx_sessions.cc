#include "executor/onnx/onnx_sessions.h"

#include <array>
#include <string>
#include <system_error>
#include <utility>

#include "gpulet/base/text.h"

namespace gpulet::executor {
namespace {

namespace abi = onnx_abi;

// The memory of a gpulet is limited: by default, the library's arena doubles at each extension.
constexpr const char* kArenaGrowth = "kSameAsRequested";
// By default, the library tries every algorithm when it meets another batch size, while requests
// wait.
constexpr const char* kConvolutionSearch = "HEURISTIC";

// The failure of a call while a model is loaded.
Status failed_to_load(const OnnxLibrary& library, const OnnxFailure& failure) {
  switch (failure.code) {
    case abi::ErrorCode::no_such_file:
      return {StatusCode::not_found, failure.message};
    case abi::ErrorCode::runtime_exception:
    case abi::ErrorCode::engine_error:
    case abi::ErrorCode::provider_fail:
      return {StatusCode::internal, failure.message};
    default:
      return {StatusCode::invalid, std::string(trimmed(failure.message)) +
                                       "; export it again, in a form that ONNX Runtime " +
                                       library.version() + " loads"};
  }
}

class SessionOptions {
 public:
  SessionOptions(const OnnxLibrary& library, OnnxFailure& failure)
      : library_(library),
        failure_(failure),
        options_(library.make(abi::kReleaseSessionOptions, failure, abi::kCreateSessionOptions)) {}

  template <typename... Parameters, typename... Arguments>
  void set(abi::Member<abi::Failure*(Parameters...)> member, Arguments... arguments) {
    if (failure_.ok()) failure_ = library_.attempt(member, options_.get(), arguments...);
  }

  void use_gpu(std::uint32_t gpu) {
    if (!failure_.ok()) return;
    const auto cuda = library_.make(abi::kReleaseCudaOptions, failure_, abi::kCreateCudaOptions);
    const std::string number = std::to_string(gpu);
    const std::array<const char*, 3> keys{"device_id", "arena_extend_strategy",
                                          "cudnn_conv_algo_search"};
    const std::array<const char*, 3> values{number.c_str(), kArenaGrowth, kConvolutionSearch};
    if (failure_.ok()) {
      failure_ = library_.attempt(abi::kSetCudaOptions, cuda.get(), keys.data(), values.data(),
                                  keys.size());
    }
    set(abi::kUseCuda, cuda.get());
  }

  [[nodiscard]] const abi::SessionOptions* get() const { return options_.get(); }

 private:
  const OnnxLibrary& library_;
  OnnxFailure& failure_;
  OnnxHandle<abi::SessionOptions> options_;
};

Result<OnnxHandle<abi::Session>> make_session(const OnnxLibrary& library,
                                              const std::filesystem::path& file,
                                              const OnnxTarget& target) {
  OnnxFailure failure;
  SessionOptions options(library, failure);
  options.set(abi::kSetOptimizations, abi::kAllOptimizations);
  options.set(abi::kSetThreadsInside, target.threads);
  options.set(abi::kSetThreadsAcross, 1);
  options.set(abi::kSetOption, "session.intra_op.allow_spinning", target.spins ? "1" : "0");
  options.set(abi::kSetOption, "session.force_spinning_stop", "1");
  if (failure.ok() && target.gpu) {
    options.use_gpu(*target.gpu);
    if (!failure.ok()) {
      return Status(StatusCode::internal,
                    "this ONNX Runtime cannot use the GPU (" + failure.message +
                        "); install one with the CUDA execution provider, or serve on the CPU");
    }
  }
  if (!failure.ok()) return Status(StatusCode::internal, failure.message);
  auto session = library.make(abi::kReleaseSession, failure, abi::kCreateSession,
                              library.environment(), file.c_str(), options.get());
  if (!failure.ok()) return failed_to_load(library, failure);
  return session;
}

}  // namespace

Result<std::shared_ptr<abi::Session>> OnnxSessions::open(const OnnxLibrary& library,
                                                         const std::filesystem::path& file) {
  std::erase_if(sessions_, [](const auto& one) { return one.second.expired(); });
  std::error_code ignored;
  const Identity identity(file, std::filesystem::file_size(file, ignored),
                          std::filesystem::last_write_time(file, ignored));
  if (const auto found = sessions_.find(identity); found != sessions_.end())
    return found->second.lock();
  GPULET_TRY(auto made, make_session(library, file, target_));
  std::shared_ptr<abi::Session> session = std::move(made);
  sessions_.insert_or_assign(identity, session);
  return session;
}

void OnnxSessions::forget(const std::filesystem::path& file) {
  std::erase_if(sessions_, [&file](const auto& one) { return std::get<0>(one.first) == file; });
}

}  // namespace gpulet::executor

// The part of ONNX Runtime's C interface that is used here: OrtApiBase, and functions of OrtApi by
// their position in it. Versions of the library only append functions. All positions here exist
// since version 15 of the interface. A comment has the interface's name where the name here differs
// by more than its prefix.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpulet::executor::onnx_abi {

inline constexpr const char* kEntryPoint = "OrtGetApiBase";
inline constexpr std::uint32_t kApiVersion = 17;  // of ONNX Runtime 1.17
inline constexpr const char* kOldestVersion = "1.17";

struct Failure;  // OrtStatus; null: success
struct Environment;
struct Session;
struct SessionOptions;
struct RunOptions;
struct Value;
struct MemoryInfo;
struct Allocator;
struct TensorInfo;   // OrtTensorTypeAndShapeInfo
struct CudaOptions;  // OrtCUDAProviderOptionsV2

// OrtErrorCode
enum class ErrorCode : int {
  ok = 0,
  fail = 1,
  invalid_argument = 2,
  no_such_file = 3,
  no_model = 4,
  engine_error = 5,
  runtime_exception = 6,
  invalid_protobuf = 7,
  model_loaded = 8,
  not_implemented = 9,
  invalid_graph = 10,
  provider_fail = 11,
};

inline constexpr int kWarning = 2;  // OrtLoggingLevel
inline constexpr int kAllOptimizations = 99;
inline constexpr int kDeviceAllocator = 0;  // OrtAllocatorType
inline constexpr int kDefaultMemory = 0;    // OrtMemType

using Function = void (*)();
struct Base {  // OrtApiBase
  const Function* (*api)(std::uint32_t version);
  const char* (*version)();
};
using EntryPoint = const Base*();

// A function of OrtApi: its signature, and its position in the array of functions.
template <typename Signature>
struct Member {
  std::size_t position;
};

using Log = void(void* place, int severity, const char* category, const char* logger,
                 const char* code_location, const char* message);

inline constexpr Member<ErrorCode(const Failure*)> kGetErrorCode{1};
inline constexpr Member<const char*(const Failure*)> kGetErrorMessage{2};
inline constexpr Member<Failure*(Log*, void* place, int severity, const char* logger,
                                 Environment**)>
    kCreateEnvironment{4};  // CreateEnvWithCustomLogger
inline constexpr Member<Failure*(const Environment*, const char* file, const SessionOptions*,
                                 Session**)>
    kCreateSession{7};
inline constexpr Member<Failure*(Session*, const RunOptions*, const char* const* input_names,
                                 const Value* const* inputs, std::size_t input_count,
                                 const char* const* output_names, std::size_t output_count,
                                 Value** outputs)>
    kRun{9};
inline constexpr Member<Failure*(SessionOptions**)> kCreateSessionOptions{10};
inline constexpr Member<Failure*(SessionOptions*, int level)> kSetOptimizations{
    23};  // SetSessionGraphOptimizationLevel
inline constexpr Member<Failure*(SessionOptions*, int threads)> kSetThreadsInside{
    24};  // SetIntraOpNumThreads
inline constexpr Member<Failure*(SessionOptions*, int threads)> kSetThreadsAcross{
    25};  // SetInterOpNumThreads
inline constexpr Member<Failure*(Allocator*, const std::int64_t* shape, std::size_t dimensions,
                                 int element_type, Value**)>
    kCreateOwnedTensor{48};  // CreateTensorAsOrtValue
inline constexpr Member<Failure*(const MemoryInfo*, void* bytes, std::size_t size,
                                 const std::int64_t* shape, std::size_t dimensions,
                                 int element_type, Value**)>
    kCreateTensor{49};  // CreateTensorWithDataAsOrtValue
inline constexpr Member<Failure*(const Value*, int* is_tensor)> kIsTensor{50};
// The memory of the value; not for a tensor of strings.
inline constexpr Member<Failure*(Value*, void** bytes)> kTensorBytes{51};  // GetTensorMutableData
// The sum of the strings' sizes.
inline constexpr Member<Failure*(const Value*, std::size_t* bytes)> kStringBytes{
    53};  // GetStringTensorDataLength
// `begins`: where each string begins in `bytes`.
inline constexpr Member<Failure*(const Value*, void* bytes, std::size_t size, std::size_t* begins,
                                 std::size_t count)>
    kStrings{54};  // GetStringTensorContent
inline constexpr Member<Failure*(const TensorInfo*, int* element_type)> kElementType{
    60};  // GetTensorElementType
inline constexpr Member<Failure*(const TensorInfo*, std::size_t*)> kDimensionCount{61};
inline constexpr Member<Failure*(const TensorInfo*, std::int64_t*, std::size_t)> kDimensions{62};
inline constexpr Member<Failure*(const Value*, TensorInfo**)> kTensorOfValue{
    65};  // GetTensorTypeAndShape
inline constexpr Member<Failure*(int allocator, int memory, MemoryInfo**)> kCpuMemory{
    69};  // CreateCpuMemoryInfo
// The library owns the allocator.
inline constexpr Member<Failure*(Allocator**)> kDefaultAllocator{
    78};  // GetAllocatorWithDefaultOptions
inline constexpr Member<void(Environment*)> kReleaseEnvironment{92};
inline constexpr Member<void(Failure*)> kReleaseFailure{93};
inline constexpr Member<void(MemoryInfo*)> kReleaseMemory{94};  // ReleaseMemoryInfo
inline constexpr Member<void(Session*)> kReleaseSession{95};
inline constexpr Member<void(Value*)> kReleaseValue{96};
inline constexpr Member<void(TensorInfo*)> kReleaseTensor{99};  // ReleaseTensorTypeAndShapeInfo
inline constexpr Member<void(SessionOptions*)> kReleaseSessionOptions{100};
inline constexpr Member<Failure*(char*** names, int* count)> kAvailableProviders{125};
inline constexpr Member<Failure*(char** names, int count)> kReleaseAvailableProviders{126};
inline constexpr Member<Failure*(SessionOptions*, const char* key, const char* value)> kSetOption{
    130};  // AddSessionConfigEntry
inline constexpr Member<Failure*(SessionOptions*, const CudaOptions*)> kUseCuda{
    204};  // SessionOptionsAppendExecutionProvider_CUDA_V2
inline constexpr Member<Failure*(CudaOptions**)> kCreateCudaOptions{205};
inline constexpr Member<Failure*(CudaOptions*, const char* const* keys, const char* const* values,
                                 std::size_t count)>
    kSetCudaOptions{206};  // UpdateCUDAProviderOptions
inline constexpr Member<void(CudaOptions*)> kReleaseCudaOptions{208};
// Resizes the string at `index` to `length` and returns its memory. Unlike FillStringTensor, it
// takes strings with zeros inside.
inline constexpr Member<Failure*(Value*, std::size_t index, std::size_t length, char** bytes)>
    kResizeString{252};  // GetResizedStringTensorElementBuffer

}  // namespace gpulet::executor::onnx_abi

// A libcuda.so.1 that is configured by a text file (fake_control.h). It enforces the documented
// rules of green contexts: the result of a split cannot be split again, the resources of a context
// come from one split, and a stream is destroyed before its context.
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "gpu/cuda_abi.h"
#include "tests/support/gpu/fake_control.h"

namespace {

namespace abi = gpulet::gpu::cuda_abi;
using gpulet::support::FakeMachine;
using gpulet::support::FakeSettings;
using gpulet::support::read_fake_machine;
using gpulet::support::record_fake_call;

constexpr abi::Return kInvalidContext = 201;
constexpr std::size_t kMostSms = 256;
using SmSet = std::bitset<kMostSms>;

// The content of a resource's opaque bytes.
struct Hidden {
  unsigned split = 0;  // id of the split; 0: a whole device
  SmSet sms;
};
static_assert(sizeof(Hidden) <= sizeof(abi::Resource::opaque));

Hidden hidden_in(const abi::Resource& resource) {
  Hidden hidden;
  std::memcpy(static_cast<void*>(&hidden), resource.opaque, sizeof(hidden));
  return hidden;
}

abi::Resource resource_of(const Hidden& hidden, const FakeSettings& gpu) {
  abi::Resource resource{};
  resource.type = abi::kResourceTypeSm;
  std::memcpy(resource.opaque, static_cast<const void*>(&hidden), sizeof(hidden));
  // Drivers before 13.0 do not set the last two fields.
  const auto step =
      static_cast<unsigned>(gpu.number("tells_step", 1) != 0 ? gpu.number("step", 8) : 0);
  resource.sm = {static_cast<unsigned>(hidden.sms.count()), step, step};
  return resource;
}

struct GreenContext {
  Hidden hidden;
  FakeSettings gpu;
  int streams = 0;
};

// The state of this process.
struct State {
  unsigned splits = 0;
  std::uintptr_t last_handle = 0;
  std::map<std::uintptr_t, GreenContext> contexts;
  std::map<std::uintptr_t, std::uintptr_t> streams;  // with their contexts
  std::map<std::uintptr_t, Hidden> descriptors;
  std::uintptr_t current = 0;
};
State& state() {
  static State the_state;
  return the_state;
}
// The functions may be called by any thread.
std::unique_lock<std::mutex> state_lock() {
  static std::mutex the_mutex;
  return std::unique_lock(the_mutex);
}
std::uintptr_t new_handle() { return ++state().last_handle; }
std::uintptr_t number_of(void* handle) { return reinterpret_cast<std::uintptr_t>(handle); }
void* handle_of(std::uintptr_t number) {
  return reinterpret_cast<void*>(number);  // NOLINT(performance-no-int-to-ptr): only a name
}

std::optional<FakeSettings> gpu_at(abi::Device device) {
  const FakeMachine machine = read_fake_machine();
  const auto number = static_cast<std::size_t>(device);
  if (device < 0 || number >= machine.gpus.size()) return std::nullopt;
  return machine.gpus[number];
}

// The setting "fail_<function>" makes a function fail with that code.
abi::Return failure_of(const std::string& function) {
  return static_cast<abi::Return>(read_fake_machine().settings.number("fail_" + function, 0));
}

std::string listed(const SmSet& sms) {
  std::string list;
  for (std::size_t sm = 0; sm < kMostSms; ++sm) {
    if (sms.test(sm)) list += ' ' + std::to_string(sm);
  }
  return list;
}

abi::Return make_stream(abi::Stream* stream, std::uintptr_t context, const std::string& by) {
  const auto owner = state().contexts.find(context);
  if (owner == state().contexts.end()) return kInvalidContext;
  const std::uintptr_t handle = new_handle();
  state().streams[handle] = context;
  ++owner->second.streams;
  *stream = handle_of(handle);
  record_fake_call(by + ' ' + std::to_string(handle) + " in " + std::to_string(context));
  return abi::kSuccess;
}

// Whether the configured driver version has a function.
bool knows(int since) {
  return read_fake_machine().settings.number("cuda_version", 13000) >= since;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the library's names
extern "C" {

abi::Return cuInit(unsigned) {
  record_fake_call("cuInit");
  const FakeSettings settings = read_fake_machine().settings;
  const std::string how = settings.text("cuda_init", "0");
  if (how == "crash") ::_exit(1);
  while (how == "hang") ::pause();
  return static_cast<abi::Return>(settings.number("cuda_init", 0));
}
abi::Return cuDriverGetVersion(int* version) {
  *version = static_cast<int>(read_fake_machine().settings.number("cuda_version", 13000));
  return abi::kSuccess;
}
abi::Return cuGetErrorName(abi::Return code, const char** name) {
  *name = code == abi::kNoDevice ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR";
  return abi::kSuccess;
}
abi::Return cuGetErrorString(abi::Return code, const char** words) {
  *words = code == abi::kNoDevice ? "no CUDA-capable device is detected" : "an error";
  return abi::kSuccess;
}
abi::Return cuDeviceGetCount(int* count) {
  *count = static_cast<int>(read_fake_machine().gpus.size());
  return abi::kSuccess;
}
abi::Return cuDeviceGet(abi::Device* device, int number) {
  *device = number;
  return gpu_at(number) ? abi::kSuccess : abi::kInvalidDevice;
}
abi::Return cuDeviceGetUuid_v2(abi::Uuid* uuid, abi::Device device) {
  const auto gpu = gpu_at(device);
  if (!gpu) return abi::kInvalidDevice;
  std::string digits;
  for (const char c : gpu->text("uuid", "GPU-").substr(4)) {
    if (c != '-') digits += c;
  }
  digits.resize(2 * sizeof(uuid->bytes), '0');
  for (std::size_t i = 0; i < sizeof(uuid->bytes); ++i)
    uuid->bytes[i] = static_cast<unsigned char>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  return abi::kSuccess;
}
abi::Return cuDeviceGetAttribute(int* value, int attribute, abi::Device device) {
  const auto gpu = gpu_at(device);
  if (!gpu) return abi::kInvalidDevice;
  if (attribute == abi::kAttributeMpsEnabled) {
    *value = static_cast<int>(gpu->number("in_mps", 0));
    return abi::kSuccess;
  }
  *value = static_cast<int>(attribute == abi::kAttributeMultiprocessors
                                ? gpu->number("sms", 132)
                                : gpu->number("compute_major", 9));
  return abi::kSuccess;
}
abi::Return cuDevicePrimaryCtxRetain(abi::Context* context, abi::Device device) {
  if (const abi::Return code = failure_of("cuDevicePrimaryCtxRetain"); code != 0) return code;
  *context = handle_of(1000000 + static_cast<std::uintptr_t>(device));
  record_fake_call("cuDevicePrimaryCtxRetain " + std::to_string(device));
  return abi::kSuccess;
}
abi::Return cuDevicePrimaryCtxRelease_v2(abi::Device device) {
  record_fake_call("cuDevicePrimaryCtxRelease_v2 " + std::to_string(device));
  return abi::kSuccess;
}
abi::Return cuCtxPushCurrent_v2(abi::Context context) {
  const auto lock = state_lock();
  state().current = number_of(context);
  return abi::kSuccess;
}
abi::Return cuCtxPopCurrent_v2(abi::Context* context) {
  const auto lock = state_lock();
  *context = handle_of(state().current);
  state().current = 0;
  return abi::kSuccess;
}
abi::Return cuStreamCreate(abi::Stream* stream, unsigned) {
  const auto lock = state_lock();
  return make_stream(stream, state().current, "cuStreamCreate");
}
abi::Return cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned flags) {
  if (const abi::Return code = failure_of("cuMemHostRegister_v2"); code != 0) return code;
  if (state().current == 0) return kInvalidContext;
  if (memory == nullptr || bytes == 0 || flags != abi::kRegisterPortable) return abi::kInvalidValue;
  record_fake_call("cuMemHostRegister_v2 " + std::to_string(bytes));
  return abi::kSuccess;
}
abi::Return cuMemHostUnregister(void*) {
  record_fake_call(state().current == 0 ? "cuMemHostUnregister without a context"
                                        : "cuMemHostUnregister");
  return abi::kSuccess;
}
abi::Return cuMemAlloc_v2(abi::DeviceMemory* memory, std::size_t bytes) {
  if (const abi::Return code = failure_of("cuMemAlloc_v2"); code != 0) return code;
  if (state().current == 0) return kInvalidContext;
  record_fake_call("cuMemAlloc_v2 " + std::to_string(bytes));
  *memory = 0x1000;
  return abi::kSuccess;
}
abi::Return cuMemFree_v2(abi::DeviceMemory) {
  record_fake_call("cuMemFree_v2");
  return abi::kSuccess;
}
abi::Return cuMemcpyHtoD_v2(abi::DeviceMemory memory, const void*, std::size_t bytes) {
  if (const abi::Return code = failure_of("cuMemcpyHtoD_v2"); code != 0) return code;
  if (state().current == 0 || memory != 0x1000) return abi::kInvalidValue;
  record_fake_call("cuMemcpyHtoD_v2 " + std::to_string(bytes));
  return abi::kSuccess;
}
abi::Return cuStreamDestroy_v2(abi::Stream stream) {
  const auto lock = state_lock();
  const auto found = state().streams.find(number_of(stream));
  if (found == state().streams.end()) return kInvalidContext;
  record_fake_call("cuStreamDestroy_v2 " + std::to_string(found->first));
  if (const auto context = state().contexts.find(found->second); context != state().contexts.end())
    --context->second.streams;
  state().streams.erase(found);
  return abi::kSuccess;
}
abi::Return cuDeviceGetDevResource(abi::Device device, abi::Resource* resource, int type) {
  const auto gpu = gpu_at(device);
  if (!gpu) return abi::kInvalidDevice;
  if (type != abi::kResourceTypeSm) return abi::kInvalidResourceType;
  Hidden whole;
  for (long long sm = 0; sm < gpu->number("sms", 132); ++sm)
    whole.sms.set(static_cast<std::size_t>(sm));
  *resource = resource_of(whole, *gpu);
  return abi::kSuccess;
}
abi::Return cuDevSmResourceSplitByCount(abi::Resource* results, unsigned* count,
                                        const abi::Resource* input, abi::Resource* remaining,
                                        unsigned, unsigned least) {
  const auto lock = state_lock();
  Hidden left = hidden_in(*input);
  if (left.split != 0) return abi::kInvalidResourceConfiguration;
  const auto gpu = gpu_at(0);  // tests divide only this one
  if (!gpu || input->type != abi::kResourceTypeSm) return abi::kInvalidResourceType;
  if (least > input->sm.sms) return abi::kInvalidValue;
  const auto step = static_cast<unsigned>(gpu->number("step", 8));
  const unsigned size = std::max(step, (least + step - 1) / step * step);
  // Scattered SMs are in no block.
  const auto lost = static_cast<unsigned>(gpu->number("scattered", 0));
  const unsigned most = (std::max(input->sm.sms, lost) - lost) / size;
  const unsigned made = results == nullptr ? most : std::min(most, *count);
  *count = made;
  if (results == nullptr) return abi::kSuccess;
  const unsigned split = ++state().splits;
  std::size_t sm = 0;
  for (unsigned group = 0; group < made; ++group) {
    Hidden hidden{.split = split, .sms = {}};
    while (hidden.sms.count() < size) {
      if (left.sms.test(sm)) hidden.sms.set(sm);
      left.sms.reset(sm++);
    }
    results[group] = resource_of(hidden, *gpu);
  }
  left.split = split;
  if (remaining != nullptr) *remaining = resource_of(left, *gpu);
  return abi::kSuccess;
}
abi::Return cuDevResourceGenerateDesc(abi::Descriptor* descriptor, abi::Resource* resources,
                                      unsigned count) {
  const auto lock = state_lock();
  Hidden together = hidden_in(resources[0]);
  for (unsigned i = 1; i < count; ++i) {
    const Hidden one = hidden_in(resources[i]);
    if (one.split == 0 || one.split != together.split || (one.sms & together.sms).any())
      return abi::kInvalidResourceConfiguration;
    together.sms |= one.sms;
  }
  const std::uintptr_t handle = new_handle();
  state().descriptors[handle] = together;
  *descriptor = handle_of(handle);
  return abi::kSuccess;
}
abi::Return cuGreenCtxCreate(abi::GreenContext* context, abi::Descriptor descriptor,
                             abi::Device device, unsigned flags) {
  const auto lock = state_lock();
  if (const abi::Return code = failure_of("cuGreenCtxCreate"); code != 0) return code;
  const auto gpu = gpu_at(device);
  const auto found = state().descriptors.find(number_of(descriptor));
  if (!gpu) return abi::kInvalidDevice;
  if (found == state().descriptors.end() || flags != abi::kGreenContextDefaultStream)
    return abi::kInvalidValue;
  const std::uintptr_t handle = new_handle();
  state().contexts[handle] = {found->second, *gpu, 0};
  *context = handle_of(handle);
  record_fake_call("cuGreenCtxCreate " + std::to_string(handle) + " :" + listed(found->second.sms));
  return abi::kSuccess;
}
abi::Return cuGreenCtxDestroy(abi::GreenContext context) {
  const auto lock = state_lock();
  const auto found = state().contexts.find(number_of(context));
  if (found == state().contexts.end()) return kInvalidContext;
  record_fake_call("cuGreenCtxDestroy " + std::to_string(found->first) +
                   (found->second.streams == 0 ? "" : " with streams left in it"));
  state().contexts.erase(found);
  return abi::kSuccess;
}
abi::Return cuGreenCtxGetDevResource(abi::GreenContext context, abi::Resource* resource, int) {
  const auto lock = state_lock();
  const auto found = state().contexts.find(number_of(context));
  if (found == state().contexts.end()) return kInvalidContext;
  *resource = resource_of(found->second.hidden, found->second.gpu);
  return abi::kSuccess;
}
abi::Return cuCtxFromGreenCtx(abi::Context* context, abi::GreenContext green) {
  *context = green;
  return abi::kSuccess;
}
abi::Return cuGreenCtxStreamCreate(abi::Stream* stream, abi::GreenContext context, unsigned flags,
                                   int) {
  const auto lock = state_lock();
  if (const abi::Return code = failure_of("cuGreenCtxStreamCreate"); code != 0) return code;
  if (flags != abi::kStreamNonBlocking || !knows(12050)) return abi::kInvalidValue;
  return make_stream(stream, number_of(context), "cuGreenCtxStreamCreate");
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)

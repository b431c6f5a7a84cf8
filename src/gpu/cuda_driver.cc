#include "gpulet/gpu/cuda_driver.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>
#include <string_view>

#include "gpu/cuda_calls.h"
#include "gpu/shared_library.h"
#include "gpulet/base/files.h"

namespace gpulet::gpu {
namespace {

namespace abi = cuda_abi;

// For percentages that were computed from whole SMs.
constexpr double kRounding = 1e-6;

// The digits of a UUID, to compare NVML's "GPU-8f0c..." with the bytes of CUDA, which have no
// prefix.
std::string digits_of(std::string_view uuid) {
  std::string digits;
  for (const char c : uuid.substr(std::min(uuid.size(), uuid.find('-') + 1))) {
    if (c != '-') digits += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return digits;
}

std::string digits_of(const abi::Uuid& uuid) {
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  std::string digits;
  for (const unsigned char byte : uuid.bytes) {
    digits += kHexDigits[byte >> 4U];
    digits += kHexDigits[byte & 0xfU];
  }
  return digits;
}

}  // namespace

std::uint32_t SmGroups::sms_of(double percent) const {
  if (percent >= 100) return sms;
  const double steps = std::floor(sms * percent / 100 / step + kRounding);
  const auto rounded = static_cast<std::uint32_t>(std::max(steps, 0.0)) * step;
  return std::max(smallest, std::min(rounded, divisible));
}

std::string cuda_version_text(std::uint32_t version) {
  return std::to_string(version / 1000) + '.' + std::to_string(version % 1000 / 10);
}

Result<CudaDriver> CudaDriver::load(const std::filesystem::path& library) {
  GPULET_TRY(std::shared_ptr<const CudaCalls> calls, CudaCalls::load(library));
  return CudaDriver(std::move(calls));
}

Result<std::uint32_t> CudaDriver::version() const { return calls_->version(); }

Result<std::uint32_t> CudaDriver::number_of(const std::string& uuid) const {
  int count = 0;
  if (const abi::Return code = calls_->device_get_count(&count); code != abi::kSuccess)
    return calls_->failure(code, "cannot list the GPUs");
  for (std::uint32_t number = 0; number < static_cast<std::uint32_t>(count); ++number) {
    GPULET_TRY(const abi::Device device, calls_->device(number));
    abi::Uuid own{};
    if (const abi::Return code = calls_->device_get_uuid(&own, device); code != abi::kSuccess)
      return calls_->failure(code, "cannot read the UUID of GPU " + std::to_string(number));
    if (digits_of(own) == digits_of(uuid)) return number;
  }
  return Status(StatusCode::not_found,
                "this process has no GPU " + uuid + " among the " + std::to_string(count) +
                    " that CUDA shows it; check CUDA_VISIBLE_DEVICES, and whether MIG is on");
}

Result<bool> CudaDriver::in_mps(std::uint32_t gpu) const {
  GPULET_TRY(const abi::Device device, calls_->device(gpu));
  GPULET_TRY(const std::uint32_t enabled, calls_->attribute(abi::kAttributeMpsEnabled, device));
  return enabled != 0;
}

Result<bool> CudaDriver::is_held(std::uint32_t gpu) const {
  const Result<bool> mps = in_mps(gpu);
  const std::string_view visible = environment_variable("CUDA_VISIBLE_DEVICES");
  if (!mps.ok() || !visible.starts_with("MIG-")) return mps;
  GPULET_TRY(const std::uint32_t instance, number_of(std::string(visible)));
  const bool alone = environment_variable("CUDA_MPS_PIPE_DIRECTORY") == kNoMpsDirectory;
  return instance == gpu && (alone || mps.value());
}

Result<std::uint32_t> CudaDriver::usable_sms(std::uint32_t gpu) const {
  GPULET_TRY(const abi::Device device, calls_->device(gpu));
  return calls_->attribute(abi::kAttributeMultiprocessors, device);
}

// ---- Green contexts
//
// The result of a split cannot be split again, and its remainder should not be, but a context may
// use several results of one split. So the SMs are split once into the smallest groups, and each
// context takes as many as it needs.

namespace {

// The size of the smallest group: as the resource reports it, or, where the driver does not, as
// NVIDIA documents it for the architecture.
std::uint32_t smallest_group(const abi::SmResource& sm, std::uint32_t compute_major) {
  if (sm.smallest > 0 && sm.smallest <= sm.sms) return sm.smallest;
  if (compute_major >= 9) return 8;
  return compute_major == 8 ? 4 : 2;
}

std::uint32_t sms_in(const std::vector<abi::Resource>& blocks) {
  return std::accumulate(
      blocks.begin(), blocks.end(), 0U,
      [](std::uint32_t sum, const abi::Resource& block) { return sum + block.sm.sms; });
}

Result<std::vector<abi::Resource>> split(const CudaCalls& calls, const abi::Resource& whole,
                                         std::uint32_t smallest) {
  unsigned count = 0;
  abi::Return code =
      calls.sm_resource_split_by_count(nullptr, &count, &whole, nullptr, 0, smallest);
  std::vector<abi::Resource> blocks(count);
  if (code == abi::kSuccess && count > 0) {
    code = calls.sm_resource_split_by_count(blocks.data(), &count, &whole, nullptr, 0, smallest);
    blocks.resize(std::min<std::size_t>(count, blocks.size()));
  }
  if (code != abi::kSuccess) {
    return calls.failure(code, "cannot split " + std::to_string(whole.sm.sms) +
                                   " SMs into groups of " + std::to_string(smallest));
  }
  if (blocks.empty()) {
    return Status(StatusCode::unavailable,
                  "the GPU's " + std::to_string(whole.sm.sms) + " SMs are too few for a group of " +
                      std::to_string(smallest) + "; divide it by mps, or not at all");
  }
  return blocks;
}

struct CutDevice {
  abi::Device device = 0;
  abi::Resource whole{};
  std::vector<abi::Resource> blocks;
  SmGroups sizes;
};

Result<CutDevice> cut_device(const CudaCalls& calls, std::uint32_t gpu) {
  if (Status able = calls.can_divide(); !able.ok()) return able;
  GPULET_TRY(const abi::Device device, calls.device(gpu));
  CutDevice cut;
  cut.device = device;
  if (const abi::Return code =
          calls.device_get_resource(cut.device, &cut.whole, abi::kResourceTypeSm);
      code != abi::kSuccess)
    return calls.failure(code, "cannot read the SMs of GPU " + std::to_string(gpu));
  GPULET_TRY(const std::uint32_t major, calls.attribute(abi::kAttributeComputeMajor, cut.device));
  Result<std::vector<abi::Resource>> blocks =
      split(calls, cut.whole, smallest_group(cut.whole.sm, major));
  if (!blocks.ok()) return blocks.status().within("GPU " + std::to_string(gpu));
  cut.blocks = std::move(blocks).value();
  const std::uint32_t step = cut.blocks.front().sm.sms;
  cut.sizes = {
      .sms = cut.whole.sm.sms, .divisible = sms_in(cut.blocks), .smallest = step, .step = step};
  return cut;
}

}  // namespace

class GreenStream::Handles {
 public:
  Handles(std::shared_ptr<const CudaCalls> calls, PrimaryContext primary)
      : calls_(std::move(calls)), primary_(std::move(primary)) {}
  ~Handles() {
    // The stream first: it cannot be destroyed without its context.
    if (stream != nullptr) (void)calls_->stream_destroy(stream);
    if (context != nullptr && owner_ == nullptr) (void)calls_->green_context_destroy(context);
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

  [[nodiscard]] Status create(std::vector<abi::Resource> resources, abi::Device device);
  [[nodiscard]] static Result<GreenStream> create_beside(std::shared_ptr<const Handles> first);

  abi::GreenContext context = nullptr;
  abi::Stream stream = nullptr;
  std::uint32_t sms = 0;

 private:
  [[nodiscard]] abi::Return create_stream();

  std::shared_ptr<const CudaCalls> calls_;
  PrimaryContext primary_;
  std::shared_ptr<const Handles> owner_;  // of the context; null: this object
};

Status GreenStream::Handles::create(std::vector<abi::Resource> resources, abi::Device device) {
  const std::string what = "cannot create a group of " + std::to_string(sms_in(resources)) + " SMs";
  abi::Descriptor descriptor = nullptr;
  abi::Return code = calls_->resource_generate_descriptor(&descriptor, resources.data(),
                                                          static_cast<unsigned>(resources.size()));
  if (code == abi::kSuccess)
    code =
        calls_->green_context_create(&context, descriptor, device, abi::kGreenContextDefaultStream);
  if (code != abi::kSuccess) return calls_->failure(code, what);
  abi::Resource granted{};
  code = calls_->green_context_get_resource(context, &granted, abi::kResourceTypeSm);
  if (code == abi::kSuccess) code = create_stream();
  if (code != abi::kSuccess) return calls_->failure(code, what);
  sms = granted.sm.sms;
  return {};
}

abi::Return GreenStream::Handles::create_stream() {
  if (calls_->green_context_stream_create != nullptr)
    return calls_->green_context_stream_create(&stream, context, abi::kStreamNonBlocking,
                                               /*priority=*/0);
  // CUDA 12.4 creates streams only in the current context.
  abi::Context current = nullptr;
  abi::Return code = calls_->context_from_green_context(&current, context);
  if (code == abi::kSuccess) code = calls_->context_push_current(current);
  if (code != abi::kSuccess) return code;
  code = calls_->stream_create(&stream, abi::kStreamNonBlocking);
  (void)calls_->context_pop_current(&current);
  return code;
}

Result<GreenStream> GreenStream::Handles::create_beside(std::shared_ptr<const Handles> first) {
  const auto made = std::make_shared<Handles>(first->calls_, first->primary_);
  made->context = first->context;
  made->sms = first->sms;
  made->owner_ = first->owner_ == nullptr ? std::move(first) : first->owner_;
  const abi::Return code = made->create_stream();
  if (code != abi::kSuccess)
    return made->calls_->failure(code, "cannot create another stream in a green context");
  return GreenStream(made);
}

Result<GreenStream> GreenStream::beside() const { return Handles::create_beside(handles_); }

std::uint32_t GreenStream::sms() const { return handles_->sms; }
void* GreenStream::stream() const { return handles_->stream; }

struct SmBlocks::Cut {
  [[nodiscard]] Result<GreenStream> stream_of(std::vector<abi::Resource> resources) const {
    const auto handles = std::make_shared<GreenStream::Handles>(calls, primary);
    if (Status made = handles->create(std::move(resources), device.device); !made.ok()) return made;
    return GreenStream(handles);
  }

  std::shared_ptr<const CudaCalls> calls;
  PrimaryContext primary;
  CutDevice device;
};

const SmGroups& SmBlocks::sizes() const { return cut_->device.sizes; }
std::uint32_t SmBlocks::count() const {
  return static_cast<std::uint32_t>(cut_->device.blocks.size());
}

Result<GreenStream> SmBlocks::stream_over(std::span<const std::uint32_t> blocks) const {
  std::vector<abi::Resource> resources;
  std::vector<bool> taken(count(), false);
  for (const std::uint32_t block : blocks) {
    if (block >= count() || taken[block]) {
      return Status(StatusCode::invalid,
                    "a group cannot have block " + std::to_string(block) +
                        (block < count() ? " twice"
                                         : "; the GPU has " + std::to_string(count()) + " blocks"));
    }
    taken[block] = true;
    resources.push_back(cut_->device.blocks[block]);
  }
  if (resources.empty()) return Status(StatusCode::invalid, "a group needs at least one block");
  return cut_->stream_of(std::move(resources));
}

Result<GreenStream> SmBlocks::stream_over_all() const {
  return cut_->stream_of({cut_->device.whole});
}

Result<SmGroups> CudaDriver::sm_groups(std::uint32_t gpu) const {
  GPULET_TRY(const CutDevice cut, cut_device(*calls_, gpu));
  return cut.sizes;
}

Result<SmBlocks> CudaDriver::cut(std::uint32_t gpu) const {
  GPULET_TRY(CutDevice device, cut_device(*calls_, gpu));
  GPULET_TRY(auto primary, retain_primary_context(calls_, device.device));
  return SmBlocks(std::make_shared<const SmBlocks::Cut>(
      SmBlocks::Cut{calls_, std::move(primary), std::move(device)}));
}

// ---- Memory

namespace {

// Calls a function of the driver under a context.
template <typename Call>
abi::Return call_under(const CudaCalls& calls, const PrimaryContext& context, const Call& call) {
  abi::Return code = calls.context_push_current(context.get());
  if (code != abi::kSuccess) return code;
  code = call(calls);
  abi::Context popped = nullptr;
  (void)calls.context_pop_current(&popped);
  return code;
}

}  // namespace

Result<RegisteredMemory> CudaDriver::register_memory(std::uint32_t gpu,
                                                     std::span<std::byte> memory) const {
  GPULET_TRY(const abi::Device device, calls_->device(gpu));
  GPULET_TRY(auto primary, retain_primary_context(calls_, device));
  const abi::Return code = call_under(*calls_, primary, [memory](const CudaCalls& calls) {
    return calls.memory_register(memory.data(), memory.size(), abi::kRegisterPortable);
  });
  if (code != abi::kSuccess) {
    return calls_->failure(
        code, "cannot register " + std::to_string(memory.size()) + " bytes of shared memory");
  }
  return RegisteredMemory(
      memory.data(), [calls = calls_, context = std::move(primary)](std::byte* begin) {
        (void)call_under(*calls, context,
                         [begin](const CudaCalls& of) { return of.memory_unregister(begin); });
      });
}

Result<Duration> CudaDriver::time_copies(std::uint32_t gpu, std::span<const std::byte> memory,
                                         std::uint32_t copies) const {
  GPULET_TRY(const abi::Device device, calls_->device(gpu));
  GPULET_TRY(const auto primary, retain_primary_context(calls_, device));
  Duration took{};
  const abi::Return code = call_under(*calls_, primary, [&](const CudaCalls& calls) {
    abi::DeviceMemory target = 0;
    abi::Return failed = calls.memory_allocate(&target, memory.size());
    if (failed != abi::kSuccess) return failed;
    failed = calls.copy_to_device(target, memory.data(), memory.size());
    const auto began = std::chrono::steady_clock::now();
    for (std::uint32_t copy = 0; failed == abi::kSuccess && copy < copies; ++copy)
      failed = calls.copy_to_device(target, memory.data(), memory.size());
    took = std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now() - began);
    (void)calls.memory_free(target);
    return failed;
  });
  if (code != abi::kSuccess) {
    return calls_->failure(code, "cannot copy " + std::to_string(memory.size()) + " bytes to GPU " +
                                     std::to_string(gpu));
  }
  return took / std::max<std::uint32_t>(copies, 1);
}

// ---- Profiled range

Result<ProfiledRange> ProfiledRange::begin(const std::filesystem::path& library) {
  GPULET_TRY(const auto driver, SharedLibrary::open(library));
  int (*start)() = nullptr;
  int (*stop)() = nullptr;
  Symbols symbols(driver);
  symbols.require("cuProfilerStart", start);
  symbols.require("cuProfilerStop", stop);
  if (!symbols.status().ok()) return symbols.status();
  if (const int code = start(); code != 0)
    return Status(StatusCode::internal, "cuProfilerStart failed with " + std::to_string(code));
  return ProfiledRange(std::shared_ptr<const void>(nullptr, [stop](const void*) { stop(); }));
}

}  // namespace gpulet::gpu

#include "gpulet/gpu/cuda_driver.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>

#include "gpu/cuda_calls.h"
#include "gpu/shared_library.h"

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

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value != nullptr ? value : "";
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

CudaDriver::CudaDriver(std::shared_ptr<const CudaCalls> calls) : calls_(std::move(calls)) {}
CudaDriver::CudaDriver(CudaDriver&&) noexcept = default;
CudaDriver& CudaDriver::operator=(CudaDriver&&) noexcept = default;
CudaDriver::~CudaDriver() = default;

Result<CudaDriver> CudaDriver::load(const std::filesystem::path& library) {
  Result<std::shared_ptr<const CudaCalls>> calls = CudaCalls::load(library);
  if (!calls.ok()) return calls.status();
  return CudaDriver(std::move(calls).value());
}

Result<std::uint32_t> CudaDriver::version() const { return calls_->version(); }

Result<std::uint32_t> CudaDriver::number_of(const std::string& uuid) const {
  int count = 0;
  if (const abi::Return code = calls_->device_get_count(&count); code != abi::kSuccess)
    return calls_->failure(code, "cannot list the GPUs");
  for (std::uint32_t number = 0; number < static_cast<std::uint32_t>(count); ++number) {
    const Result<abi::Device> device = calls_->device(number);
    if (!device.ok()) return device.status();
    abi::Uuid own{};
    if (const abi::Return code = calls_->device_get_uuid(&own, device.value());
        code != abi::kSuccess)
      return calls_->failure(code, "cannot read the UUID of GPU " + std::to_string(number));
    if (digits_of(own) == digits_of(uuid)) return number;
  }
  return Status(StatusCode::not_found,
                "this process has no GPU " + uuid + " among the " + std::to_string(count) +
                    " that CUDA shows it; check CUDA_VISIBLE_DEVICES, and whether MIG is on");
}

Result<bool> CudaDriver::in_mps(std::uint32_t gpu) const {
  const Result<abi::Device> device = calls_->device(gpu);
  if (!device.ok()) return device.status();
  const Result<std::uint32_t> enabled =
      calls_->attribute(abi::kAttributeMpsEnabled, device.value());
  if (!enabled.ok()) return enabled.status();
  return enabled.value() != 0;
}

Result<bool> CudaDriver::is_held(std::uint32_t gpu) const {
  const Result<bool> mps = in_mps(gpu);
  const std::string_view visible = variable("CUDA_VISIBLE_DEVICES");
  if (!mps.ok() || !visible.starts_with("MIG-")) return mps;
  const Result<std::uint32_t> instance = number_of(std::string(visible));
  if (!instance.ok()) return instance.status();
  const bool alone = variable("CUDA_MPS_PIPE_DIRECTORY") == kNoMpsDirectory;
  return instance.value() == gpu && (alone || mps.value());
}

Result<std::uint32_t> CudaDriver::usable_sms(std::uint32_t gpu) const {
  const Result<abi::Device> device = calls_->device(gpu);
  if (!device.ok()) return device.status();
  return calls_->attribute(abi::kAttributeMultiprocessors, device.value());
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
  const Result<abi::Device> device = calls.device(gpu);
  if (!device.ok()) return device.status();
  CutDevice cut;
  cut.device = device.value();
  if (const abi::Return code =
          calls.device_get_resource(cut.device, &cut.whole, abi::kResourceTypeSm);
      code != abi::kSuccess)
    return calls.failure(code, "cannot read the SMs of GPU " + std::to_string(gpu));
  const Result<std::uint32_t> major = calls.attribute(abi::kAttributeComputeMajor, cut.device);
  if (!major.ok()) return major.status();
  Result<std::vector<abi::Resource>> blocks =
      split(calls, cut.whole, smallest_group(cut.whole.sm, major.value()));
  if (!blocks.ok()) return blocks.status().within("GPU " + std::to_string(gpu));
  cut.blocks = std::move(blocks).value();
  const std::uint32_t step = cut.blocks.front().sm.sms;
  cut.sizes = {
      .sms = cut.whole.sm.sms, .divisible = sms_in(cut.blocks), .smallest = step, .step = step};
  return cut;
}

// Checks the size of a group where that many blocks are free.
Status check_size(const SmGroups& sizes, std::uint32_t sms, std::size_t free_blocks) {
  const bool all = sms == sizes.sms;
  if (!all && (sms == 0 || sms % sizes.step != 0)) {
    return {StatusCode::invalid, "a group cannot have " + std::to_string(sms) +
                                     " SMs; choose a multiple of " + std::to_string(sizes.step) +
                                     " up to " + std::to_string(sizes.divisible) + ", or all " +
                                     std::to_string(sizes.sms)};
  }
  const std::size_t free = free_blocks * sizes.step;
  if (all ? free == sizes.divisible : sms <= free) return {};
  return {StatusCode::overloaded, std::to_string(sms) + " SMs are not free; of the GPU's " +
                                      std::to_string(sizes.divisible) + " divisible SMs, " +
                                      std::to_string(sizes.divisible - free) + " are in use"};
}

}  // namespace

class GreenStream::Handles {
 public:
  Handles(std::shared_ptr<const CudaCalls> calls, std::shared_ptr<const PrimaryContext> primary)
      : calls_(std::move(calls)), primary_(std::move(primary)) {}
  ~Handles() {
    // The stream first: it cannot be destroyed without its context.
    if (stream != nullptr) (void)calls_->stream_destroy(stream);
    if (context != nullptr) (void)calls_->green_context_destroy(context);
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;

  [[nodiscard]] Status create(std::vector<abi::Resource> resources, abi::Device device);

  abi::GreenContext context = nullptr;
  abi::Stream stream = nullptr;
  std::uint32_t sms = 0;

 private:
  [[nodiscard]] abi::Return create_stream();

  std::shared_ptr<const CudaCalls> calls_;
  std::shared_ptr<const PrimaryContext> primary_;
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

GreenStream::GreenStream(std::unique_ptr<Handles> handles) : handles_(std::move(handles)) {}
GreenStream::GreenStream(GreenStream&&) noexcept = default;
GreenStream& GreenStream::operator=(GreenStream&&) noexcept = default;
GreenStream::~GreenStream() = default;
std::uint32_t GreenStream::sms() const { return handles_->sms; }
void* GreenStream::stream() const { return handles_->stream; }

class SmBlocks::Cut {
 public:
  [[nodiscard]] Result<GreenStream> stream_of(std::vector<abi::Resource> resources) const {
    auto handles = std::make_unique<GreenStream::Handles>(calls, primary);
    if (Status made = handles->create(std::move(resources), device.device); !made.ok()) return made;
    return GreenStream(std::move(handles));
  }

  std::shared_ptr<const CudaCalls> calls;
  std::shared_ptr<const PrimaryContext> primary;
  CutDevice device;
};

SmBlocks::SmBlocks(std::unique_ptr<Cut> cut) : cut_(std::move(cut)) {}
SmBlocks::SmBlocks(SmBlocks&&) noexcept = default;
SmBlocks& SmBlocks::operator=(SmBlocks&&) noexcept = default;
SmBlocks::~SmBlocks() = default;
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
  const Result<CutDevice> cut = cut_device(*calls_, gpu);
  if (!cut.ok()) return cut.status();
  return cut.value().sizes;
}

Result<SmBlocks> CudaDriver::cut(std::uint32_t gpu) const {
  Result<CutDevice> device = cut_device(*calls_, gpu);
  if (!device.ok()) return device.status();
  auto primary = PrimaryContext::retain(calls_, device.value().device);
  if (!primary.ok()) return primary.status();
  auto cut = std::make_unique<SmBlocks::Cut>();
  cut->calls = calls_;
  cut->primary = std::move(primary).value();
  cut->device = std::move(device).value();
  return SmBlocks(std::move(cut));
}

Result<std::vector<GreenStream>> CudaDriver::divide(std::uint32_t gpu,
                                                    const std::vector<std::uint32_t>& sms) const {
  const Result<SmBlocks> cut_blocks = cut(gpu);
  if (!cut_blocks.ok()) return cut_blocks.status();
  const SmBlocks& blocks = cut_blocks.value();
  std::vector<std::uint32_t> free(blocks.count());
  std::iota(free.rbegin(), free.rend(), 0U);  // the lowest last
  std::vector<GreenStream> streams;
  for (const std::uint32_t size : sms) {
    if (Status fits = check_size(blocks.sizes(), size, free.size()); !fits.ok()) return fits;
    const bool all = size == blocks.sizes().sms;
    const std::size_t taken = all ? free.size() : size / blocks.sizes().step;
    const std::vector<std::uint32_t> own(free.rbegin(),
                                         free.rbegin() + static_cast<std::ptrdiff_t>(taken));
    free.resize(free.size() - taken);
    Result<GreenStream> stream = all ? blocks.stream_over_all() : blocks.stream_over(own);
    if (!stream.ok()) return stream.status();
    streams.push_back(std::move(stream).value());
  }
  return streams;
}

// ---- Registered memory

class RegisteredMemory::Registration {
 public:
  Registration(std::shared_ptr<const CudaCalls> calls,
               std::shared_ptr<const PrimaryContext> primary)
      : calls_(std::move(calls)), primary_(std::move(primary)) {}
  ~Registration() {
    if (begin_ != nullptr)
      (void)under_context([this] { return calls_->memory_unregister(begin_); });
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  [[nodiscard]] Status take(std::span<std::byte> memory) {
    const abi::Return code = under_context([this, memory] {
      return calls_->memory_register(memory.data(), memory.size(), abi::kRegisterPortable);
    });
    if (code != abi::kSuccess) {
      return calls_->failure(
          code, "cannot register " + std::to_string(memory.size()) + " bytes of shared memory");
    }
    begin_ = memory.data();
    return {};
  }

 private:
  template <typename Call>
  abi::Return under_context(const Call& call) const {
    abi::Context popped = nullptr;
    if (const abi::Return code = calls_->context_push_current(primary_->context());
        code != abi::kSuccess)
      return code;
    const abi::Return code = call();
    (void)calls_->context_pop_current(&popped);
    return code;
  }

  std::shared_ptr<const CudaCalls> calls_;
  std::shared_ptr<const PrimaryContext> primary_;
  void* begin_ = nullptr;
};

RegisteredMemory::RegisteredMemory(std::unique_ptr<Registration> registration)
    : registration_(std::move(registration)) {}
RegisteredMemory::RegisteredMemory(RegisteredMemory&&) noexcept = default;
RegisteredMemory& RegisteredMemory::operator=(RegisteredMemory&&) noexcept = default;
RegisteredMemory::~RegisteredMemory() = default;

Result<RegisteredMemory> CudaDriver::register_memory(std::uint32_t gpu,
                                                     std::span<std::byte> memory) const {
  const Result<abi::Device> device = calls_->device(gpu);
  if (!device.ok()) return device.status();
  auto primary = PrimaryContext::retain(calls_, device.value());
  if (!primary.ok()) return primary.status();
  auto registration =
      std::make_unique<RegisteredMemory::Registration>(calls_, std::move(primary).value());
  if (Status taken = registration->take(memory); !taken.ok()) return taken;
  return RegisteredMemory(std::move(registration));
}

// ---- Profiled range

Result<ProfiledRange> ProfiledRange::begin(const std::filesystem::path& library) {
  const auto driver = SharedLibrary::open(library);
  if (!driver.ok()) return driver.status();
  Call start = nullptr;
  Call stop = nullptr;
  Symbols symbols(driver.value());
  symbols.require("cuProfilerStart", start);
  symbols.require("cuProfilerStop", stop);
  if (!symbols.status().ok()) return symbols.status();
  if (const int code = start(); code != 0)
    return Status(StatusCode::internal, "cuProfilerStart failed with " + std::to_string(code));
  return ProfiledRange(stop);
}

ProfiledRange::ProfiledRange(ProfiledRange&& other) noexcept
    : stop_(std::exchange(other.stop_, nullptr)) {}

ProfiledRange::~ProfiledRange() {
  if (stop_ != nullptr) stop_();
}

}  // namespace gpulet::gpu

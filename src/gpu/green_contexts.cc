// How a GPU is divided. A result of a split cannot be split again, and nor should its remainder be,
// but one context may take several results of one split: so the SMs are cut once into the smallest
// groups that the driver makes, and each context takes as many as it needs.
#include <algorithm>
#include <numeric>
#include <utility>

#include "gpu/cuda_calls.h"
#include "gpulet/gpu/cuda_driver.h"

namespace gpulet::gpu {
namespace {

namespace abi = cuda_abi;

// The smallest group: as the resource tells it, or, of drivers that do not, as NVIDIA gives it for
// the architecture.
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
    return calls.failure(code, "the driver does not cut " + std::to_string(whole.sm.sms) +
                                   " SMs into groups of " + std::to_string(smallest));
  }
  if (blocks.empty()) {
    return Status(StatusCode::unavailable, "the GPU's " + std::to_string(whole.sm.sms) +
                                               " SMs make no group of " + std::to_string(smallest) +
                                               "; divide it by mps, or not at all");
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
    return calls.failure(code, "GPU " + std::to_string(gpu) + " does not tell its SMs");
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

// Of a group, where so many blocks are free.
Status check_size(const SmGroups& sizes, std::uint32_t sms, std::size_t free_blocks) {
  const bool all = sms == sizes.sms;
  if (!all && (sms == 0 || sms % sizes.step != 0)) {
    return {StatusCode::invalid,
            "a group cannot have " + std::to_string(sms) + " SMs; this GPU's have a multiple of " +
                std::to_string(sizes.step) + " up to " + std::to_string(sizes.divisible) +
                ", or all " + std::to_string(sizes.sms)};
  }
  const std::size_t free = free_blocks * sizes.step;
  if (all ? free == sizes.divisible : sms <= free) return {};
  return {StatusCode::overloaded, std::to_string(sms) + " SMs are not left; of the " +
                                      std::to_string(sizes.divisible) +
                                      " that this GPU has to divide, " +
                                      std::to_string(sizes.divisible - free) + " are given away"};
}

}  // namespace

class GreenStream::Handles {
 public:
  Handles(std::shared_ptr<const CudaCalls> calls, std::shared_ptr<const PrimaryContext> primary)
      : calls_(std::move(calls)), primary_(std::move(primary)) {}
  ~Handles() {
    // The stream first: with its context gone it could not be destroyed any more.
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
  const std::string what =
      "a group of " + std::to_string(sms_in(resources)) + " SMs cannot be made";
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
  // CUDA 12.4 makes streams in the current context only.
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
      return Status(
          StatusCode::invalid,
          "a group cannot have block " + std::to_string(block) +
              (block < count() ? " twice" : "; this GPU's SMs make " + std::to_string(count())));
    }
    taken[block] = true;
    resources.push_back(cut_->device.blocks[block]);
  }
  if (resources.empty()) return Status(StatusCode::invalid, "a group cannot have no block");
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

}  // namespace gpulet::gpu

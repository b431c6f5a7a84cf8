#include "gpulet/gpu/cuda_driver.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "gpu/cuda_calls.h"

namespace gpulet::gpu {
namespace {

namespace abi = cuda_abi;

// A percentage that was computed from whole SMs must give them back.
constexpr double kRounding = 1e-6;

// "GPU-8f0c..." and CUDA's bytes of it, in one form: the digits alone. NVML's prefix says what kind
// of device it is, and CUDA's bytes do not.
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
    return calls_->failure(code, "the driver does not tell which GPUs there are");
  for (std::uint32_t number = 0; number < static_cast<std::uint32_t>(count); ++number) {
    const Result<abi::Device> device = calls_->device(number);
    if (!device.ok()) return device.status();
    abi::Uuid own{};
    if (const abi::Return code = calls_->device_get_uuid(&own, device.value());
        code != abi::kSuccess)
      return calls_->failure(code, "GPU " + std::to_string(number) + " does not tell its UUID");
    if (digits_of(own) == digits_of(uuid)) return number;
  }
  return Status(StatusCode::not_found,
                "this process has no GPU " + uuid + " among the " + std::to_string(count) +
                    " that CUDA shows it; look at CUDA_VISIBLE_DEVICES, and whether MIG is on");
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

}  // namespace gpulet::gpu

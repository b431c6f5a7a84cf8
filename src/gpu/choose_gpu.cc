#include <algorithm>
#include <charconv>

#include "gpulet/gpu/nvml.h"

namespace gpulet::gpu {
namespace {

std::string named(const GpuInfo& gpu) {
  return std::to_string(gpu.number) + (gpu.uuid.empty() ? "" : " (" + gpu.uuid + ')');
}

std::string listed(const std::vector<const GpuInfo*>& gpus) {
  std::string list;
  for (const GpuInfo* const gpu : gpus) list += (list.empty() ? "" : ", ") + named(*gpu);
  return list;
}

bool is_number(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_meant(const GpuInfo& gpu, const std::string& wanted) {
  if (!is_number(wanted)) return gpu.uuid.starts_with(wanted);
  std::uint32_t number = 0;
  const auto read = std::from_chars(wanted.data(), wanted.data() + wanted.size(), number);
  return read.ec == std::errc() && gpu.number == number;
}

}  // namespace

Result<GpuInfo> choose_gpu(const std::vector<GpuInfo>& gpus, const std::string& wanted) {
  std::vector<const GpuInfo*> all;
  std::vector<const GpuInfo*> meant;
  for (const GpuInfo& gpu : gpus) {
    all.push_back(&gpu);
    if (wanted.empty() ? meant.empty() && gpu.fault.empty() : is_meant(gpu, wanted))
      meant.push_back(&gpu);
  }
  if (all.empty()) return Status(StatusCode::not_found, "this machine has no GPU");
  if (meant.empty()) {
    if (wanted.empty()) return Status(StatusCode::unavailable, all.front()->fault);
    return Status(StatusCode::not_found,
                  "this machine has no GPU \"" + wanted + "\"; it has " + listed(all));
  }
  if (meant.size() > 1) {
    return Status(StatusCode::invalid, "several GPUs begin with \"" + wanted + "\": " +
                                           listed(meant) + "; write more of the one that is meant");
  }
  if (!meant.front()->fault.empty()) return Status(StatusCode::unavailable, meant.front()->fault);
  return *meant.front();
}

}  // namespace gpulet::gpu

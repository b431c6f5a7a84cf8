#include "backend/proxy_environment.h"

#include <algorithm>
#include <array>

namespace gpulet::backend {
namespace {

using namespace std::string_view_literals;

constexpr std::array kNames{"PATH"sv,
                            "HOME"sv,
                            "LANG"sv,
                            "LANGUAGE"sv,
                            "TZ"sv,
                            "TMPDIR"sv,
                            "LD_LIBRARY_PATH"sv,
                            "USER"sv,
                            "LOGNAME"sv,
                            "GLIBC_TUNABLES"sv,
                            "XDG_CACHE_HOME"sv,
                            "ASAN_OPTIONS"sv,
                            "LSAN_OPTIONS"sv,
                            "TSAN_OPTIONS"sv,
                            "UBSAN_OPTIONS"sv};

constexpr std::array kPrefixes{"LC_"sv,       "CUDA_"sv,  "NVIDIA_"sv, "CUBLAS_"sv, "CUBLASLT_"sv,
                               "CUDNN_"sv,    "OMP_"sv,   "GOMP_"sv,   "KMP_"sv,    "MKL_"sv,
                               "OPENBLAS_"sv, "DNNL_"sv,  "ONEDNN_"sv, "TORCH_"sv,  "PYTORCH_"sv,
                               "ATEN_"sv,     "MALLOC_"sv};

std::string_view variable_name(std::string_view entry) { return entry.substr(0, entry.find('=')); }

bool lists(std::string_view names, std::string_view name) {
  while (!names.empty()) {
    const auto one = names.substr(0, names.find(','));
    if (one == name) return true;
    names.remove_prefix(std::min(one.size() + 1, names.size()));
  }
  return false;
}

// What this environment names to pass on.
std::string_view named_by(const char* const* own) {
  for (; *own != nullptr; ++own) {
    const std::string_view entry(*own);
    if (variable_name(entry) == kPassedOnVariable)
      return entry.substr(variable_name(entry).size() + 1);
  }
  return {};
}

}  // namespace

bool is_passed_on(std::string_view name) {
  const auto begins_it = [name](std::string_view prefix) { return name.starts_with(prefix); };
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kPrefixes.begin(), kPrefixes.end(), begins_it);
}

std::vector<std::string> proxy_environment(const char* const* own,
                                           const std::vector<std::string>& more,
                                           const std::map<std::string, std::string>& on_top) {
  const auto also = named_by(own);
  std::vector<std::string> passed;
  for (; *own != nullptr; ++own) {
    const std::string_view entry(*own);
    const std::string name(variable_name(entry));
    if (name.size() == entry.size() || on_top.contains(name)) continue;
    const bool asked_for = std::find(more.begin(), more.end(), name) != more.end();
    if (asked_for || is_passed_on(name) || lists(also, name)) passed.emplace_back(entry);
  }
  for (const auto& [name, value] : on_top) {
    std::string& entry = passed.emplace_back(name);
    entry += '=';
    entry += value;
  }
  return passed;
}

}  // namespace gpulet::backend

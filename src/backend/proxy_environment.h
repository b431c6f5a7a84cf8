// Which variables of this process's environment its proxies get. A backend's environment may hold
// what no model should read: keys, tokens, addresses.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace gpulet::backend {

// Variables of this process that name more to pass on, separated by commas: for programs that have
// no configuration file.
inline constexpr const char* kPassedOnVariable = "GPULET_PROXY_ENVIRONMENT";

// Whether every proxy gets it: what the C library, the loader, numeric libraries, CUDA and LibTorch
// are told by their users. Nothing of gpulet's own.
[[nodiscard]] bool is_passed_on(std::string_view name);

// The strings "NAME=value" that a proxy starts with: `on_top`, and of `own`, which has the form of
// environ, what is_passed_on, or is named by `more` or kPassedOnVariable, and not by `on_top`.
[[nodiscard]] std::vector<std::string> proxy_environment(
    const char* const* own, const std::vector<std::string>& more,
    const std::map<std::string, std::string>& on_top);

}  // namespace gpulet::backend

// The role of a certificate: whether it is that of a frontend or of a node. One authority signs
// both, and a node may be named as a frontend is, so the name alone does not tell them apart.
// scripts/make-certificates writes the role as a URI among the names: gpulet://frontend/NAME or
// gpulet://node/NAME. A certificate without such a URI has no role, and its names alone count.
// Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpulet::frontend {

inline constexpr std::string_view kFrontendRole = "frontend";
inline constexpr std::string_view kNodeRole = "node";

// Whether a certificate with these names may act as `name` in `role`.
[[nodiscard]] bool permits_role(const std::vector<std::string>& names, std::string_view role,
                                std::string_view name);

}  // namespace gpulet::frontend

#include "frontend/frames/certificate_role.h"

#include <algorithm>

namespace gpulet::frontend {

bool permits_role(const std::vector<std::string>& names, std::string_view role,
                  std::string_view name) {
  constexpr std::string_view kScheme = "gpulet://";
  std::string wanted(kScheme);
  wanted.append(role).append("/").append(name);
  const bool has_role = std::any_of(
      names.begin(), names.end(), [&](const std::string& one) { return one.starts_with(kScheme); });
  return !has_role || std::find(names.begin(), names.end(), wanted) != names.end();
}

}  // namespace gpulet::frontend

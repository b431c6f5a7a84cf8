#include "gpulet/profile/profile.h"

namespace gpulet::profile {

const ModelProfile* Profile::find(std::string_view model) const {
  const auto found = models.find(model);
  return found == models.end() ? nullptr : &found->second;
}

}  // namespace gpulet::profile

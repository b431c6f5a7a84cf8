// RequestCosts: the cost of one request of each model under the plan in force, in time of a whole
// device. One thread at a time.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::frontend {

// A batch's duration times the share by the batch size, as the mean over the model's gpulets by
// rate, without spare share.
class RequestCosts {
 public:
  // Takes the costs from the plan. Cheap if the epoch has not changed.
  void follow(Epoch epoch, const schedule::Plan& plan);
  // Zero (unknown) for a model without a gpulet.
  [[nodiscard]] Duration of(std::string_view model) const;

 private:
  Epoch epoch_{};
  std::map<std::string, Duration, std::less<>> costs_;
};

}  // namespace gpulet::frontend

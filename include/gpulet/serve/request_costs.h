// RequestCosts: how much of a whole device's time one request of a model takes, as the plan in
// force has it: a batch's duration times the gpulet's share of its device, over the batch's size,
// in the mean over its gpulets by the rate that each takes. Pure. One thread at a time.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "gpulet/core/ids.h"
#include "gpulet/core/time.h"
#include "gpulet/schedule/plan.h"

namespace gpulet::serve {

class RequestCosts {
 public:
  // As the plan has it; cheap where the epoch is still the same.
  void follow(Epoch epoch, const schedule::Plan& plan);
  // Zero for a model without a gpulet: nobody knows yet.
  [[nodiscard]] Duration of(std::string_view model) const;

 private:
  Epoch epoch_{};
  std::map<std::string, Duration, std::less<>> costs_;
};

}  // namespace gpulet::serve

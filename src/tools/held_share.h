// HeldShare: a share of a device while somebody holds it. A driver knows a gpulet's share from
// grant() on, so another share is another gpulet. One thread.
#pragma once

#include <sys/types.h>

#include "gpulet/core/ids.h"
#include "gpulet/partition/driver.h"

namespace gpulet::tools {

class HeldShare {
 public:
  // `last`: the id given last, for all shares of the driver.
  HeldShare(partition::PartitionDriver& driver, GpuletId& last) : driver_(driver), last_(last) {}
  ~HeldShare() { driver_.release(gpulet_); }
  HeldShare(const HeldShare&) = delete;
  HeldShare& operator=(const HeldShare&) = delete;

  // Lets go of the share held before.
  [[nodiscard]] Result<partition::Grant> grant(Share share) {
    return grant({.gpulet = {}, .share = share});
  }
  // The same of what adjust() will change.
  [[nodiscard]] Result<partition::Grant> grant_adjustable(Share share) {
    return grant({.gpulet = {}, .share = share, .adjustable = true});
  }
  [[nodiscard]] Status adjust(double cores) { return driver_.adjust(gpulet_, cores); }
  [[nodiscard]] Status attach(pid_t process) { return driver_.attach(gpulet_, process); }
  [[nodiscard]] Status activate() { return driver_.activate(gpulet_); }
  // As backend::ProxyCallbacks::end.
  [[nodiscard]] bool end(pid_t process) { return driver_.end(gpulet_, process); }

 private:
  [[nodiscard]] Result<partition::Grant> grant(partition::Claim claim) {
    driver_.release(gpulet_);
    gpulet_ = GpuletId{++last_.value};
    claim.gpulet = gpulet_;
    return driver_.grant(claim);
  }

  partition::PartitionDriver& driver_;
  GpuletId& last_;
  GpuletId gpulet_;
};

}  // namespace gpulet::tools

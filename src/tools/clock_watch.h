// ClockWatch: which clocks a GPU ran at while it was measured. Looks several times a second, on a
// thread of its own, which must not disturb what is measured: a look takes microseconds of a core.
#pragma once

#include <memory>
#include <string>

#include "gpulet/profile/profile.h"

namespace gpulet::tools {

class ClockWatch {
 public:
  explicit ClockWatch(std::string gpu_uuid);
  ~ClockWatch();
  ClockWatch(const ClockWatch&) = delete;
  ClockWatch& operator=(const ClockWatch&) = delete;

  // Looks while this is there.
  class Looking {
   public:
    explicit Looking(ClockWatch* watch);  // null: nobody looks
    ~Looking();
    Looking(const Looking&) = delete;
    Looking& operator=(const Looking&) = delete;

   private:
    ClockWatch* watch_;
  };

  // "sm_clock_mhz" and "memory_clock_mhz": the lowest and the highest seen, "1755-1980"; nothing
  // where none was seen.
  [[nodiscard]] profile::Provenance seen() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::tools

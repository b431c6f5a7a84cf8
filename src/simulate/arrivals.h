// The merged arrivals of all models, generated as they are asked for. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "gpulet/core/random.h"
#include "gpulet/core/time.h"
#include "gpulet/schedule/cluster.h"
#include "gpulet/simulate/trace.h"

namespace gpulet::simulate {

class Arrivals {
 public:
  // Of the demands' rates, or of the trace where there is one; in [start, start + seconds). The
  // trace outlives them.
  Arrivals(const std::vector<schedule::ModelDemand>& demands, const Trace* trace,
           std::uint64_t seed, Time start, double seconds);

  [[nodiscard]] Time next() const { return heap_.empty() ? kNever : heap_.front().time; }
  // The model of the next one, which is over with that. REQUIRES: next() is not kNever. Arrivals of
  // one time come in the order of the demands.
  std::size_t take();

 private:
  struct Stream {
    Random random;
    std::vector<RateStep> steps;  // the first one at 0
    std::size_t step = 0;
    double at_s = 0;
    const std::vector<Arrival>* arrivals = nullptr;  // given ones, instead of random ones
    std::size_t position = 0;
    std::uint32_t given = 0;  // of the arrivals at that position
  };
  struct Next {
    Time time;
    std::size_t model = 0;
    friend bool operator<(const Next& a, const Next& b) {
      return a.time != b.time ? a.time < b.time : a.model < b.model;
    }
  };
  // kNever at the stream's end.
  [[nodiscard]] Time advance(Stream& stream) const;
  [[nodiscard]] static double next_random_s(Stream& stream);
  [[nodiscard]] static double next_given_s(Stream& stream);
  void sift_down();

  Time start_;
  double seconds_;
  std::vector<Stream> streams_;  // by model
  std::vector<Next> heap_;       // the earliest in front
};

}  // namespace gpulet::simulate

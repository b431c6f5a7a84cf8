// Reactions to what plans do not know: Disturbances finds models some of whose batches take so long
// that the other models of their gpulet are late, and ExtraHeadroom raises the demand of models
// that miss their deadlines although nothing explains it (docs/scheduling.md, "Feedback"). Pure;
// one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/time.h"
#include "gpulet/serve/values/frontend_status.h"

namespace gpulet::serve {

// A model that disturbs gets gpulets of its own. It may share again after it has behaved for a
// while, which doubles with every relapse.
class Disturbances {
 public:
  // A batch of the model took `executed`, which is so much longer than `predicted` that the other
  // models of its gpulet had to wait for `blocked` too long.
  void blocked(const std::string& model, Duration executed, Duration predicted, Duration blocked,
               Time now);
  // The model was removed.
  void forget(const std::string& model) { models_.erase(model); }

  struct Changes {
    std::vector<std::string> begin;  // models that disturb from now on
    std::vector<std::string> end;    // models that may share gpulets again
  };
  Changes tick(Time now);

  [[nodiscard]] bool disturbs(std::string_view model) const;
  // "some of its batches take 300 ms instead of 1 ms". Empty: it does not disturb.
  [[nodiscard]] std::string why(std::string_view model) const;

 private:
  struct Batch {
    Time time{};
    Duration blocked{};
  };
  struct Model {
    std::deque<Batch> recent;
    bool disturbs = false;
    Time last{};           // batch that blocked others, or would have
    Duration hold{};       // until it may share again
    Duration worst{};      // of the recent ones
    Duration predicted{};  // of that batch
  };
  std::map<std::string, Model, std::less<>> models_;
};

// The factor by which the demand of one model is multiplied. It rises step by step while the model
// misses its target, falls again after a while without violations, and is given up for a while if
// it does not help.
class ExtraHeadroom {
 public:
  // Once per tick with the model's counters. `may_rise`: nothing else explains the violations, no
  // plan is on its way, and there are devices for more. Returns whether the factor rose.
  bool tick(const ModelCounters& counters, const std::function<bool()>& may_rise, Time now);

  [[nodiscard]] double factor() const;

 private:
  static constexpr std::size_t kTicks = 10;
  struct Tick {
    std::uint64_t answered = 0;
    std::uint64_t violations = 0;
  };
  [[nodiscard]] bool violates() const;

  std::array<Tick, kTicks> ticks_{};
  std::uint64_t count_ = 0;
  std::uint64_t answered_ = 0;  // of the counters at the last tick
  std::uint64_t violations_ = 0;
  std::uint32_t steps_ = 0;
  Time changed_{};     // last step
  Time violated_{};    // last time that it missed its target
  Duration hold_{};    // without violations before a step down
  Time not_before_{};  // it did not help
};

}  // namespace gpulet::serve

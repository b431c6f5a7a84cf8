// Quarantine: models whose processes crash again and again are withheld for a while.
//
// A crash makes its model a suspect: it is planned into gpulets of its own until it has run without
// a crash for `suspect_for`. `crashes` of them within `window` put it into quarantine: it is not
// planned, and its requests are refused. A quarantine ends by itself, or by hand (release). A model
// that crashes again within `relapse_within` of its end goes back at once, for twice as long. Pure;
// one thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/core/time.h"

namespace gpulet::serve {

struct QuarantineOptions {
  std::uint32_t crashes = 4;
  Duration window = std::chrono::seconds(60);
  Duration first = std::chrono::seconds(15);  // doubles with every relapse
  Duration longest = std::chrono::minutes(10);
  Duration relapse_within = std::chrono::minutes(2);
  Duration suspect_for = std::chrono::minutes(5);
};

class Quarantine {
 public:
  explicit Quarantine(const QuarantineOptions& options) : options_(options) {}

  // A process ended while it ran the model's batches, and those of others.
  void suspect(const std::string& model, Time now);
  // It ran nothing else: the model did it. `how` in words, "ended by signal 11". Returns whether
  // the model's quarantine begins with this.
  bool crashed(const std::string& model, std::string how, Time now);
  // Ends its quarantine and forgets its crashes. Returns whether it was in quarantine.
  bool release(const std::string& model);
  // Its name is not served any more.
  void forget(const std::string& model) { models_.erase(model); }
  // Returns the models whose quarantine ends now; forgets what is long past.
  std::vector<std::string> tick(Time now);

  [[nodiscard]] bool holds(std::string_view model) const;
  // Plan it into gpulets of its own.
  [[nodiscard]] bool suspects(std::string_view model) const;
  // How long it is still in quarantine; zero: it is not.
  [[nodiscard]] Duration left(std::string_view model, Time now) const;
  // Since the frontend's start, or since the model was forgotten.
  [[nodiscard]] std::uint64_t crashes(std::string_view model) const;
  // For whoever asks for the model; empty: it is not in quarantine.
  [[nodiscard]] std::string why(std::string_view model, Time now) const;

 private:
  struct Model {
    std::deque<Time> recent;  // crashes within the window
    std::uint64_t crashes = 0;
    std::uint32_t quarantines = 0;  // in a row
    Time until{};                   // of the last quarantine
    bool held = false;
    bool suspected = false;
    Time last_crash{};
    std::string how;
  };

  QuarantineOptions options_;
  std::map<std::string, Model, std::less<>> models_;
};

}  // namespace gpulet::serve

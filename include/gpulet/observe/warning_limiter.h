// WarningLimiter: how often a warning that a peer can cause is told. Of each kind about each peer
// some are told at once, then one in a while; those between are counted. Pure; one thread at a
// time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpulet/core/time.h"

namespace gpulet::observe {

struct WarningLimits {
  std::uint32_t at_once = 5;
  Duration then_every = std::chrono::seconds(10);
  // Of peers and kinds that are told apart; the rest counts as one peer.
  std::size_t most = 4096;
};

class WarningLimiter {
 public:
  explicit WarningLimiter(WarningLimits limits = {}) : limits_(limits) {}

  // Nothing: it is not to be told. Otherwise how many were not told since the last one that was.
  [[nodiscard]] std::optional<std::uint64_t> tell(std::string_view peer, std::string_view kind,
                                                  Time now);

  struct Untold {
    std::string peer;
    std::string kind;
    std::uint64_t count = 0;
  };
  // What was counted where nothing has come for `then_every`; forgets who is quiet.
  [[nodiscard]] std::vector<Untold> settle(Time now);
  // Something is counted and not told.
  [[nodiscard]] bool holds_untold() const { return untold_ > 0; }
  [[nodiscard]] std::size_t size() const { return records_.size(); }

 private:
  struct Record {
    double credit = 0;  // warnings that may be told
    Time seen{};
    std::uint64_t untold = 0;
  };
  using Key = std::pair<std::string, std::string>;

  [[nodiscard]] Record& record_of(std::string_view peer, std::string_view kind, Time now);
  void forget_quiet(Time now);

  WarningLimits limits_;
  std::map<Key, Record> records_;
  std::uint64_t untold_ = 0;  // of all records
};

}  // namespace gpulet::observe

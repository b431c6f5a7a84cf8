// A load written down: what `gpulet simulate --trace F.csv` reads. The header says which of two
// kinds it is:
//   time_s,model,count   so many requests of the model arrive at that time (no column `count`: one)
//   time_s,model,rate    from that time on the model's requests arrive at random at that mean rate,
//                        per second; until its first row a model has its rate of the demand
// Times are seconds from the start of the load, in any order of models but never going back within
// one. Plain values; reading is blocking file I/O.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gpulet/core/status.h"

namespace gpulet::simulate {

struct Arrival {
  double at_s = 0;
  std::uint32_t count = 1;

  friend bool operator==(const Arrival&, const Arrival&) = default;
};
struct RateStep {
  double at_s = 0;
  double rate = 0;

  friend bool operator==(const RateStep&, const RateStep&) = default;
};

// By model. One of the two is empty.
struct Trace {
  std::map<std::string, std::vector<Arrival>> arrivals;
  std::map<std::string, std::vector<RateStep>> rates;
};

// Fails with not_found or invalid; the message names the file, the line and the mend.
[[nodiscard]] Result<Trace> read_trace(const std::filesystem::path& file);
// The same from memory; `file_name` names the text in errors.
[[nodiscard]] Result<Trace> parse_trace(std::string text, std::string file_name);

}  // namespace gpulet::simulate

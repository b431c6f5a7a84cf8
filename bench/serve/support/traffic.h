// Traffic: clients of the stream protocol with exact books. Poisson arrivals whose rates change at
// given times, sent over several connections by a thread of its own, whatever the server does.
// Every request that was sent has exactly one fate: an answer, or the error that its connection
// told when it broke (once, for everything in flight on it), or none within the patience at the
// end, which is a breach. A second answer, or one to nothing that was asked, is counted apart.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/tensor.h"
#include "gpulet/load/call.h"

namespace gpulet::bench {

struct RateFrom {
  Duration at{};
  double rate = 0;  // per second, until the next one
};

struct Stream {
  std::string model;
  std::vector<TensorSpec> inputs;
  Bytes payload;  // of every request
  Duration slo{};
  std::vector<RateFrom> rates;  // ascending; before the first nothing is sent
};

enum class Fate : std::uint8_t {
  under_way,
  served,
  dropped,          // too_late or overloaded
  failed,           // every other answer
  connection_lost,  // told by the connection
  unsent,           // none was open
  unanswered,       // none of all that within the patience
};

struct Sent {
  std::uint32_t stream = 0;
  Fate fate = Fate::under_way;
  StatusCode code = StatusCode::ok;
  Duration intended{};  // since the traffic's start
  Duration sent{};
  Duration settled{};

  [[nodiscard]] Duration latency() const { return settled - intended; }
};

struct TrafficOptions {
  load::Target target;
  std::uint32_t connections = 4;
  std::uint64_t seed = 1;
  Duration length{};                             // nothing is sent after it
  Duration patience = std::chrono::seconds(15);  // for the last answers
};

struct TrafficResult {
  std::vector<Sent> requests;  // in the order of their intended times
  std::uint64_t second_answers = 0;
  std::uint64_t answers_to_nothing = 0;
  std::uint64_t connections_lost = 0;
  std::vector<std::string> first_messages;  // of the first failures of each code and model
  Duration sender_lag_p99{};                // how late the traffic itself was
  // When its thread did not run, though it had something to do: the machine had other work.
  struct Stall {
    Duration from{};
    Duration until{};
  };
  std::vector<Stall> stalls;

  // How long after it was sent the request was settled, without what the traffic itself slept
  // through.
  [[nodiscard]] Duration answered_after(const Sent& request) const;
};

class Traffic {
 public:
  // Starts sending. Time zero is now.
  Traffic(std::vector<Stream> streams, const TrafficOptions& options);
  ~Traffic();
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  [[nodiscard]] Duration elapsed() const;
  // Sends no more, waits for what is under way. Once.
  [[nodiscard]] TrafficResult finish();
  // Waits until the length has passed, then as finish().
  [[nodiscard]] TrafficResult run_out();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::bench

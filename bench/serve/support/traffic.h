// Traffic: clients of the stream protocol that account for every request. Requests arrive as a
// Poisson process whose rate changes at given times; a thread sends them over several connections,
// independent of the server's answers. Each sent request has exactly one fate: an answer, the error
// of its broken connection, or no answer within the patience at the end, which is a violation of
// the protocol. Duplicate and unknown answers are counted separately.
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
  connection_lost,  // the connection broke
  unsent,           // no connection was open
  unanswered,       // none of these within the patience
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
  Duration sender_lag_p99{};                // delay of the sending thread
  // When its thread was ready but did not run, because the machine had other work.
  struct Stall {
    Duration from{};
    Duration until{};
  };
  std::vector<Stall> stalls;

  // The time from sending the request to its fate, without the stalls of the sending thread.
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
  // Stops sending and waits for the requests in flight. Call it once.
  [[nodiscard]] TrafficResult finish();
  // Waits until the length has passed, then as finish().
  [[nodiscard]] TrafficResult run_out();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpulet::bench

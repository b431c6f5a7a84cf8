// StatusView: the fields of a frontend's status document (docs/status.md) that the benches use.
// Watch: requests it periodically and records the duration of each answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/load/call.h"

namespace gpulet::bench {

struct StatusView {
  std::string state;
  std::uint64_t epoch = 0;
  bool reorganising = false;
  double last_took_ms = 0;  // the last reorganisation, from decision to serving
  bool schedulable = false;
  std::size_t nodes = 0;
  std::size_t devices_in_use = 0;  // with a gpulet that is part of the plan in force
  std::size_t gpulets = 0;         // including those that are preparing or retiring
  std::size_t gpulets_ready = 0;
  double share_percent = 0;  // of all gpulets in the plan together
  struct Gpulet {
    std::uint64_t id = 0;
    std::string device{};  // "n0/1"
    double percent = 0;
    std::string state{};
    bool serves = false;
    std::string models{};  // separated by spaces
  };
  std::vector<Gpulet> all_gpulets;
  struct Model {
    double rate_seen = 0;
    double rate_planned = 0;
    double rate_unserved = 0;
    std::string state{};
  };
  std::map<std::string, Model> models;
  std::vector<std::string> events;
  struct Problem {
    std::string cause;
    std::string model;
  };
  std::vector<Problem> problems;

  // Serves the whole demand, and no reorganisation is in progress.
  [[nodiscard]] bool settled() const {
    return state == "serving" && !reorganising && schedulable && gpulets == gpulets_ready;
  }
};

[[nodiscard]] StatusView parse_status(const std::string& json);
[[nodiscard]] Result<StatusView> fetch_view(const load::Target& target,
                                            Duration timeout = std::chrono::seconds(5));

struct StatusSample {
  std::chrono::steady_clock::time_point at;  // when the request was sent
  Duration took{};
  std::optional<StatusView> view;  // none: no answer
};

// Requests the status every `period` on its own thread, each time over a new connection.
class Watch {
 public:
  Watch(load::Target target, Duration period);
  ~Watch() = default;  // stops
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Stops and returns all samples. Call it once.
  [[nodiscard]] std::vector<StatusSample> finish();

 private:
  void run(const std::stop_token& stop);

  load::Target target_;
  Duration period_;
  std::vector<StatusSample> samples_;  // used by the thread until it has ended
  std::jthread thread_;
};

}  // namespace gpulet::bench

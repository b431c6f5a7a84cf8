// ParkedProcesses: the processes that have loaded models and serve no gpulet (parking.h), with the
// grants of their shares, which stay with a process for its life. A parked process comes from a
// gpulet that has ended or is loaded ahead of one; it ends when the memory is needed, or when no
// gpulet took it for long.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "backend/parking.h"
#include "backend/process_starter.h"
#include "backend/setup.h"
#include "gpulet/backend/proxy_process.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/node/backend_core.h"
#include "gpulet/protocol/messages.h"
#include "gpulet/protocol/proxy_messages.h"

namespace gpulet::backend {

struct ParkingOptions {
  double memory_mb = 0;     // of parked processes, on each device; 0: none stays
  bool load_ahead = false;  // also at the sizes beside those of running gpulets
  Duration quiet = kQuietBeforeLoadingAhead;
};

struct ParkedProcess {
  node::StartGpulet order;  // that it was started with
  GpuletId grant;           // of its share, at the driver
  ProxyReady ready{};       // its answer to load(), with its present condition
  std::unique_ptr<Proxy> proxy;
};

// Single-strand type on the executor given.
class ParkedProcesses {
 public:
  // A process that nobody took for so long ends.
  static constexpr Duration kLongestStay = std::chrono::minutes(15);

  using Visit = std::function<void(const node::StartGpulet&)>;

  // `each_running` visits what the running gpulets were started with, in an order that stays.
  // `on_ended`: a process has ended and its grant is released. Called from the event loop, not
  // within a call. The starter outlives this.
  ParkedProcesses(const net::asio::any_io_executor& executor, ProcessStarter& starter,
                  const ParkingOptions& options, std::function<void(const Visit&)> each_running,
                  std::function<void()> on_ended);
  ~ParkedProcesses();
  ParkedProcesses(const ParkedProcesses&) = delete;
  ParkedProcesses& operator=(const ParkedProcesses&) = delete;

  // A gpulet started, loaded its models or ended. `loading`: at least one has yet to load.
  void gpulets_changed(bool loading);

  // Whether the process stays if its gpulet, which runs, ends.
  [[nodiscard]] bool would_park(const node::StartGpulet& order) const;
  // REQUIRES: would_park(), its gpulet does not run any more, not called in a callback of its
  // proxy.
  void park(ParkedProcess process);
  // The process with the least memory of those that can serve the gpulet.
  [[nodiscard]] std::optional<ParkedProcess> take(const node::StartGpulet& order);

  // Ends the processes whose memory the gpulet needs. False: it must wait until they have ended.
  [[nodiscard]] bool make_room(const node::StartGpulet& order);
  // Ends the process that came first. False: there is none.
  [[nodiscard]] bool end_one(std::uint32_t device);
  void end_all_of(std::uint32_t device, const Status& why);
  // Destroys all processes and keeps no more.
  void close();

  [[nodiscard]] std::vector<pid_t> processes() const;

 private:
  enum class State : std::uint8_t { loading, ready, ending };
  struct Entry {
    ParkedProcess process;
    State state = State::ready;
    Time since{};
  };

  [[nodiscard]] ProxyCallbacks callbacks_for(std::uint32_t device, GpuletId grant);
  void loaded(GpuletId grant, ProxyReady ready);
  void ended(GpuletId grant, const Status& how);
  void end(Entry& entry, const Status& why);
  void end_overstayed();
  void set_timer();

  [[nodiscard]] ParkingSpace space_of(std::uint32_t device) const;
  // The memory of the parked processes of a device, in MB: of all, and of those that stay.
  [[nodiscard]] double memory_mb(std::uint32_t device) const;
  [[nodiscard]] double staying_mb(std::uint32_t device) const;
  [[nodiscard]] std::vector<LoadedProcess> staying() const;
  void limit(std::uint32_t device, double most_mb);

  void load_ahead_later();
  void load_ahead();

  ProcessStarter& starter_;
  const ParkingOptions options_;
  const std::function<void(const Visit&)> each_running_;
  const std::function<void()> on_ended_;
  net::Alarm stay_timer_;
  net::Alarm ahead_timer_;
  bool closed_ = false;
  std::list<Entry> entries_;  // in the order in which they came
  bool gpulets_load_ = false;
  std::vector<LoadedProcess> tried_ahead_;  // since the gpulets changed
  std::uint64_t aheads_ = 0;
};

}  // namespace gpulet::backend

// StartReport: tells the log what a frontend that has just started still waits for, until there is
// nothing more: a backend, the first plan, models that load.
#pragma once

#include <string>

#include "gpulet/net/alarm.h"
#include "gpulet/net/asio.h"
#include "gpulet/observe/reminder.h"
#include "gpulet/serve/frontend_status.h"
#include "status_snapshots.h"

namespace gpulet::frontend {

// What the frontend waits for before it serves every model that it can; empty: for nothing. Pure;
// any thread.
[[nodiscard]] std::string waits_for(const serve::FrontendStatus& status);
// How many models it serves, and which not and why. Pure; any thread.
[[nodiscard]] std::string serves_now(const serve::FrontendStatus& status);

// Single-strand type, on the io_context's thread, which must not run any more when this goes.
class StartReport {
 public:
  // The snapshots outlive it.
  StartReport(net::asio::io_context& io, StatusSnapshots& snapshots)
      : snapshots_(snapshots), timer_(io) {}

  void start();
  void stop();

 private:
  void look();
  void tell(const TimedStatus& seen);

  StatusSnapshots& snapshots_;
  net::Alarm timer_;
  observe::Reminder reminder_{std::chrono::seconds(10), std::chrono::minutes(10)};
  std::string told_;
  bool stopped_ = false;
};

}  // namespace gpulet::frontend

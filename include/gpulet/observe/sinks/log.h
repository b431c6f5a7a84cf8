// The log of a daemon: one line per message on standard error. Text of others within a message is
// escaped (base/text.h), so that a peer can neither forge lines nor control a terminal. Nothing
// waits for the reader of standard error (line_writer.h).
#pragma once

#include <memory>
#include <string>

#include "gpulet/base/time.h"
#include "gpulet/observe/sinks/line_writer.h"

namespace spdlog {
class formatter;
namespace sinks {
class sink;
}
}  // namespace spdlog

namespace gpulet::observe {

// Makes itself the default log of the process, under `name`. Construct one, before threads start.
// At its end, it waits for a moment until its lines are written; later lines are dropped.
class DaemonLog {
 public:
  explicit DaemonLog(const std::string& name, FileDescriptor out = open_standard_error());
  ~DaemonLog();
  DaemonLog(const DaemonLog&) = delete;
  DaemonLog& operator=(const DaemonLog&) = delete;

  [[nodiscard]] LineWriter& lines() { return *lines_; }

 private:
  std::shared_ptr<LineWriter> lines_;
};

// What became of the lines of the process's DaemonLog. All zero without one.
[[nodiscard]] LineWriterState log_state();

// A sink with a format of its own for the process's DaemonLog; without one, for standard error.
[[nodiscard]] std::shared_ptr<spdlog::sinks::sink> log_sink(
    std::unique_ptr<spdlog::formatter> formatter);

// The formatter of the log, for other sinks.
[[nodiscard]] std::unique_ptr<spdlog::formatter> escaping_formatter();

}  // namespace gpulet::observe

// The log of a daemon: one line per message on standard error. Text of others within a message is
// escaped (base/text.h), so that a peer can neither forge lines nor control a terminal. Nothing
// waits for the reader of standard error (LineWriter).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "gpulet/base/files.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"

namespace spdlog {
class formatter;
namespace sinks {
class sink;
}
}  // namespace spdlog

namespace gpulet::observe {

// ---- line writer
//
// LineWriter: appends lines to a file or stream whose reader or disk may be slow, full or stopped,
// without ever making the caller wait. A thread of its own writes; lines wait in a bounded queue.
// Lines that do not fit are dropped and counted. Once lines flow again, one of them tells how many
// were dropped. A failed write is repeated until it succeeds, so that a full disk loses only what
// the queue cannot hold.
//
// Any thread. The thread starts with the first line. Where the system refuses to start it, the
// queue fills and the next line tries again.

struct LineWriterOptions {
  std::size_t max_bytes = std::size_t{1} << 20U;  // of waiting lines
  Duration retry_after = std::chrono::seconds(1);
  // How long close() and the destructor wait for the lines in the queue.
  Duration close_within = std::chrono::seconds(1);
  // The line, with its newline, that tells the number of dropped lines. Called on the thread.
  std::function<std::string(std::uint64_t dropped)> dropped_line{};
  // Opens the file again for reopen(). Called on the thread; empty: reopen() does nothing.
  std::function<Result<FileDescriptor>()> open_again{};
};

struct LineWriterState {
  std::uint64_t dropped = 0;  // lines, since the start
  Duration waiting{};         // since when nothing could be written although lines wait
  Status fault;               // of the last write or reopening; ok: it succeeded

  // Not ok while lines are not being written: the fault, or that nobody takes them.
  [[nodiscard]] Status problem() const;
};

class LineWriter {
 public:
  // A blocking descriptor is used only when it is ready, for at most PIPE_BUF bytes at a time.
  explicit LineWriter(FileDescriptor out, LineWriterOptions options = {});
  // As close().
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Takes a line, which ends with a newline, or drops it. Never waits for the descriptor.
  void write(std::string_view line);
  // Waits until all lines are written. Returns false if they are not within this time.
  bool flush(Duration within);
  // Writes the rest of the lines to the file that the options open now, after it was moved away.
  void reopen();
  // Waits for the lines in the queue, then gives up those that are left. Later lines are dropped. A
  // thread that the system holds in a write is left behind.
  void close();
  [[nodiscard]] LineWriterState state() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  // with the thread
};

// Opens a file to append to, for a LineWriter. Creates it with mode 0600; does not follow a link,
// and does not wait for the reader of a FIFO. Fails with unavailable.
[[nodiscard]] Result<FileDescriptor> open_to_append(const std::filesystem::path& file);

// Standard error for a LineWriter: a description of its own that does not block, where the system
// allows that, so that others who share the terminal or pipe notice nothing.
[[nodiscard]] FileDescriptor open_standard_error();

// ---- log

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

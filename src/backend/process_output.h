// What a proxy writes to its standard output and error. A model is a program and may print what it
// likes, so its text reaches the backend's log line by line, cut, limited in rate and counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/base/files.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/observe/log_limiter.h"

namespace gpulet::backend {

struct OutputLimits {
  std::size_t longest_line = 1024;                     // bytes; the rest of the line is counted
  std::uint32_t burst = 50;                            // lines
  Duration interval = std::chrono::milliseconds(100);  // between lines after the burst
};

// Divides text into lines and limits them. Pure; one thread at a time. Its memory is one line.
class OutputLines {
 public:
  explicit OutputLines(OutputLimits limits = {});

  // Returns the lines to show that `text` completes. A line that stands for dropped ones is one of
  // them.
  [[nodiscard]] std::vector<std::string> take(std::string_view text, Time now);
  // The same at the end of the text: a last line without a newline, and the dropped lines.
  [[nodiscard]] std::vector<std::string> finish(Time now);

 private:
  void end_line(Time now, std::vector<std::string>& shown);

  const OutputLimits limits_;
  observe::LogRateLimiter limiter_;
  std::string line_;
  std::size_t cut_ = 0;       // bytes of the line beyond its longest
  std::uint64_t untold_ = 0;  // dropped lines that no shown line tells yet
};

// Reads the output of one process. A process that writes faster than it is read waits, and nobody
// else does: after a read without a line to show, reading pauses. Single-strand type on the
// executor given.
class ProcessOutput {
 public:
  using OnLine = std::function<void(const std::string& line)>;

  // A pipe: `ours` for this object, `theirs` for the process.
  struct Ends {
    FileDescriptor ours;
    FileDescriptor theirs;
  };
  // Fails with unavailable.
  [[nodiscard]] static Result<Ends> make_ends();

  // `on_line` is called from the executor and from finish(). Fails with unavailable.
  [[nodiscard]] static Result<std::unique_ptr<ProcessOutput>> start(
      const net::asio::any_io_executor& executor, FileDescriptor ours, OnLine on_line);
  ~ProcessOutput();
  ProcessOutput(const ProcessOutput&) = delete;
  ProcessOutput& operator=(const ProcessOutput&) = delete;

  // The process has ended: reads what is left, up to the capacity of a pipe, and stops.
  void finish();

 private:
  class Reader;
  explicit ProcessOutput(std::shared_ptr<Reader> reader);
  std::shared_ptr<Reader> reader_;
};

}  // namespace gpulet::backend

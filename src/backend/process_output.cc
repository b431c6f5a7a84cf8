#include "backend/process_output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "gpulet/net/event_loop.h"

namespace gpulet::backend {

// ---- OutputLines

OutputLines::OutputLines(OutputLimits limits)
    : limits_(limits), limiter_({limits.burst, limits.interval, 1}) {}

void OutputLines::end_line(Time now, std::vector<std::string>& shown) {
  const std::size_t cut = std::exchange(cut_, 0);
  std::string line = std::exchange(line_, {});
  if (!limiter_.admit({}, {}, now)) {
    ++untold_;
    return;
  }
  if (const std::uint64_t untold = std::exchange(untold_, 0); untold > 0)
    shown.push_back(fmt::format("({} lines were dropped: it writes too many)", untold));
  if (cut > 0) line += fmt::format(" (+{} bytes)", cut);
  shown.push_back(std::move(line));
}

std::vector<std::string> OutputLines::take(std::string_view text, Time now) {
  std::vector<std::string> shown;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view part = text.substr(0, end);
    const std::size_t kept = std::min(part.size(), limits_.longest_line - line_.size());
    line_ += part.substr(0, kept);
    cut_ += part.size() - kept;
    if (end == std::string_view::npos) break;
    end_line(now, shown);
    text.remove_prefix(end + 1);
  }
  return shown;
}

std::vector<std::string> OutputLines::finish(Time now) {
  std::vector<std::string> shown;
  if (!line_.empty()) end_line(now, shown);
  if (const std::uint64_t untold = std::exchange(untold_, 0); untold > 0)
    shown.push_back(fmt::format("({} lines were dropped: it wrote too many)", untold));
  return shown;
}

// ---- ProcessOutput

namespace {

namespace asio = net::asio;

constexpr std::size_t kOutputPart = 16 << 10U;
constexpr std::size_t kPipeCapacity = 64 << 10U;  // what Linux gives a pipe
// After a read without a line to show: of a process that writes too much, or in small pieces.
constexpr Duration kOutputPause = std::chrono::milliseconds(10);

Status no_output(const char* what, int error) {
  return {StatusCode::unavailable,
          fmt::format("cannot {} the output of a proxy: {}", what, std::strerror(error))};
}

}  // namespace

class ProcessOutput::Reader : public std::enable_shared_from_this<Reader> {
 public:
  Reader(const asio::any_io_executor& executor, OnLine on_line)
      : pipe_(executor), pause_(executor), on_line_(std::move(on_line)) {}

  [[nodiscard]] Status open(FileDescriptor ours) {
    boost::system::error_code error;
    pipe_.assign(ours.get(), error);
    if (error) return no_output("read", error.value());
    (void)ours.release();
    wait();
    return {};
  }

  void stop() {
    on_line_ = nullptr;
    pause_.cancel();
    boost::system::error_code ignored;
    pipe_.close(ignored);
  }

  void finish() {
    std::size_t left = kPipeCapacity;
    while (left > 0 && pipe_.is_open()) {
      const std::size_t bytes = read_part(std::min(left, kOutputPart));
      if (bytes == 0) break;
      left -= bytes;
    }
    show(lines_.finish(net::now()));
    stop();
  }

 private:
  void wait() {
    pipe_.async_wait(asio::posix::stream_descriptor::wait_read,
                     [weak = weak_from_this()](const boost::system::error_code& error) {
                       const auto self = weak.lock();
                       if (self != nullptr && !error) self->readable();
                     });
  }

  void readable() {
    shows_ = false;
    if (read_part(kOutputPart) == 0 || !pipe_.is_open()) return;
    if (shows_) return wait();
    pause_.set_after(kOutputPause, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->wait();
    });
  }

  // Returns 0 at the end of the output, after closing the pipe, and where there is nothing now.
  std::size_t read_part(std::size_t most) {
    std::array<char, kOutputPart> text{};
    ssize_t bytes = -1;
    do {
      bytes = ::read(pipe_.native_handle(), text.data(), most);
    } while (bytes < 0 && errno == EINTR);
    if (bytes > 0) {
      const auto read = static_cast<std::size_t>(bytes);
      show(lines_.take({text.data(), read}, net::now()));
      return read;
    }
    if (bytes < 0 && errno == EAGAIN) {
      wait();
      return 0;
    }
    boost::system::error_code ignored;
    pipe_.close(ignored);
    return 0;
  }

  void show(const std::vector<std::string>& lines) {
    shows_ = shows_ || !lines.empty();
    for (const std::string& line : lines) {
      if (on_line_ != nullptr) on_line_(line);
    }
  }

  asio::posix::stream_descriptor pipe_;
  net::Alarm pause_;
  OnLine on_line_;
  OutputLines lines_;
  bool shows_ = false;  // the read in progress showed a line
};

Result<ProcessOutput::Ends> ProcessOutput::make_ends() {
  std::array<int, 2> ends{-1, -1};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return no_output("make a pipe for", errno);
  Ends made{FileDescriptor(ends[0]), FileDescriptor(ends[1])};
  // Only this end: a program may expect that its output blocks.
  if (::fcntl(made.ours.get(), F_SETFL, O_NONBLOCK) != 0) return no_output("read", errno);
  return made;
}

Result<std::unique_ptr<ProcessOutput>> ProcessOutput::start(const asio::any_io_executor& executor,
                                                            FileDescriptor ours, OnLine on_line) {
  auto reader = std::make_shared<Reader>(executor, std::move(on_line));
  if (const Status opened = reader->open(std::move(ours)); !opened.ok()) return opened;
  return std::unique_ptr<ProcessOutput>(new ProcessOutput(std::move(reader)));
}

ProcessOutput::ProcessOutput(std::shared_ptr<Reader> reader) : reader_(std::move(reader)) {}
ProcessOutput::~ProcessOutput() { reader_->stop(); }
void ProcessOutput::finish() { reader_->finish(); }

}  // namespace gpulet::backend

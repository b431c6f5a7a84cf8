#include "gpulet/observe/sinks/log.h"

#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <mutex>
#include <utility>

#include "gpulet/base/text.h"

namespace gpulet::observe {
namespace {

class EscapingFormatter final : public spdlog::formatter {
 public:
  EscapingFormatter() : line_(std::make_unique<spdlog::pattern_formatter>()) {}

  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& to) override {
    const std::string shown =
        escaped(std::string_view(message.payload.data(), message.payload.size()));
    spdlog::details::log_msg safe = message;
    safe.payload = spdlog::string_view_t(shown.data(), shown.size());
    line_->format(safe, to);
  }
  [[nodiscard]] std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<EscapingFormatter>();
  }

 private:
  std::unique_ptr<spdlog::formatter> line_;
};

class LineSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  LineSink(std::shared_ptr<LineWriter> lines, std::unique_ptr<spdlog::formatter> formatter)
      : spdlog::sinks::base_sink<std::mutex>(std::move(formatter)), lines_(std::move(lines)) {}

  [[nodiscard]] const std::shared_ptr<LineWriter>& lines() const { return lines_; }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    lines_->write({text.data(), text.size()});
  }
  void flush_() override {}  // a caller never waits

  const std::shared_ptr<LineWriter> lines_;
};

// A line of the log itself, as the formatter would write it.
std::string dropped_line(const std::string& name, std::uint64_t dropped) {
  const std::string text = fmt::format(
      "{} lines of this log were dropped: nothing took them from standard error fast enough",
      dropped);
  const spdlog::details::log_msg message(name, spdlog::level::warn, text);
  spdlog::memory_buf_t line;
  EscapingFormatter().format(message, line);
  return {line.data(), line.size()};
}

// Null: the process has no DaemonLog.
std::shared_ptr<LineWriter> lines_of_process() {
  const spdlog::logger* const log = spdlog::default_logger_raw();
  if (log == nullptr) return nullptr;
  for (const auto& sink : log->sinks()) {
    if (const auto* const lines = dynamic_cast<const LineSink*>(sink.get()); lines != nullptr)
      return lines->lines();
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<spdlog::formatter> escaping_formatter() {
  return std::make_unique<EscapingFormatter>();
}

DaemonLog::DaemonLog(const std::string& name, FileDescriptor out) {
  LineWriterOptions options;
  options.dropped_line = [name](std::uint64_t dropped) { return dropped_line(name, dropped); };
  lines_ = std::make_shared<LineWriter>(std::move(out), std::move(options));
  auto sink = std::make_shared<LineSink>(lines_, escaping_formatter());
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(name, std::move(sink)));
}

DaemonLog::~DaemonLog() { lines_->close(); }

LineWriterState log_state() {
  const auto lines = lines_of_process();
  return lines == nullptr ? LineWriterState() : lines->state();
}

std::shared_ptr<spdlog::sinks::sink> log_sink(std::unique_ptr<spdlog::formatter> formatter) {
  if (auto lines = lines_of_process(); lines != nullptr)
    return std::make_shared<LineSink>(std::move(lines), std::move(formatter));
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  sink->set_formatter(std::move(formatter));
  return sink;
}

}  // namespace gpulet::observe

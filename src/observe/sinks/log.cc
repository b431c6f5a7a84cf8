#include "gpulet/observe/sinks/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <string_view>
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

}  // namespace

std::unique_ptr<spdlog::formatter> escaping_formatter() {
  return std::make_unique<EscapingFormatter>();
}

void start_log(const std::string& name) {
  spdlog::set_default_logger(spdlog::stderr_logger_mt(name));
  spdlog::set_formatter(escaping_formatter());
}

}  // namespace gpulet::observe

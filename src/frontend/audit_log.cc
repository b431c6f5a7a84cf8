#include "audit_log.h"

#include <fcntl.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

namespace gpulet::frontend {
namespace {

constexpr std::size_t kLongestText = 1024;  // of what a peer sent

// "2026-01-31T12:00:00.000Z"
std::string time_text(std::chrono::system_clock::time_point when) {
  const auto since = std::chrono::floor<std::chrono::milliseconds>(when.time_since_epoch());
  const std::time_t seconds = std::chrono::floor<std::chrono::seconds>(since).count();
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     since.count() % 1000);
}

// ASCII on one line, whatever the texts hold.
std::string line_of(const net::AuditRecord& record, std::string_view event) {
  nlohmann::ordered_json line;
  line["time"] = time_text(std::chrono::system_clock::now());
  line["event"] = event;
  line["action"] = record.action;
  if (!record.target.empty()) line["target"] = record.target.substr(0, kLongestText);
  line["result"] = to_string(record.result.code());
  if (!record.peer.protocol.empty()) {
    line["protocol"] = record.peer.protocol;
    line["address"] = record.peer.address;
    line["token"] = record.peer.token_name();
    line["certificate"] = record.peer.certificates;
  }
  if (!record.result.message().empty())
    line["message"] = record.result.message().substr(0, kLongestText);
  return line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

std::string suppressed_line(std::string_view address, std::string_view action,
                            std::uint64_t count) {
  nlohmann::ordered_json line;
  line["time"] = time_text(std::chrono::system_clock::now());
  line["event"] = "refusals_not_shown";
  line["action"] = action;
  line["address"] = address;
  line["count"] = count;
  return line.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

Status make_private(const std::filesystem::path& file) {
  const int descriptor =
      ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
             S_IRUSR | S_IWUSR);
  if (descriptor >= 0) {
    ::close(descriptor);
    return {};
  }
  return {StatusCode::unavailable, "audit_log: " + file.string() + " cannot be written (" +
                                       std::strerror(errno) +
                                       "); is the path right, and may this user write there?"};
}

std::shared_ptr<spdlog::logger> file_log(const std::filesystem::path& file) {
  auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file.string());
  sink->set_formatter(std::make_unique<spdlog::pattern_formatter>("%v"));
  auto log = std::make_shared<spdlog::logger>("audit", std::move(sink));
  log->flush_on(spdlog::level::info);
  return log;
}

std::shared_ptr<spdlog::logger> daemon_log() {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  // As other lines, but for the escapes: JSON has its own.
  sink->set_formatter(std::make_unique<spdlog::pattern_formatter>());
  return std::make_shared<spdlog::logger>("audit", std::move(sink));
}

}  // namespace

AuditLog::AuditLog(std::shared_ptr<spdlog::logger> log) : log_(std::move(log)) {}
AuditLog::~AuditLog() = default;

Result<std::unique_ptr<AuditLog>> AuditLog::open(const std::filesystem::path& file) {
  if (file.empty()) return std::unique_ptr<AuditLog>(new AuditLog(daemon_log()));
  if (const Status made = make_private(file); !made.ok()) return made;
  try {
    return std::unique_ptr<AuditLog>(new AuditLog(file_log(file)));
  } catch (const spdlog::spdlog_ex& failure) {
    return Status(StatusCode::unavailable, std::string("audit_log: ") + failure.what());
  }
}

void AuditLog::called(const net::AuditRecord& record) { log_->info(line_of(record, "call")); }

void AuditLog::refused(const net::AuditRecord& record, Time now) {
  const auto before = refusals_.tell(record.peer.address, record.action, now);
  if (!before) return;
  if (*before > 0) log_->warn(suppressed_line(record.peer.address, record.action, *before));
  log_->warn(line_of(record, "refused"));
}

void AuditLog::settle(Time now) {
  for (const auto& untold : refusals_.settle(now))
    log_->warn(suppressed_line(untold.peer, untold.kind, untold.count));
}

}  // namespace gpulet::frontend

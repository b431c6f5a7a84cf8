// AuditLog: who did what an administrator is to know of later, a line of JSON for each
// (docs/security.md): administrative calls with their results, calls that were refused for their
// token, tokens and certificates that were read again. Refusals that one address repeats are
// counted and told now and then. One thread at a time; writes to a file or the daemon's log.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/net/audit.h"
#include "gpulet/observe/warning_limiter.h"

namespace spdlog {
class logger;
}

namespace gpulet::frontend {

class AuditLog {
 public:
  // Appends to the file, which is made with mode 0600; empty: the daemon's log. Fails
  // (unavailable), naming the file.
  [[nodiscard]] static Result<std::unique_ptr<AuditLog>> open(const std::filesystem::path& file);

  // An administrative call, or something that the daemon did itself.
  void called(const net::AuditRecord& record);
  // A call that was refused: unauthenticated or forbidden.
  void refused(const net::AuditRecord& record, Time now);
  // Tells what was counted of refusals that have stopped.
  void settle(Time now);

  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

 private:
  explicit AuditLog(std::shared_ptr<spdlog::logger> log);

  std::shared_ptr<spdlog::logger> log_;
  observe::WarningLimiter refusals_;
};

}  // namespace gpulet::frontend

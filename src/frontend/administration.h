// What administrators need besides serving: the audit log, reloading of tokens and certificates,
// and rate-limited warnings about peers. All types here belong to the thread of the io_context,
// which must have stopped before they are destroyed.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "frontend/file_watch.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/frontend/setup.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/net/gate.h"
#include "gpulet/observe/log_limiter.h"

namespace spdlog {
class logger;
}

namespace gpulet::frontend {

// The audit log (docs/security.md): one line of JSON for each administrative call with its result,
// each call refused for its token, and each reload of tokens or certificates. Repeated refusals of
// one address are counted and summarised.
class AuditLog {
 public:
  // Appends to `file` (mode 0600); empty: to the daemon's log. Fails with unavailable.
  [[nodiscard]] static Result<std::unique_ptr<AuditLog>> open(const std::filesystem::path& file);

  // An administrative call, or an action of the daemon itself.
  void record_call(const net::AuditRecord& record);
  // A call that was refused as unauthenticated or forbidden.
  void record_refusal(const net::AuditRecord& record, Time now);
  // Writes the counts of suppressed refusals that have stopped.
  void flush_suppressed(Time now);

  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

 private:
  explicit AuditLog(std::shared_ptr<spdlog::logger> log);

  std::shared_ptr<spdlog::logger> log_;
  observe::LogRateLimiter refusals_;
};

// Log lines that a peer can cause. Of each kind and address, only some are logged and counted.
class PeerLog {
 public:
  explicit PeerLog(net::asio::io_context& io) : timer_(io) {}

  void warn(std::string_view address, std::string_view kind, const std::string& text);
  void info(std::string_view address, std::string_view kind, const std::string& text);
  void stop();

 private:
  [[nodiscard]] bool admit(std::string_view address, std::string_view kind);
  void schedule_flush();

  observe::LogRateLimiter limiter_{{20, std::chrono::seconds(2), 4096}};
  net::Alarm timer_;
  bool flush_scheduled_ = false;
  bool stopped_ = false;
};

// Reads the files of tokens and certificates again, on a separate thread, after a change. Reports
// files that cannot be used and keeps the previous content. Callbacks run on the io_context.
class SecurityReload {
 public:
  struct Callbacks {
    std::function<void(std::shared_ptr<const net::Tokens>)> tokens_changed;
    std::function<void(const PortTls&)> clients_changed;
    std::function<void(const PortTls&)> backends_changed;
    std::function<void(const Status&)> failed;
  };

  // `security`: the tokens and certificates in force.
  SecurityReload(net::asio::io_context& io, config::FrontendConfig config, const Security& security,
                 Callbacks callbacks);
  ~SecurityReload();
  SecurityReload(const SecurityReload&) = delete;
  SecurityReload& operator=(const SecurityReload&) = delete;

  // Reads the files once, then watches them. Does nothing if the configuration names no files.
  void start();
  void stop();

 private:
  struct Loaded;

  [[nodiscard]] FileWatch::Folders folders() const;
  void reload();
  void apply(Loaded loaded);

  net::asio::io_context& io_;
  const config::FrontendConfig config_;
  Callbacks callbacks_;
  std::shared_ptr<const net::Tokens> tokens_;
  net::TlsTexts clients_;
  net::TlsTexts backends_;
  FileWatch watch_;
  bool reading_ = false;
  bool reload_again_ = false;
  bool stopped_ = false;
  boost::asio::thread_pool thread_{1};  // last: joined before the members it uses are destroyed
};

class Administration {
 public:
  struct Callbacks {
    std::function<void()> tokens_changed;
    std::function<void(const PortTls&)> clients_changed;
    std::function<void(const PortTls&)> backends_changed;
  };

  // The gate of `security` must outlive this object.
  Administration(net::asio::io_context& io, const config::FrontendConfig& config,
                 const Security& security, std::shared_ptr<AuditLog> audit, Callbacks callbacks);
  ~Administration();
  Administration(const Administration&) = delete;
  Administration& operator=(const Administration&) = delete;

  void start();
  void stop();

  // Logs `text`. Lines with the `address` of a backend are rate-limited; empty: no backend.
  void log(std::string_view address, bool warning, const std::string& text);

 private:
  void record_reload(const std::string& action, const Status& result);
  void schedule_flush();

  std::shared_ptr<net::Gate> gate_;
  std::shared_ptr<AuditLog> audit_;
  Callbacks callbacks_;
  PeerLog peers_;
  net::Alarm flush_timer_;
  SecurityReload reload_;
};

}  // namespace gpulet::frontend

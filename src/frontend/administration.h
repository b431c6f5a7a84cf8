// What administrators need besides serving: the audit log, and reloading of tokens and
// certificates. All types here but AuditLog belong to the thread of the io_context, which must have
// stopped before they are destroyed.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "frontend/frames/peer_log.h"
#include "frontend/frames/security.h"
#include "frontend/loop/file_watch.h"
#include "frontend/observe/status_json.h"
#include "frontend/setup.h"
#include "gpulet/access/gate.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/observe/log_limiter.h"

namespace spdlog {
class logger;
}

namespace gpulet::observe {
class LineWriter;
struct LineWriterState;
}  // namespace gpulet::observe

namespace gpulet::frontend {

// The audit log (docs/security.md): one line of JSON for each administrative call with its result,
// each call refused for its token, and each reload of tokens or certificates. Repeated refusals of
// one address are counted and summarised. A full disk or a stopped reader delays nobody: lines that
// fit nowhere are dropped, counted and reported (observe/sinks/log.h). Any thread.
class AuditLog {
 public:
  // Appends to `file` (mode 0600); empty: to the daemon's log. Fails with unavailable.
  [[nodiscard]] static Result<std::unique_ptr<AuditLog>> open(const std::filesystem::path& file);

  // An administrative call, or an action of the daemon itself.
  void record_call(const access::AuditRecord& record);
  // A call that was refused as unauthenticated or forbidden.
  void record_refusal(const access::AuditRecord& record, Time now);
  // Writes the counts of suppressed refusals that have stopped.
  void flush_suppressed(Time now);
  // Opens the file again, after it was moved away. Nothing for the daemon's log.
  void reopen();
  // Of the file; of the daemon's log without one.
  [[nodiscard]] observe::LineWriterState state() const;

  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

 private:
  AuditLog(std::unique_ptr<observe::LineWriter> file, std::shared_ptr<spdlog::logger> log);
  void write(bool warning, const std::string& line);

  std::unique_ptr<observe::LineWriter> file_;  // null: the daemon's log
  std::shared_ptr<spdlog::logger> log_;        // null: the file
  std::mutex mutex_;                           // guards refusals_ and the order of its lines
  observe::LogRateLimiter refusals_;
};

// Reads the files of tokens and certificates again, on a separate thread, after a change. Reports
// files that cannot be used and keeps the previous content. The owner is called on the io_context.
class SecurityReload final : public Reloadable {
 public:
  class Owner {
   public:
    virtual void on_tokens(std::shared_ptr<const access::Tokens> tokens) = 0;
    virtual void on_client_tls(const PortTls& tls) = 0;
    virtual void on_backend_tls(const PortTls& tls) = 0;
    virtual void on_failure(const Status& why) = 0;

   protected:
    ~Owner() = default;
  };

  // `security`: the tokens and certificates in force. `owner` must outlive this object.
  SecurityReload(net::asio::io_context& io, config::FrontendConfig config, const Security& security,
                 Owner& owner);
  ~SecurityReload();
  SecurityReload(const SecurityReload&) = delete;
  SecurityReload& operator=(const SecurityReload&) = delete;

  // Reads the files once, then watches them. Does nothing if the configuration names no files.
  void start();
  void stop();
  // Reads the files again.
  void reload() override;

 private:
  struct Loaded;

  [[nodiscard]] FileWatch::Folders folders() const;
  void apply(Loaded loaded);

  net::asio::io_context& io_;
  const config::FrontendConfig config_;
  Owner& owner_;
  std::shared_ptr<const access::Tokens> tokens_;
  net::TlsTexts clients_;
  net::TlsTexts backends_;
  FileWatch watch_;
  bool reading_ = false;
  bool reload_again_ = false;
  bool stopped_ = false;
  boost::asio::thread_pool thread_{1};  // last: joined before the members it uses are destroyed
};

// Where reloaded tokens and certificates come into force.
class SecurityUser {
 public:
  virtual void tokens_changed() = 0;  // those of the gate
  virtual void use_client_tls(const PortTls& tls) = 0;
  virtual void use_backend_tls(const PortTls& tls) = 0;

 protected:
  ~SecurityUser() = default;
};

class Administration final : private SecurityReload::Owner {
 public:
  // The gate of `security`, `peers` and `user` must outlive this object.
  Administration(net::asio::io_context& io, const Setup& setup, PeerLog& peers, SecurityUser& user);
  ~Administration();
  Administration(const Administration&) = delete;
  Administration& operator=(const Administration&) = delete;

  void start();
  void stop();
  // Reads the tokens and certificates again, and opens the file of the audit log again.
  void reload();

  [[nodiscard]] LogFigures log_figures() const;

  // Logs `text`. Lines with the `address` of a backend are rate-limited; empty: no backend.
  void log(std::string_view address, bool warning, const std::string& text);

 private:
  void on_tokens(std::shared_ptr<const access::Tokens> tokens) override;
  void on_client_tls(const PortTls& tls) override;
  void on_backend_tls(const PortTls& tls) override;
  void on_failure(const Status& why) override;
  void record_reload(const std::string& action, const Status& result);
  void schedule_flush();

  std::shared_ptr<access::Gate> gate_;
  std::shared_ptr<AuditLog> audit_;
  PeerLog& peers_;
  SecurityUser& user_;
  net::Alarm flush_timer_;
  SecurityReload reload_;
};

}  // namespace gpulet::frontend

// Administration: what an administrator needs of a frontend besides serving: the audit log is told
// of what the gate sees, tokens and certificates follow their files, and warnings that peers cause
// are bounded. One thread: the one that runs the io_context, which must not run any more when this
// goes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "audit_log.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/frontend/security.h"
#include "gpulet/net/alarm.h"
#include "gpulet/net/asio.h"
#include "gpulet/serve/messages.h"
#include "peer_log.h"
#include "security_reload.h"

namespace gpulet::frontend {

class Administration {
 public:
  // What must follow where files have changed.
  struct Ports {
    std::function<void()> tokens_changed;
    std::function<void(const PortTls&)> clients_changed;
    std::function<void(const PortTls&)> backends_changed;
  };

  // The gate of `security` outlives it and is asked by nobody afterwards.
  Administration(net::asio::io_context& io, const config::FrontendConfig& config,
                 const Security& security, std::shared_ptr<AuditLog> audit, Ports ports);
  ~Administration();
  Administration(const Administration&) = delete;
  Administration& operator=(const Administration&) = delete;

  void start();
  void stop();

  // Something that a backend at that address has caused.
  void note(std::string_view address, bool warning, const std::string& text);

 private:
  void told(const std::string& action, const Status& result);
  void settle_later();

  std::shared_ptr<net::Gate> gate_;
  std::shared_ptr<AuditLog> audit_;
  Ports ports_;
  PeerLog peers_;
  net::Alarm settle_;
  SecurityReload reload_;
};

}  // namespace gpulet::frontend

// SecurityReload: keeps tokens and certificates in step with their files. Watches the folders that
// hold them, reads the files again when something there changes, and hands over what is new. What
// cannot be used is warned of, and what was in force stays. Reading has a thread of its own;
// everything else, callbacks included, happens on the io_context, which must not run any more when
// this is destroyed.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <memory>

#include "file_watch.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/frontend/security.h"
#include "gpulet/net/asio.h"

namespace gpulet::frontend {

class SecurityReload {
 public:
  struct Changed {
    std::function<void(std::shared_ptr<const net::Tokens>)> tokens;
    std::function<void(const PortTls&)> clients;
    std::function<void(const PortTls&)> backends;
    std::function<void(const Status&)> failed;
  };

  // `security`: what is in force.
  SecurityReload(net::asio::io_context& io, config::FrontendConfig config, const Security& security,
                 Changed changed);
  ~SecurityReload();
  SecurityReload(const SecurityReload&) = delete;
  SecurityReload& operator=(const SecurityReload&) = delete;

  // Begins to watch, and reads once. Nothing is watched where no file secures anything.
  void start();
  void stop();

 private:
  struct Reading;

  [[nodiscard]] FileWatch::Folders folders() const;
  void read_again();
  void take_in(Reading reading);

  net::asio::io_context& io_;
  const config::FrontendConfig config_;
  Changed changed_;
  std::shared_ptr<const net::Tokens> tokens_;
  net::TlsTexts clients_;
  net::TlsTexts backends_;
  FileWatch watch_;
  bool reading_ = false;
  bool read_once_more_ = false;
  bool stopped_ = false;
  boost::asio::thread_pool thread_{1};  // last: joined before anything it uses goes
};

}  // namespace gpulet::frontend

#include "administration.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <utility>

#include "gpulet/net/clock.h"

namespace gpulet::frontend {
namespace {

constexpr auto kBetweenSettles = std::chrono::seconds(10);

}  // namespace

Administration::Administration(net::asio::io_context& io, const config::FrontendConfig& config,
                               const Security& security, std::shared_ptr<AuditLog> audit,
                               Ports ports)
    : gate_(security.gate),
      audit_(std::move(audit)),
      ports_(std::move(ports)),
      peers_(io),
      settle_(io),
      reload_(io, config, security,
              {.tokens =
                   [this](std::shared_ptr<const net::Tokens> tokens) {
                     gate_->replace(std::move(tokens));
                     told("tokens_reload", {});
                     ports_.tokens_changed();
                   },
               .clients =
                   [this](const PortTls& tls) {
                     told("certificate_reload", {});
                     ports_.clients_changed(tls);
                   },
               .backends =
                   [this](const PortTls& tls) {
                     told("backend_certificate_reload", {});
                     ports_.backends_changed(tls);
                   },
               .failed = [this](const Status& why) { told("security_reload", why); }}) {
  gate_->set_audit([this](const net::AuditRecord& record) { audit_->called(record); },
                   [this](const net::AuditRecord& record) { audit_->refused(record, net::now()); });
}

Administration::~Administration() { gate_->set_audit({}, {}); }

void Administration::start() {
  reload_.start();
  settle_later();
}

void Administration::stop() {
  reload_.stop();
  peers_.stop();
  settle_.cancel();
}

void Administration::settle_later() {
  settle_.set_after(kBetweenSettles, [this] {
    audit_->settle(net::now());
    settle_later();
  });
}

void Administration::told(const std::string& action, const Status& result) {
  if (result.ok()) {
    spdlog::info("{}: what the files hold is in force", action);
  } else {
    spdlog::warn("what was in force stays: {}", result.message());
  }
  net::AuditRecord record;
  record.action = action;
  record.result = result;
  audit_->called(record);
}

void Administration::note(std::string_view address, bool warning, const std::string& text) {
  if (address.empty()) {
    if (warning) {
      spdlog::warn("{}", text);
    } else {
      spdlog::info("{}", text);
    }
  } else if (warning) {
    peers_.warn(address, "warning", text);
  } else {
    peers_.info(address, "information", text);
  }
}

}  // namespace gpulet::frontend

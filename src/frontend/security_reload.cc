#include "security_reload.h"

#include <spdlog/spdlog.h>

#include <utility>

namespace gpulet::frontend {

namespace asio = net::asio;

struct SecurityReload::Reading {
  Result<net::Tokens> tokens = net::Tokens();
  Result<PortTls> clients = PortTls{};
  Result<PortTls> backends = PortTls{};
};

SecurityReload::SecurityReload(asio::io_context& io, config::FrontendConfig config,
                               const Security& security, Changed changed)
    : io_(io),
      config_(std::move(config)),
      changed_(std::move(changed)),
      tokens_(security.gate->tokens()),
      clients_(security.clients.texts),
      backends_(security.backends.texts),
      watch_(io, [this] { read_again(); }) {}

SecurityReload::~SecurityReload() { thread_.join(); }

// Whole folders: what replaces a file may be a link beside it, as Kubernetes has it.
FileWatch::Folders SecurityReload::folders() const {
  FileWatch::Folders folders;
  const auto add = [&folders](const std::filesystem::path& file) {
    if (!file.empty()) folders[file.parent_path()] = {};
  };
  add(config_.tokens.admin);
  add(config_.tokens.inference);
  add(config_.tokens.observe);
  for (const auto& tls : {config_.tls, config_.backend_tls}) {
    if (!tls) continue;
    add(tls->certificate);
    add(tls->key);
    add(tls->authority);
  }
  return folders;
}

void SecurityReload::start() {
  const FileWatch::Folders watched = folders();
  if (watched.empty()) return;
  if (const Status status = watch_.watch(watched); !status.ok())
    spdlog::warn("changes of tokens and certificates may go unseen: {}", status.message());
  read_again();
}

void SecurityReload::stop() {
  stopped_ = true;
  watch_.stop();
}

void SecurityReload::read_again() {
  if (stopped_) return;
  if (std::exchange(reading_, true)) {
    read_once_more_ = true;
    return;
  }
  asio::post(thread_, [this] {
    auto reading = std::make_shared<Reading>();
    reading->tokens = net::Tokens::read(config_.tokens);
    if (config_.tls) reading->clients = read_port_tls(*config_.tls);
    if (config_.backend_tls) reading->backends = read_port_tls(*config_.backend_tls);
    asio::post(io_, [this, reading] {
      reading_ = false;
      if (stopped_) return;
      take_in(std::move(*reading));
      if (std::exchange(read_once_more_, false)) read_again();
    });
  });
}

void SecurityReload::take_in(Reading reading) {
  for (const Status& failure :
       {reading.tokens.status().within("tokens"), reading.clients.status().within("tls"),
        reading.backends.status().within("backend_tls")}) {
    if (!failure.ok()) changed_.failed(failure);
  }
  if (reading.tokens.ok() && reading.tokens.value() != *tokens_) {
    tokens_ = std::make_shared<const net::Tokens>(std::move(reading.tokens).value());
    changed_.tokens(tokens_);
  }
  if (reading.clients.ok() && reading.clients.value().texts != clients_) {
    clients_ = reading.clients.value().texts;
    changed_.clients(reading.clients.value());
  }
  if (reading.backends.ok() && reading.backends.value().texts != backends_) {
    backends_ = reading.backends.value().texts;
    changed_.backends(reading.backends.value());
  }
}

}  // namespace gpulet::frontend

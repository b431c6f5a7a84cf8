#include "frontend/administration.h"

#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "gpulet/base/files.h"
#include "gpulet/net/event_loop.h"
#include "gpulet/observe/sinks/log.h"

namespace gpulet::frontend {
constexpr auto kFlushInterval = std::chrono::seconds(10);

Administration::Administration(net::asio::io_context& io, const Setup& setup, PeerLog& peers,
                               SecurityUser& user)
    : gate_(setup.security.gate),
      audit_(setup.audit),
      peers_(peers),
      user_(user),
      flush_timer_(io),
      reload_(io, setup.config, setup.security, *this) {
  gate_->set_audit(
      [this](const access::AuditRecord& record) { audit_->record_call(record); },
      [this](const access::AuditRecord& record) { audit_->record_refusal(record, net::now()); });
}

Administration::~Administration() { gate_->set_audit({}, {}); }

void Administration::start() {
  reload_.start();
  schedule_flush();
}

void Administration::stop() {
  reload_.stop();
  peers_.stop();
  flush_timer_.cancel();
}

void Administration::reload() {
  reload_.reload();
  audit_->reopen();
}

LogFigures Administration::log_figures() const {
  const observe::LineWriterState audit = audit_->state();
  return {observe::log_state().dropped, audit.dropped, audit.problem()};
}

void Administration::on_tokens(std::shared_ptr<const access::Tokens> tokens) {
  gate_->replace(std::move(tokens));
  record_reload("tokens_reload", {});
  user_.tokens_changed();
}

void Administration::on_client_tls(const PortTls& tls) {
  record_reload("certificate_reload", {});
  user_.use_client_tls(tls);
}

void Administration::on_backend_tls(const PortTls& tls) {
  record_reload("backend_certificate_reload", {});
  user_.use_backend_tls(tls);
}

void Administration::on_failure(const Status& why) { record_reload("security_reload", why); }

void Administration::schedule_flush() {
  flush_timer_.set_after(kFlushInterval, [this] {
    audit_->flush_suppressed(net::now());
    schedule_flush();
  });
}

void Administration::record_reload(const std::string& action, const Status& result) {
  if (result.ok()) {
    spdlog::info("{}: the new content of the files is in force", action);
  } else {
    spdlog::warn("reload failed; the previous tokens and certificates stay in force: {}",
                 result.message());
  }
  access::AuditRecord record;
  record.action = action;
  record.result = result;
  audit_->record_call(record);
}

void Administration::log(std::string_view address, bool warning, const std::string& text) {
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

// ---- AuditLog

namespace {

constexpr std::size_t kMaxText = 1024;                         // bytes of text that a peer sent
constexpr std::size_t kMaxAuditBytes = std::size_t{4} << 20U;  // of lines that wait for the disk

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

// One line of ASCII, whatever bytes the peer sent.
std::string line_of(const access::AuditRecord& record, std::string_view event) {
  nlohmann::ordered_json line;
  line["time"] = time_text(std::chrono::system_clock::now());
  line["event"] = event;
  line["action"] = record.action;
  if (!record.target.empty()) line["target"] = record.target.substr(0, kMaxText);
  line["result"] = to_string(record.result.code());
  if (!record.peer.protocol.empty()) {
    line["protocol"] = record.peer.protocol;
    line["address"] = record.peer.address;
    line["token"] = record.peer.token_name();
    line["certificate"] = record.peer.certificates;
  }
  if (!record.result.message().empty())
    line["message"] = record.result.message().substr(0, kMaxText);
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

// Counted lines are told in the file, too.
std::string lost_line(std::uint64_t count) {
  nlohmann::ordered_json line;
  line["time"] = time_text(std::chrono::system_clock::now());
  line["event"] = "lines_dropped";
  line["count"] = count;
  return line.dump() + "\n";
}

std::shared_ptr<spdlog::logger> daemon_log() {
  // The format of other lines without their escaping: JSON escapes by itself.
  return std::make_shared<spdlog::logger>(
      "audit", observe::log_sink(std::make_unique<spdlog::pattern_formatter>()));
}

}  // namespace

AuditLog::AuditLog(std::unique_ptr<observe::LineWriter> file, std::shared_ptr<spdlog::logger> log)
    : file_(std::move(file)), log_(std::move(log)) {}
AuditLog::~AuditLog() = default;

Result<std::unique_ptr<AuditLog>> AuditLog::open(const std::filesystem::path& file) {
  if (file.empty()) return std::unique_ptr<AuditLog>(new AuditLog(nullptr, daemon_log()));
  Result<FileDescriptor> opened = observe::open_to_append(file);
  if (!opened.ok()) return opened.status().within("audit_log");
  observe::LineWriterOptions options;
  options.max_bytes = kMaxAuditBytes;
  options.dropped_line = lost_line;
  options.open_again = [file] { return observe::open_to_append(file); };
  auto lines = std::make_unique<observe::LineWriter>(std::move(opened).value(), std::move(options));
  return std::unique_ptr<AuditLog>(new AuditLog(std::move(lines), nullptr));
}

void AuditLog::reopen() {
  if (file_ != nullptr) file_->reopen();
}

observe::LineWriterState AuditLog::state() const {
  return file_ != nullptr ? file_->state() : observe::log_state();
}

void AuditLog::write(bool warning, const std::string& line) {
  if (file_ != nullptr) return file_->write(line + "\n");
  log_->log(warning ? spdlog::level::warn : spdlog::level::info, line);
}

void AuditLog::record_call(const access::AuditRecord& record) {
  write(false, line_of(record, "call"));
}

void AuditLog::record_refusal(const access::AuditRecord& record, Time now) {
  const std::lock_guard lock(mutex_);
  const auto before = refusals_.admit(record.peer.address, record.action, now);
  if (!before) return;
  if (*before > 0) write(true, suppressed_line(record.peer.address, record.action, *before));
  write(true, line_of(record, "refused"));
}

void AuditLog::flush_suppressed(Time now) {
  const std::lock_guard lock(mutex_);
  for (const auto& untold : refusals_.take_suppressed(now))
    write(true, suppressed_line(untold.peer, untold.kind, untold.count));
}

// ---- SecurityReload

struct SecurityReload::Loaded {
  Result<access::Tokens> tokens = access::Tokens();
  Result<PortTls> clients = PortTls{};
  Result<PortTls> backends = PortTls{};
};

SecurityReload::SecurityReload(net::asio::io_context& io, config::FrontendConfig config,
                               const Security& security, Owner& owner)
    : io_(io),
      config_(std::move(config)),
      owner_(owner),
      tokens_(security.gate->tokens()),
      clients_(security.clients.texts),
      backends_(security.backends.texts),
      watch_(io, *this) {
  net::asio::post(thread_, [] { net::name_thread("security"); });
}

SecurityReload::~SecurityReload() { thread_.join(); }

// Whole folders: Kubernetes replaces a file by changing a link beside it.
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
    spdlog::warn("changes of tokens and certificates may go unnoticed: {}", status.message());
  reload();
}

void SecurityReload::stop() {
  stopped_ = true;
  watch_.stop();
}

void SecurityReload::reload() {
  if (stopped_) return;
  if (std::exchange(reading_, true)) {
    reload_again_ = true;
    return;
  }
  net::asio::post(thread_, [this] {
    auto loaded = std::make_shared<Loaded>();
    loaded->tokens = access::Tokens::read(config_.tokens);
    if (config_.tls) loaded->clients = read_port_tls(*config_.tls);
    if (config_.backend_tls) loaded->backends = read_port_tls(*config_.backend_tls);
    net::asio::post(io_, [this, loaded] {
      reading_ = false;
      if (stopped_) return;
      apply(std::move(*loaded));
      if (std::exchange(reload_again_, false)) reload();
    });
  });
}

void SecurityReload::apply(Loaded loaded) {
  for (const Status& failure :
       {loaded.tokens.status().within("tokens"), loaded.clients.status().within("tls"),
        loaded.backends.status().within("backend_tls")}) {
    if (!failure.ok()) owner_.on_failure(failure);
  }
  if (loaded.tokens.ok() && loaded.tokens.value() != *tokens_) {
    tokens_ = std::make_shared<const access::Tokens>(std::move(loaded.tokens).value());
    owner_.on_tokens(tokens_);
  }
  if (loaded.clients.ok() && loaded.clients.value().texts != clients_) {
    clients_ = loaded.clients.value().texts;
    owner_.on_client_tls(loaded.clients.value());
  }
  if (loaded.backends.ok() && loaded.backends.value().texts != backends_) {
    backends_ = loaded.backends.value().texts;
    owner_.on_backend_tls(loaded.backends.value());
  }
}

}  // namespace gpulet::frontend

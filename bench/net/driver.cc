#include "bench/net/driver.h"

#include <algorithm>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gpulet/net/asio.h"

namespace gpulet::bench {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using TlsSocket = asio::ssl::stream<tcp::socket>;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kBufferBytes = 1U << 18U;

class Session {
 public:
  virtual ~Session() = default;
  virtual void start() = 0;
};

// Socket: tcp::socket or TlsSocket.
template <typename Socket>
class SessionOver final : public Session {
 public:
  SessionOver(Socket socket, std::uint32_t depth, const Exchange& exchange, Record& record,
              Status& lost)
      : socket_(std::move(socket)),
        exchange_(exchange),
        record_(record),
        lost_(lost),
        slots_(depth),
        buffer_(kBufferBytes) {}

  void start() override {
    for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) ask(slot);
    write();
    read();
  }

 private:
  struct Slot {
    Clock::time_point asked;
    std::size_t bytes = 0;
  };

  void ask(std::uint32_t slot) {
    waiting_.push_back(exchange_.request(slot));
    slots_[slot] = {Clock::now(), waiting_.back().head.size() + waiting_.back().payload.size()};
  }

  void write() {
    if (!written_.empty() || waiting_.empty()) return;
    written_.swap(waiting_);
    pieces_.clear();
    for (const Exchange::Request& request : written_) {
      pieces_.emplace_back(request.head.data(), request.head.size());
      pieces_.emplace_back(request.payload.view().data(), request.payload.size());
    }
    asio::async_write(socket_, pieces_, [this](const error_code& error, std::size_t) {
      written_.clear();
      if (error) return lose("sending failed: " + error.message());
      write();
    });
  }

  void read() {
    if (received_ == buffer_.size())
      buffer_.resize(2 * buffer_.size());  // this reply must be complete to be recognised
    socket_.async_read_some(asio::buffer(buffer_.data() + received_, buffer_.size() - received_),
                            [this](const error_code& error, std::size_t bytes) {
                              if (error) return lose("receiving failed: " + error.message());
                              received_ += bytes;
                              take_replies();
                            });
  }

  void take_replies() {
    std::span<const std::byte> rest(buffer_.data(), received_);
    for (;;) {
      const std::size_t skipped = std::min(skip_, rest.size());
      skip_ -= skipped;
      rest = rest.subspan(skipped);
      if (rest.empty()) break;
      const Result<std::optional<Exchange::Reply>> reply = exchange_.reply(rest);
      if (!reply.ok()) return lose(reply.status().to_string());
      if (!reply.value()) break;
      if (reply.value()->slot >= slots_.size())
        return lose("a reply to a request that was never sent");
      note(*reply.value());
      ask(reply.value()->slot);
      skip_ = reply.value()->bytes;
    }
    if (!rest.empty()) std::memmove(buffer_.data(), rest.data(), rest.size());
    received_ = rest.size();
    write();
    read();
  }

  void note(const Exchange::Reply& reply) {
    const Slot& slot = slots_[reply.slot];
    record_.add(slot.asked, slot.bytes, reply.ok);
  }

  void lose(const std::string& why) {
    if (lost_.ok()) lost_ = Status(StatusCode::unavailable, why);
    error_code ignored;
    socket_.lowest_layer().close(ignored);
  }

  Socket socket_;
  const Exchange& exchange_;
  Record& record_;
  Status& lost_;
  std::vector<Slot> slots_;
  std::vector<Exchange::Request> waiting_;
  std::vector<Exchange::Request> written_;  // by the write in flight
  std::vector<asio::const_buffer> pieces_;
  std::vector<std::byte> buffer_;
  std::size_t received_ = 0;  // bytes that are not processed yet
  std::size_t skip_ = 0;      // of a reply that was counted but has not arrived completely
};

// What connections of one driver have in common.
struct Target {
  const DriveOptions& options;
  tcp::endpoint endpoint;
  std::unique_ptr<asio::ssl::context> tls;  // null: plain
};

// One thread's connections.
class Part {
 public:
  Part(const Target& target, const Exchange& exchange, Clock::time_point measured_from)
      : target_(target), exchange_(exchange), record_(measured_from) {}

  Status connect() {
    error_code error;
    tcp::socket socket(context_);
    socket.connect(target_.endpoint, error);
    if (error) return failure("connecting", error);
    socket.set_option(tcp::no_delay(true));
    if (target_.tls == nullptr) {
      add(std::move(socket));
      return {};
    }
    TlsSocket secure(std::move(socket), *target_.tls);
    secure.set_verify_mode(asio::ssl::verify_peer);
    secure.set_verify_callback(asio::ssl::host_name_verification(target_.options.host));
    secure.handshake(TlsSocket::client, error);
    if (error) return failure("the TLS handshake", error);
    add(std::move(secure));
    return {};
  }

  void run_until(Clock::time_point end) {
    for (const auto& session : sessions_) session->start();
    while (Clock::now() < end && lost_.ok()) context_.run_one_until(end);
  }

  [[nodiscard]] const Status& lost() const { return lost_; }
  [[nodiscard]] Record& record() { return record_; }

 private:
  [[nodiscard]] Status failure(const char* what, const error_code& error) const {
    return {StatusCode::unavailable,
            std::string(what) + " with " + target_.options.host + " failed: " + error.message()};
  }

  template <typename Socket>
  void add(Socket socket) {
    sessions_.push_back(std::make_unique<SessionOver<Socket>>(
        std::move(socket), target_.options.depth, exchange_, record_, lost_));
  }

  const Target& target_;
  const Exchange& exchange_;
  asio::io_context context_{1};
  Record record_;
  Status lost_;
  std::vector<std::unique_ptr<Session>> sessions_;
};

Status prepare(Target& target) {
  error_code error;
  const asio::ip::address address = asio::ip::make_address(target.options.host, error);
  if (error) {
    return {StatusCode::invalid, "\"" + target.options.host + "\" is not a numeric address"};
  }
  target.endpoint = {address, target.options.port};
  if (target.options.authority.empty()) return {};
  target.tls = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_client);
  target.tls->load_verify_file(target.options.authority, error);
  if (error)
    return {StatusCode::invalid, target.options.authority + ": cannot be used: " + error.message()};
  return {};
}

}  // namespace

Status drive(const DriveOptions& options, const Exchange& exchange,
             const std::function<void(const DriveResult&)>& on_result) {
  Target target{options, {}, nullptr};
  if (const Status ready = prepare(target); !ready.ok()) return ready;
  const Clock::time_point measured_from = Clock::now() + options.warm_up;
  const Clock::time_point end = measured_from + options.duration;
  std::vector<std::unique_ptr<Part>> parts;
  for (std::uint32_t i = 0; i < std::min(options.threads, options.connections); ++i)
    parts.push_back(std::make_unique<Part>(target, exchange, measured_from));
  for (std::uint32_t i = 0; i < options.connections; ++i) {
    if (const Status opened = parts[i % parts.size()]->connect(); !opened.ok()) return opened;
  }
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < parts.size(); ++i)
      threads.emplace_back([&part = *parts[i], end] { part.run_until(end); });
    parts[0]->run_until(end);
  }
  Record& record = parts[0]->record();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i]->lost().ok()) return parts[i]->lost();
    if (i > 0) record.merge(parts[i]->record());
  }
  on_result(record.summary(options.duration));
  return {};
}

}  // namespace gpulet::bench

#include "gpulet/net/connector.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace gpulet::net {
namespace {

using asio::ip::tcp;
using boost::system::error_code;

std::int64_t milliseconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

}  // namespace

// Every attempt has a number. What still comes back from an earlier attempt, or after close(), is
// not of the current number and is ignored.
class Connector::Impl : public std::enable_shared_from_this<Connector::Impl> {
 public:
  Impl(const asio::any_io_executor& executor, std::string host, std::uint16_t port,
       const ConnectorOptions& options)
      : executor_(executor),
        resolver_(executor),
        socket_(executor),
        timer_(executor),
        host_(std::move(host)),
        port_(port),
        options_(options) {}

  void connect(OnDone on_done);
  void connect_with_retry(OnConnected on_connected, OnAttemptFailed on_failed, Duration at_least);
  void close();

 private:
  using Attempt = std::uint64_t;

  void find_address();
  void connect_to(const std::vector<tcp::endpoint>& endpoints);
  void finish(Attempt attempt, const error_code& error, const std::string& doing);
  void on_timeout();
  void deliver(Result<Stream> result);
  void end_attempt();
  void pause_then_try(Duration pause);
  void try_again();
  void on_tried(Result<Stream> result);
  [[nodiscard]] std::string place() const { return host_ + ":" + std::to_string(port_); }

  asio::any_io_executor executor_;
  tcp::resolver resolver_;
  tcp::socket socket_;
  asio::steady_timer timer_;  // the attempt's deadline, or the pause before the next
  const std::string host_;
  const std::uint16_t port_;
  const ConnectorOptions options_;
  Attempt attempt_ = 0;
  OnDone on_done_;
  OnConnected on_connected_;
  OnAttemptFailed on_failed_;
  Duration pause_{};  // before the next attempt
  std::chrono::steady_clock::time_point connected_at_{};
};

void Connector::Impl::connect(OnDone on_done) {
  on_done_ = std::move(on_done);
  ++attempt_;
  timer_.expires_after(options_.timeout);
  timer_.async_wait([self = shared_from_this(), attempt = attempt_](const error_code& error) {
    if (!error && attempt == self->attempt_) self->on_timeout();
  });
  find_address();
}

void Connector::Impl::find_address() {
  error_code not_numeric;
  const asio::ip::address address = asio::ip::make_address(host_, not_numeric);
  if (!not_numeric) return connect_to({tcp::endpoint(address, port_)});
  resolver_.async_resolve(host_, std::to_string(port_),
                          [self = shared_from_this(), attempt = attempt_](
                              const error_code& error, const tcp::resolver::results_type& found) {
                            if (attempt != self->attempt_) return;
                            if (error)
                              return self->finish(attempt, error, "finding the address of ");
                            self->connect_to({found.begin(), found.end()});
                          });
}

void Connector::Impl::connect_to(const std::vector<tcp::endpoint>& endpoints) {
  asio::async_connect(socket_, endpoints,
                      [self = shared_from_this(), attempt = attempt_](const error_code& error,
                                                                      const tcp::endpoint&) {
                        self->finish(attempt, error, "connecting to ");
                      });
}

void Connector::Impl::finish(Attempt attempt, const error_code& error, const std::string& doing) {
  if (attempt != attempt_) return;
  if (error) {
    deliver(Status(StatusCode::unavailable, doing + place() + " failed: " + error.message() +
                                                "; is the peer running and the address right?"));
  } else {
    StreamSocket socket(std::exchange(socket_, tcp::socket(executor_)));
    deliver(Stream(std::move(socket), options_.tls, host_));
  }
}

void Connector::Impl::on_timeout() {
  deliver(Status(StatusCode::timeout, "connecting to " + place() + " took longer than " +
                                          std::to_string(milliseconds(options_.timeout)) + " ms"));
}

void Connector::Impl::deliver(Result<Stream> result) {
  const OnDone on_done = std::exchange(on_done_, nullptr);
  end_attempt();
  on_done(std::move(result));
}

void Connector::Impl::close() {
  end_attempt();
  on_done_ = nullptr;  // it may hold this object
  on_connected_ = nullptr;
  on_failed_ = nullptr;
}

void Connector::Impl::end_attempt() {
  ++attempt_;
  error_code ignored;
  socket_.close(ignored);
  resolver_.cancel();
  timer_.cancel();
}

void Connector::Impl::connect_with_retry(OnConnected on_connected, OnAttemptFailed on_failed,
                                         Duration at_least) {
  on_connected_ = std::move(on_connected);
  on_failed_ = std::move(on_failed);
  const Duration pause = std::max(pause_, at_least);
  if (pause == Duration::zero()) return try_again();
  pause_then_try(pause);
}

void Connector::Impl::pause_then_try(Duration pause) {
  ++attempt_;
  timer_.expires_after(pause);
  timer_.async_wait([self = shared_from_this(), attempt = attempt_](const error_code& error) {
    if (!error && attempt == self->attempt_) self->try_again();
  });
}

void Connector::Impl::try_again() {
  connect(
      [self = shared_from_this()](Result<Stream> result) { self->on_tried(std::move(result)); });
}

void Connector::Impl::on_tried(Result<Stream> result) {
  if (result.ok()) {
    const auto now = std::chrono::steady_clock::now();
    const bool lasted = now - connected_at_ >= options_.longest_pause;
    pause_ = lasted ? options_.first_pause
                    : std::min(std::max(2 * pause_, options_.first_pause), options_.longest_pause);
    connected_at_ = now;
    const OnConnected on_connected = std::exchange(on_connected_, nullptr);
    on_failed_ = nullptr;
    return on_connected(std::move(result).value());
  }
  const Duration pause = std::max(pause_, options_.first_pause);
  pause_ = std::min(2 * pause, options_.longest_pause);
  pause_then_try(pause);
  const OnAttemptFailed on_failed = on_failed_;  // a copy: the callback may destroy the connector
  on_failed(result.status(), pause);
}

Connector::Connector(const asio::any_io_executor& executor, std::string host, std::uint16_t port,
                     const ConnectorOptions& options)
    : impl_(std::make_shared<Impl>(executor, std::move(host), port, options)) {}
Connector::~Connector() { impl_->close(); }

void Connector::connect(OnDone on_done) { impl_->connect(std::move(on_done)); }
void Connector::connect_with_retry(OnConnected on_connected, OnAttemptFailed on_failed,
                                   Duration at_least) {
  impl_->connect_with_retry(std::move(on_connected), std::move(on_failed), at_least);
}
void Connector::close() { impl_->close(); }

}  // namespace gpulet::net

// FrontendLink: the connection of a backend to one frontend. It connects and retries for ever,
// decodes the frontend's messages and passes them to its host. Every connection has a new id.
//
// Single-strand: all calls and callbacks happen on the executor. A host may destroy its links
// outside a callback.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "gpulet/base/bytes.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/buffer_pool.h"
#include "gpulet/net/connection.h"
#include "gpulet/net/tls.h"
#include "gpulet/observe/log_limiter.h"
#include "gpulet/protocol/codec.h"
#include "gpulet/protocol/messages.h"

namespace gpulet::backend {

// When a backend connects to its frontend again, and which attempts to log. Pure; one thread.
//
// A frontend that cannot be reached may be starting: the connector retries within seconds, and the
// log gets one line, then reminders. A frontend that closes the connection without a welcome, or
// refuses this backend, would do so again: the delay doubles up to a minute. The backend never
// gives up, because the frontend's side may be fixed: a name becomes free, a certificate is
// renewed.
class ReconnectBackoff {
 public:
  static constexpr Duration kFirstReminder = std::chrono::seconds(10);
  static constexpr Duration kLongestReminder = std::chrono::minutes(10);
  static constexpr Duration kFirstDelay = std::chrono::seconds(2);
  static constexpr Duration kLongestDelay = std::chrono::minutes(1);

  // The frontend could not be reached. Returns whether to log it.
  [[nodiscard]] bool on_unreachable(Time now) {
    if (!unreachable_since_) {
      unreachable_since_ = now;
      reminder_.reset();
    }
    return reminder_.due(now);
  }

  // A connection ended. `refused`: without a welcome, or with a refusal. Returns the minimum delay
  // before the next attempt.
  [[nodiscard]] Duration on_closed(bool refused) {
    delay_ = refused ? std::clamp(2 * delay_, kFirstDelay, kLongestDelay) : Duration{};
    return delay_;
  }

  // The frontend welcomed this backend. Returns for how long it was unreachable; zero: it was not.
  [[nodiscard]] Duration on_welcome(Time now) {
    delay_ = {};
    const std::optional<Time> since = std::exchange(unreachable_since_, std::nullopt);
    return since ? now - *since : Duration{};
  }

 private:
  std::optional<Time> unreachable_since_;
  observe::LogBackoff reminder_{kFirstReminder, kLongestReminder};
  Duration delay_{};  // after the last refusal; zero: none
};

// Whether to take a frontend's offer of a Unix socket. Pure; one thread.
//
// A connection that ends shortly after it moved there may do so every time: the next one stays with
// TCP.
class LocalChoice {
 public:
  static constexpr Duration kShortest = std::chrono::seconds(10);

  explicit LocalChoice(bool wanted) : wanted_(wanted) {}

  [[nodiscard]] bool takes_offer() const { return wanted_ && !failed_; }
  void on_moved(Time now) { moved_ = now; }
  void on_closed(Time now) {
    failed_ = moved_ && now - *moved_ < kShortest;
    moved_.reset();
  }

 private:
  bool wanted_;
  bool failed_ = false;
  std::optional<Time> moved_;  // when this connection did
};

class FrontendLink : private net::ConnectionHandler {
 public:
  class Host {
   public:
    virtual ~Host() = default;
    [[nodiscard]] virtual FrontendId next_frontend() = 0;
    virtual void on_connected(FrontendId frontend) = 0;
    // The last call for that connection.
    virtual void on_disconnected(FrontendId frontend) = 0;
    // Everything but Refused, which the link handles. `began`: when the first byte of a batch
    // arrived.
    virtual void on_command(FrontendId frontend, BackendCommand&& command, Time began) = 0;
    // Memory of the gpulet's process for the input of a batch, of which only the message has
    // arrived; empty memory discards the input. No value: none is free, or it is not for such
    // memory.
    [[nodiscard]] virtual std::optional<MutableBytes> batch_memory(FrontendId frontend,
                                                                   const Batch& batch,
                                                                   std::size_t bytes) = 0;
    // Memory for these inputs, of which only the message has arrived; empty memory discards them.
    // No value: any memory.
    [[nodiscard]] virtual std::optional<MutableBytes> rows_memory(FrontendId frontend,
                                                                  const Rows& rows,
                                                                  std::size_t bytes) = 0;
  };

  struct Options {
    net::TlsContextPointer tls{};
    std::string node;          // this backend's name, for the log
    bool local_socket = true;  // takes the offer of a frontend of this machine
  };
  // The host outlives the link.
  FrontendLink(const net::asio::any_io_executor& executor, const config::Endpoint& frontend,
               Options options, Host& host);

  // Connects, and again whenever the connection ends, until stop().
  void start() { connect({}); }
  // Connects no more. The connection stays.
  void stop();
  // For the next connections.
  void use_tls(net::TlsContextPointer tls) { connector_.use_tls(std::move(tls)); }

  // Empty: not connected.
  [[nodiscard]] std::optional<FrontendId> connected() const;
  void send(protocol::OutgoingFrame frame);
  void close(const Status& reason);
  // Sends what is queued, then closes.
  void close_after_sending();

 private:
  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  void on_closed(const Status& reason) override;

  void connect(Duration min_delay);
  void on_connected(net::Stream stream);
  void on_unreachable(const Status& failure);
  void on_welcome(Welcome& welcome);
  void take(const LocalOffer& offer);
  void on_moved();
  [[nodiscard]] Status read_shared(Batch& batch);

  const net::asio::any_io_executor executor_;
  const std::string name_;
  const std::string node_;
  Host& host_;
  net::BufferPool buffers_;
  net::Connector connector_;
  ReconnectBackoff reconnect_;
  std::shared_ptr<net::Connection> connection_;
  FrontendId id_;  // of the connection
  protocol::FrameDecoder<BackendCommand> decoder_;
  bool welcomed_ = false;  // on this connection, and not refused since
  LocalChoice local_;
  std::optional<net::StreamSocket> local_socket_;  // open, until the frontend moves there
  std::shared_ptr<const net::SharedView> shared_;  // of this connection; null: inputs are received
  std::optional<Time> batch_began_;  // the first byte of the batch that is being received
  bool stopping_ = false;
};

}  // namespace gpulet::backend

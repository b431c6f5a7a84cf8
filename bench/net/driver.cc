#include "bench/net/driver.h"

#include <algorithm>
#include <boost/asio/write.hpp>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "gpulet/net/asio.h"

namespace gpulet::bench {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kBufferBytes = 1U << 18U;

class Session {
 public:
  Session(tcp::socket socket, std::uint32_t depth, Exchange& exchange, Record& record, Status& lost)
      : socket_(std::move(socket)),
        exchange_(exchange),
        record_(record),
        lost_(lost),
        slots_(depth),
        buffer_(kBufferBytes) {}

  void start() {
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
    socket_.close(ignored);
  }

  tcp::socket socket_;
  Exchange& exchange_;
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

}  // namespace

Result<DriveResult> drive(const DriveOptions& options, Exchange& exchange) {
  asio::io_context context(1);
  error_code error;
  const asio::ip::address address = asio::ip::make_address(options.host, error);
  if (error)
    return Status(StatusCode::invalid, "\"" + options.host + "\" is not a numeric address");

  const Clock::time_point measured_from = Clock::now() + options.warm_up;
  Record record(measured_from);
  Status lost;
  std::vector<std::unique_ptr<Session>> sessions;
  for (std::uint32_t i = 0; i < options.connections; ++i) {
    tcp::socket socket(context);
    socket.connect({address, options.port}, error);
    if (error)
      return Status(StatusCode::unavailable,
                    "connecting to " + options.host + " failed: " + error.message());
    socket.set_option(tcp::no_delay(true));
    sessions.push_back(
        std::make_unique<Session>(std::move(socket), options.depth, exchange, record, lost));
  }

  for (const auto& session : sessions) session->start();
  const Clock::time_point end = measured_from + options.duration;
  while (Clock::now() < end && lost.ok()) context.run_one_until(end);
  if (!lost.ok()) return lost;
  return record.summary(options.duration);
}

}  // namespace gpulet::bench

#include "bench/serve/crowd_clients.h"

#include <array>
#include <boost/asio/write.hpp>

namespace gpulet::bench {
namespace {

namespace asio = net::asio;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr auto kEverySecond = std::chrono::seconds(1);
constexpr auto kStep = std::chrono::milliseconds(100);
constexpr int kAskedAtOnce = 2000;  // by one that hardly reads

}  // namespace

std::string infer_request(const SiteModel& model) {
  const std::int64_t bytes = model.inputs.front().shape.front();
  const std::string json = R"({"inputs":[{"name":"x","datatype":"UINT8","shape":[1,)" +
                           std::to_string(bytes) + R"(],"parameters":{"binary_data_size":)" +
                           std::to_string(bytes) + "}}]}";
  const std::size_t length = json.size() + static_cast<std::size_t>(bytes);
  return "POST /v2/models/" + model.name +
         "/infer HTTP/1.1\r\nHost: crowd\r\nInference-Header-Content-Length: " +
         std::to_string(json.size()) + "\r\nContent-Length: " + std::to_string(length) +
         "\r\n\r\n" + json + std::string(static_cast<std::size_t>(bytes), 'x');
}

std::size_t length_of_answer(const std::string& text) {
  const std::size_t end = text.find("\r\n\r\n");
  if (end == std::string::npos) return 0;
  constexpr std::string_view kLength = "Content-Length: ";
  const std::size_t at = text.find(kLength);
  if (at == std::string::npos || at > end) return end + 4;
  return end + 4 + std::stoul(text.substr(at + kLength.size()));
}

asio::ip::tcp::socket connect_to(asio::io_context& io, std::uint16_t port) {
  asio::ip::tcp::socket socket(io);
  socket.connect({asio::ip::make_address("127.0.0.1"), port});
  socket.set_option(asio::ip::tcp::no_delay(true));
  return socket;
}

ActiveClient::ActiveClient(asio::io_context& io, const CrowdTarget& target, Books*& books)
    : socket_(connect_to(io, target.port)), timer_(io), target_(target), books_(books) {}

void ActiveClient::start(std::chrono::nanoseconds delay) {
  due_ = Clock::now() + delay;
  wait();
}

void ActiveClient::wait() {
  timer_.expires_at(due_);
  timer_.async_wait([this](const error_code& error) {
    if (!error) send();
  });
}

void ActiveClient::send() {
  ++books_->sent;
  asio::async_write(socket_, asio::buffer(target_.request),
                    [this](const error_code& error, std::size_t) {
                      if (error) return fail(error.message());
                      read();
                    });
}

void ActiveClient::read() {
  const std::size_t before = answer_.size();
  answer_.resize(before + 4096);
  socket_.async_read_some(
      asio::buffer(answer_.data() + before, 4096),
      [this, before](const error_code& error, std::size_t bytes) {
        answer_.resize(before + bytes);
        if (error) return fail(error.message());
        const std::size_t length = length_of_answer(answer_);
        if (length == 0 || answer_.size() < length) return read();
        if (answer_.starts_with("HTTP/1.1 200")) {
          ++books_->answered;
        } else {
          fail(answer_);
        }
        books_->latencies_ms.push_back(
            std::chrono::duration<double, std::milli>(Clock::now() - due_).count());
        answer_.erase(0, length);
        due_ += kEverySecond;
        wait();
      });
}

void ActiveClient::fail(const std::string& why) {
  if (books_->failed++ == 0) books_->first_failure = why;
}

SlowClient::SlowClient(asio::io_context& io, const CrowdTarget& target, Kind kind)
    : io_(io), timer_(io), target_(target), kind_(kind) {}

void SlowClient::start() {
  begin();
  go_on();
}

void SlowClient::begin() {
  socket_ = std::make_unique<asio::ip::tcp::socket>(connect_to(io_, target_.port));
  socket_->non_blocking(true);
  written_ = 0;
  if (kind_ != Kind::reader) return;
  std::string many;
  for (int i = 0; i < kAskedAtOnce; ++i) many += "GET /v2 HTTP/1.1\r\nHost: crowd\r\n\r\n";
  error_code ignored;
  socket_->write_some(asio::buffer(many), ignored);
}

void SlowClient::go_on() {
  timer_.expires_after(kStep);
  timer_.async_wait([this](const error_code& error) {
    if (error) return;
    step();
    go_on();
  });
}

void SlowClient::step() {
  error_code error;
  std::array<char, 64> some{};
  if (kind_ == Kind::writer) {
    // The last byte never comes: the request is never whole.
    if (written_ + 1 < target_.request.size())
      written_ += socket_->write_some(asio::buffer(&target_.request[written_], 1), error);
    if (!error) socket_->read_some(asio::buffer(some), error);
  } else {
    socket_->read_some(asio::buffer(some), error);
  }
  if (error && error != asio::error::would_block) begin();
}

}  // namespace gpulet::bench

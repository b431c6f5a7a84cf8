// A client that sends raw bytes to an HttpServer of the same thread and reads what comes back. For
// tests only.
#pragma once

#include <array>
#include <charconv>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gpulet/net/asio.h"
#include "gpulet/net/http/message.h"
#include "gpulet/net/stream.h"
#include "tests/net/loop.h"

namespace gpulet::net::http::testing {

struct Answer {
  unsigned status = 0;
  Headers headers;
  std::string body;

  [[nodiscard]] std::string_view header(std::string_view name) const {
    return find_header(headers, name);
  }
};

inline std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.view().data()), bytes.size()};
}

class Client {
 public:
  // With a context, under TLS.
  Client(net::testing::Loop& loop, std::uint16_t port, const TlsContextPointer& tls = {})
      : loop_(loop), state_(std::make_shared<State>(connected(loop, port, tls))) {
    state_->stream.prepare();
    read(state_);
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(std::string bytes) {
    state_->unsent = std::move(bytes);
    state_->sent = 0;
    // Later: what the server has to do meanwhile gets its turn.
    asio::post(loop_.executor(), [state = state_] { write(state); });
    // One write at a time: the next bytes must not come between these.
    (void)loop_.run_until([this] { return state_->unsent.empty() || state_->closed; });
  }
  // The next answer; nothing where none comes. To a HEAD: without a body.
  [[nodiscard]] std::optional<Answer> answer(bool to_head = false) {
    std::optional<Answer> whole;
    (void)loop_.run_until([&] {
      whole = parse(to_head);
      return whole || state_->closed;
    });
    return whole;
  }
  [[nodiscard]] std::optional<Answer> ask(std::string bytes) {
    send(std::move(bytes));
    return answer();
  }
  // Whether the server closes the connection, and sends nothing more before.
  [[nodiscard]] bool is_closed() {
    return loop_.run_until([this] { return state_->closed; }) && state_->received.empty();
  }
  [[nodiscard]] const std::string& received() const { return state_->received; }
  void clear() { state_->received.clear(); }
  void close() { state_->stream.close(); }
  // Sends nothing more, but reads on.
  void half_close() { state_->stream.shutdown_send(); }
  void stop_reading() { state_->reads = false; }
  // REQUIRES: something has come since stop_reading().
  void read_on() {
    state_->reads = true;
    read(state_);
  }

 private:
  struct State {
    explicit State(Stream connected) : stream(std::move(connected)) {}
    Stream stream;
    std::string received;
    std::string buffer = std::string(1U << 16U, '\0');
    std::string unsent;
    std::size_t sent = 0;  // of it
    bool closed = false;
    bool reads = true;
  };

  static Stream connected(net::testing::Loop& loop, std::uint16_t port,
                          const TlsContextPointer& tls) {
    asio::ip::tcp::socket socket(loop.context());
    socket.connect({asio::ip::address_v4::loopback(), port});
    return {StreamSocket(std::move(socket)), tls, "127.0.0.1"};
  }

  static void write(const std::shared_ptr<State>& state) {
    const std::array<asio::const_buffer, 1> rest{asio::buffer(state->unsent) + state->sent};
    boost::system::error_code error;
    state->sent += state->stream.write_some(rest, error);
    const bool failed = error && error != asio::error::would_block;
    if (failed || state->sent == state->unsent.size()) return state->unsent.clear();
    state->stream.async_wait_writable([state](const boost::system::error_code& waited) {
      if (waited) return state->unsent.clear();
      write(state);
    });
  }

  static void read(const std::shared_ptr<State>& state) {
    state->stream.async_read_some(
        asio::mutable_buffer(state->buffer.data(), state->buffer.size()),
        [state](const boost::system::error_code& error, std::size_t bytes) {
          state->received.append(state->buffer, 0, bytes);
          state->closed = static_cast<bool>(error);
          if (!error && state->reads) read(state);
        });
  }

  static std::optional<std::size_t> number(std::string_view text, int base) {
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc{} || end == text.data()) return std::nullopt;
    return value;
  }

  std::optional<Answer> parse(bool to_head) {
    const std::string& text = state_->received;
    const std::size_t head_end = text.find("\r\n\r\n");
    if (head_end == std::string::npos) return std::nullopt;
    Answer answer;
    answer.status = static_cast<unsigned>(number(text.substr(9, 3), 10).value_or(0));
    for (std::size_t at = text.find("\r\n"); at < head_end;) {
      const std::size_t begin = at + 2;
      at = text.find("\r\n", begin);
      const std::size_t colon = text.find(": ", begin);
      answer.headers.push_back(
          {text.substr(begin, colon - begin), text.substr(colon + 2, at - colon - 2)});
    }
    std::size_t end = head_end + 4;
    if (answer.header("Transfer-Encoding") == "chunked") {
      // Parsing a large answer after every read would take time in the square of its size.
      if (text.find("\r\n0\r\n\r\n", head_end) == std::string::npos) return std::nullopt;
      if (!parse_chunks(answer, end)) return std::nullopt;
    } else if (!to_head && answer.status >= 200) {
      const std::size_t length = number(answer.header("Content-Length"), 10).value_or(0);
      if (text.size() < end + length) return std::nullopt;
      answer.body = text.substr(end, length);
      end += length;
    }
    state_->received.erase(0, end);
    return answer;
  }

  bool parse_chunks(Answer& answer, std::size_t& at) const {
    const std::string& text = state_->received;
    for (;;) {
      const std::size_t line = text.find("\r\n", at);
      if (line == std::string::npos) return false;
      const std::size_t length = number(text.substr(at, line - at), 16).value_or(0);
      if (text.size() < line + 2 + length + 2) return false;
      answer.body += text.substr(line + 2, length);
      at = line + 2 + length + 2;
      if (length == 0) return true;
    }
  }

  net::testing::Loop& loop_;
  std::shared_ptr<State> state_;  // shared with its operations in flight
};

}  // namespace gpulet::net::http::testing

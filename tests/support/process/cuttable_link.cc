#include "tests/support/process/cuttable_link.h"

#include <array>
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "gpulet/net/asio.h"

namespace gpulet::testing {
namespace {

namespace asio = net::asio;
using asio::ip::tcp;
using boost::system::error_code;

}  // namespace

class CuttableLink::Impl {
 public:
  explicit Impl(std::uint16_t target_port)
      : target_(asio::ip::address_v4::loopback(), target_port),
        acceptor_(context_, tcp::endpoint(asio::ip::address_v4::loopback(), 0)),
        port_(acceptor_.local_endpoint().port()) {
    accept();
    thread_ = std::jthread([this] { context_.run(); });
  }

  ~Impl() {
    context_.stop();
    thread_.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::uint64_t received() const { return received_; }

  void silence() {
    asio::post(context_, [this] { silent_ = true; });
  }

  void heal() {
    asio::post(context_, [this] {
      silent_ = false;
      for (const auto& resume : std::exchange(parked_, {})) resume();
    });
  }

  void break_all() {
    asio::post(context_, [this] {
      for (const auto& weak : pairs_) {
        if (const auto pair = weak.lock()) pair->close();
      }
      pairs_.clear();
    });
  }

 private:
  struct Pair {
    explicit Pair(tcp::socket accepted) : near(std::move(accepted)), far(near.get_executor()) {}
    void close() {
      error_code ignored;
      near.close(ignored);
      far.close(ignored);
    }
    tcp::socket near;
    tcp::socket far;
    std::array<std::byte, 64UL << 10U> outwards{};
    std::array<std::byte, 64UL << 10U> inwards{};
  };
  using SharedPair = std::shared_ptr<Pair>;

  // Passed on only while the link is not cut.
  void when_whole(std::function<void()> what) {
    if (silent_) {
      parked_.push_back(std::move(what));
    } else {
      what();
    }
  }

  void accept() {
    acceptor_.async_accept([this](const error_code& error, tcp::socket socket) {
      if (!error) {
        const auto pair = std::make_shared<Pair>(std::move(socket));
        std::erase_if(pairs_, [](const auto& weak) { return weak.expired(); });
        pairs_.push_back(pair);
        when_whole([this, pair] { connect(pair); });
      }
      accept();
    });
  }

  void connect(const SharedPair& pair) {
    pair->far.async_connect(target_, [this, pair](const error_code& error) {
      if (error) return pair->close();
      error_code ignored;
      pair->near.set_option(tcp::no_delay(true), ignored);
      pair->far.set_option(tcp::no_delay(true), ignored);
      pass(pair, pair->near, pair->far, pair->outwards);
      pass(pair, pair->far, pair->near, pair->inwards);
    });
  }

  void pass(const SharedPair& pair, tcp::socket& from, tcp::socket& to,
            std::array<std::byte, 64UL << 10U>& buffer) {
    from.async_read_some(asio::buffer(buffer), [this, pair, &from, &to, &buffer](
                                                   const error_code& error, std::size_t bytes) {
      received_ += bytes;
      when_whole([this, pair, &from, &to, &buffer, error, bytes] {
        if (error) return pair->close();
        asio::async_write(
            to, asio::buffer(buffer.data(), bytes),
            [this, pair, &from, &to, &buffer](const error_code& failure, std::size_t /*written*/) {
              if (failure) return pair->close();
              pass(pair, from, to, buffer);
            });
      });
    });
  }

  asio::io_context context_{1};
  tcp::endpoint target_;
  tcp::acceptor acceptor_;
  std::uint16_t port_;
  bool silent_ = false;
  std::atomic<std::uint64_t> received_ = 0;
  std::vector<std::function<void()>> parked_;
  std::vector<std::weak_ptr<Pair>> pairs_;
  std::jthread thread_;
};

CuttableLink::CuttableLink(std::uint16_t target_port)
    : impl_(std::make_unique<Impl>(target_port)) {}
CuttableLink::~CuttableLink() = default;
std::uint16_t CuttableLink::port() const { return impl_->port(); }
std::uint64_t CuttableLink::received() const { return impl_->received(); }
void CuttableLink::silence() { impl_->silence(); }
void CuttableLink::heal() { impl_->heal(); }
void CuttableLink::break_all() { impl_->break_all(); }

}  // namespace gpulet::testing

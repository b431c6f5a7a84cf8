#include "bench/serve/http_crowd.h"

#include <algorithm>
#include <boost/asio/write.hpp>
#include <chrono>
#include <string_view>

#include "gpulet/base/random.h"

namespace gpulet::bench {
namespace {

namespace asio = net::asio;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr Duration kReconnectPause = std::chrono::milliseconds(100);
constexpr std::size_t kPiece = 4096;
constexpr std::string_view kStatusLine = "HTTP/1.1 ";

}  // namespace

class HttpCrowd::Impl {
 public:
  Impl(asio::io_context& io, const CrowdTarget& target, std::uint32_t connections,
       std::uint64_t seed)
      : io_(io), target_(target), start_(Clock::now()) {
    for (std::uint32_t i = 0; i < connections; ++i)
      clients_.push_back(std::make_unique<Client>(*this, i, stream_seed(seed, std::to_string(i))));
  }

  void set_rate(double per_second) {
    closed_ = false;
    mean_pause_s_ = per_second > 0 ? static_cast<double>(clients_.size()) / per_second : 0;
    for (const auto& client : clients_) client->begin();
  }
  void set_closed() {
    closed_ = true;
    for (const auto& client : clients_) client->begin();
  }

  [[nodiscard]] Duration elapsed() const { return Clock::now() - start_; }
  [[nodiscard]] const std::vector<CrowdAnswer>& answers() const { return answers_; }
  [[nodiscard]] std::uint64_t reconnected() const { return reconnected_; }

 private:
  class Client {
   public:
    Client(Impl& crowd, std::uint32_t number, std::uint64_t seed)
        : crowd_(crowd),
          number_(number),
          random_(seed),
          socket_(connect_to(crowd.io_, crowd.target_.port)),
          timer_(crowd.io_) {}

    // The rate changed: what was due by the old one is void.
    void begin() {
      due_ = crowd_.elapsed();
      if (!crowd_.closed_) advance();
      if (!busy_) wait();
    }

   private:
    // A Poisson process has no memory.
    void advance() {
      due_ = crowd_.mean_pause_s_ > 0
                 ? due_ + from_seconds(random_.exponential(crowd_.mean_pause_s_))
                 : Duration::max();
    }

    void wait() {
      timer_.cancel();
      if (due_ == Duration::max()) return;
      timer_.expires_at(crowd_.start_ + due_);
      timer_.async_wait([this](const error_code& error) {
        if (!error && !busy_) send();
      });
    }

    void send() {
      busy_ = true;
      asked_for_ = std::max(due_, free_since_);
      asio::async_write(socket_, asio::buffer(crowd_.target_.request),
                        [this](const error_code& error, std::size_t) {
                          if (error) return lose();
                          read();
                        });
    }

    void read() {
      const std::size_t before = text_.size();
      text_.resize(before + kPiece);
      socket_.async_read_some(asio::buffer(text_.data() + before, kPiece),
                              [this, before](const error_code& error, std::size_t bytes) {
                                text_.resize(before + bytes);
                                if (error) return lose();
                                const std::size_t length = length_of_answer(text_);
                                if (length == 0 || text_.size() < length) return read();
                                const bool last = text_.find("Connection: close") < length;
                                note(status_of(text_));
                                text_.erase(0, length);
                                last ? reconnect() : go_on();
                              });
    }

    static std::uint32_t status_of(const std::string& text) {
      if (!text.starts_with(kStatusLine)) return 0;
      return static_cast<std::uint32_t>(std::strtoul(&text[kStatusLine.size()], nullptr, 10));
    }

    void note(std::uint32_t status) {
      crowd_.answers_.push_back({asked_for_, crowd_.elapsed() - asked_for_, number_, status});
    }

    void go_on() {
      busy_ = false;
      free_since_ = crowd_.elapsed();
      if (crowd_.closed_) {
        due_ = crowd_.elapsed();
      } else if (due_ <= asked_for_) {
        advance();
      }
      wait();
    }

    void lose() {
      note(0);
      reconnect();
    }

    void reconnect() {
      ++crowd_.reconnected_;
      text_.clear();
      error_code ignored;
      socket_.close(ignored);
      timer_.expires_after(kReconnectPause);
      timer_.async_wait([this](const error_code& error) {
        if (error) return;
        socket_.async_connect(
            {asio::ip::address_v4::loopback(), crowd_.target_.port},
            [this](const error_code& failure) { failure ? reconnect() : go_on(); });
      });
    }

    Impl& crowd_;
    const std::uint32_t number_;
    Random random_;
    asio::ip::tcp::socket socket_;
    asio::steady_timer timer_;
    bool busy_ = false;  // a request is under way, or there is no connection
    Duration due_ = Duration::max();
    Duration free_since_{};  // nothing was under way from then on
    Duration asked_for_{};   // when what is under way could be sent
    std::string text_;
  };

  asio::io_context& io_;
  const CrowdTarget& target_;
  const Clock::time_point start_;
  bool closed_ = false;
  double mean_pause_s_ = 0;  // of one connection
  std::vector<CrowdAnswer> answers_;
  std::uint64_t reconnected_ = 0;
  std::vector<std::unique_ptr<Client>> clients_;
};

HttpCrowd::HttpCrowd(asio::io_context& io, const CrowdTarget& target, std::uint32_t connections,
                     std::uint64_t seed)
    : impl_(std::make_unique<Impl>(io, target, connections, seed)) {}
HttpCrowd::~HttpCrowd() = default;

void HttpCrowd::set_rate(double per_second) { impl_->set_rate(per_second); }
void HttpCrowd::set_closed() { impl_->set_closed(); }
Duration HttpCrowd::elapsed() const { return impl_->elapsed(); }
const std::vector<CrowdAnswer>& HttpCrowd::answers() const { return impl_->answers(); }
std::uint64_t HttpCrowd::reconnected() const { return impl_->reconnected(); }

}  // namespace gpulet::bench

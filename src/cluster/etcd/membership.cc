#include "gpulet/cluster/etcd/membership.h"

#include <fmt/format.h>

#include <random>
#include <utility>

#include "cluster/etcd/client.h"
#include "cluster/session.h"
#include "gpulet/net/event_loop.h"

namespace gpulet::cluster {
namespace {

std::uint64_t draw() {
  std::random_device device;
  return (std::uint64_t{device()} << 32U) | device();
}

// 256 bits, as hexadecimal digits.
std::string draw_secret() {
  constexpr int kNumbers = 4;
  std::string secret;
  for (int i = 0; i < kNumbers; ++i) secret += fmt::format("{:016x}", draw());
  return secret;
}

SessionOptions session_options(const EtcdOptions& options) {
  SessionOptions session;
  session.cluster = options.cluster;
  session.self = options.self;
  session.self.secret = draw_secret();
  session.incarnation = std::to_string(draw());
  session.endpoints = options.endpoints.size();
  session.logs_in = !options.user.empty();
  session.lease = options.lease;
  session.seed = draw();
  return session;
}

class EtcdMembership : public Membership {
 public:
  EtcdMembership(net::asio::io_context& io, const EtcdOptions& options)
      : io_(io),
        session_(session_options(options)),
        timer_(io),
        leave_deadline_(io),
        client_(options, [this, executor = io.get_executor(),
                          alive = std::weak_ptr<bool>(alive_)](EtcdClient::Ended ended) {
          net::asio::post(executor, [this, alive, ended = std::move(ended)]() mutable {
            if (alive.expired()) return;
            std::visit([this](auto& one) { session_.on(std::move(one), net::now()); }, ended);
            follow_session();
          });
        }) {}

  void start(std::function<void(const MembershipEvent&)> on_event) override {
    on_event_ = std::move(on_event);
    net::asio::post(io_, [this, alive = std::weak_ptr<bool>(alive_)] {
      if (alive.expired()) return;
      session_.advance(net::now());
      follow_session();
    });
  }

  void on_term(Term term) override {
    session_.on_term(term, net::now());
    follow_session();
  }

  void resign() override {
    session_.resign(net::now());
    follow_session();
  }

  void leave(std::function<void()> done) override {
    constexpr Duration kPatience = std::chrono::seconds(2);
    on_left_ = std::move(done);
    leave_deadline_.set_after(kPatience, [this] { finish_leaving(); });
    session_.leave(net::now());
    follow_session();
  }

 private:
  // Starts the session's calls, passes on its events, and sets the timer.
  void follow_session() {
    for (const Call& call : session_.take_calls()) client_.start(call);
    for (const MembershipEvent& event : session_.take_events()) {
      net::asio::post(io_, [this, event, alive = std::weak_ptr<bool>(alive_)] {
        if (!alive.expired() && on_event_ != nullptr) on_event_(event);
      });
    }
    if (session_.left()) return finish_leaving();
    const Time wake = session_.next_wake();
    if (wake == kNever) return timer_.cancel();
    timer_.set(wake, [this] {
      session_.advance(net::now());
      follow_session();
    });
  }

  void finish_leaving() {
    timer_.cancel();
    leave_deadline_.cancel();
    if (on_left_ == nullptr) return;
    net::asio::post(io_, std::exchange(on_left_, nullptr));
  }

  net::asio::io_context& io_;
  Session session_;
  std::function<void(const MembershipEvent&)> on_event_;
  std::function<void()> on_left_;
  net::Alarm timer_;
  net::Alarm leave_deadline_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for posted handlers
  EtcdClient client_;  // last: its callback uses the others
};

}  // namespace

std::unique_ptr<Membership> make_etcd_membership(net::asio::io_context& io, EtcdOptions options) {
  return std::make_unique<EtcdMembership>(io, options);
}

}  // namespace gpulet::cluster

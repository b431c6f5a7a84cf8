#include "tests/support/process/cuttable_link.h"

#include <array>
#include <boost/asio/write.hpp>
#include <cstddef>
#include <utility>

#include "tests/support/process/process.h"

namespace gpulet::testing {
namespace {

namespace asio = net::asio;
using asio::ip::tcp;

}  // namespace

// One connection on either side. It keeps the bytes that it has read while the link is cut.
class CuttableLink::Relay : public std::enable_shared_from_this<Relay> {
 public:
  Relay(CuttableLink& link, tcp::socket near)
      : link_(link), near_(std::move(near)), far_(link.io_) {}

  void start() {
    if (link_.cut_) return;
    far_.async_connect({asio::ip::address_v4::loopback(), link_.target_},
                       [self = shared_from_this()](const boost::system::error_code& error) {
                         if (error) return self->end();
                         self->pump(self->near_, self->far_, self->to_far_);
                         self->pump(self->far_, self->near_, self->to_near_);
                       });
  }
  void end() {
    boost::system::error_code ignored;
    near_.close(ignored);
    far_.close(ignored);
    link_.relays_.erase(shared_from_this());
  }

 private:
  using Buffer = std::array<std::byte, std::size_t{64} << 10U>;

  void pump(tcp::socket& from, tcp::socket& to, Buffer& buffer) {
    from.async_read_some(
        asio::buffer(buffer), [self = shared_from_this(), &from, &to, &buffer](
                                  const boost::system::error_code& error, std::size_t bytes) {
          if (self->link_.cut_) return;
          if (error) return self->end();
          asio::async_write(to, asio::buffer(buffer, bytes),
                            [self, &from, &to, &buffer](const boost::system::error_code& failed,
                                                        std::size_t /*written*/) {
                              if (failed) return self->end();
                              self->pump(from, to, buffer);
                            });
        });
  }

  CuttableLink& link_;
  tcp::socket near_;
  tcp::socket far_;
  Buffer to_far_{};
  Buffer to_near_{};
};

CuttableLink::CuttableLink(std::uint16_t target) : target_(target), port_(free_port()) {
  const tcp::endpoint here(asio::ip::address_v4::loopback(), port_);
  acceptor_.open(here.protocol());
  acceptor_.set_option(tcp::acceptor::reuse_address(true));
  acceptor_.bind(here);
  acceptor_.listen();
  accept();
  thread_ = std::thread([this] { io_.run(); });
}

CuttableLink::~CuttableLink() {
  io_.stop();
  thread_.join();
}

void CuttableLink::accept() {
  acceptor_.async_accept([this](const boost::system::error_code& error, tcp::socket near) {
    if (error) return;
    const auto relay = std::make_shared<Relay>(*this, std::move(near));
    relays_.insert(relay);
    relay->start();
    accept();
  });
}

void CuttableLink::cut() {
  asio::post(io_, [this] { cut_ = true; });
}

void CuttableLink::restore() {
  asio::post(io_, [this] {
    cut_ = false;
    for (const auto& relay : std::set(relays_)) relay->end();
  });
}

}  // namespace gpulet::testing

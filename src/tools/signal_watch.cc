#include "tools/signal_watch.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <deque>

namespace gpulet::tools {

namespace asio = boost::asio;

struct SignalWatch::Impl {
  asio::io_context context{1};
  asio::signal_set signals{context};
  std::deque<int> caught;

  void wait() {
    signals.async_wait([this](const boost::system::error_code& error, int signal) {
      if (error) return;
      caught.push_back(signal);
      wait();
    });
  }
};

SignalWatch::SignalWatch(std::initializer_list<int> signals) : impl_(std::make_unique<Impl>()) {
  for (const int signal : signals) impl_->signals.add(signal);
  impl_->wait();
}

SignalWatch::~SignalWatch() = default;

std::optional<int> SignalWatch::take() {
  impl_->context.poll();
  if (impl_->caught.empty()) return std::nullopt;
  const int signal = impl_->caught.front();
  impl_->caught.pop_front();
  return signal;
}

}  // namespace gpulet::tools

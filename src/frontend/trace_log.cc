#include "trace_log.h"

#include <algorithm>
#include <utility>

namespace gpulet::frontend {

void TraceLog::add(observe::RequestTraceRecord record) {
  if (records_.size() == kMostRecords) records_.pop_front();
  records_.push_back(std::move(record));
  ++added_;
}

void TraceLog::collect(Duration length, OnRecords done) {
  const std::size_t before = length > Duration::zero() ? added_ : 0;
  const auto timer = std::make_shared<net::asio::steady_timer>(io_);
  timer->expires_after(length);
  timer->async_wait(
      [this, timer, before, done = std::move(done)](const boost::system::error_code& error) {
        if (error) return;
        const std::size_t wanted = std::min(added_ - before, records_.size());
        done(Records(records_.end() - static_cast<std::ptrdiff_t>(wanted), records_.end()));
      });
}

}  // namespace gpulet::frontend

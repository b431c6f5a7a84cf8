#include "background.h"

#include <sys/resource.h>
#include <unistd.h>

namespace gpulet::frontend {
namespace {

constexpr int kNiceness = 10;

}  // namespace

Background::Background(net::asio::io_context& io) : io_(io) {
  // Of the calling thread alone, on Linux. Without it the work is done as well.
  net::asio::post(*thread_, [] {
    [[maybe_unused]] const int ignored =
        ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNiceness);
  });
}

Background::~Background() {
  thread_->stop();
  thread_->join();
}

}  // namespace gpulet::frontend

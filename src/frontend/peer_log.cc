#include "peer_log.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "gpulet/net/clock.h"

namespace gpulet::frontend {
namespace {

constexpr auto kBetweenCounts = std::chrono::seconds(10);

void tell_count(std::string_view address, std::string_view kind, std::uint64_t count) {
  spdlog::warn("{} more of kind {} from {} were not logged", count, kind,
               address.empty() ? "others" : address);
}

}  // namespace

bool PeerLog::tell(std::string_view address, std::string_view kind) {
  const auto before = limiter_.tell(address, kind, net::now());
  if (!before) {
    settle_later();
    return false;
  }
  if (*before > 0) tell_count(address, kind, *before);
  return true;
}

void PeerLog::warn(std::string_view address, std::string_view kind, const std::string& text) {
  if (tell(address, kind)) spdlog::warn("{}", text);
}

void PeerLog::info(std::string_view address, std::string_view kind, const std::string& text) {
  if (tell(address, kind)) spdlog::info("{}", text);
}

void PeerLog::stop() {
  stopped_ = true;
  timer_.cancel();
}

void PeerLog::settle_later() {
  if (stopped_ || std::exchange(waits_, true)) return;
  timer_.set_after(kBetweenCounts, [this] {
    waits_ = false;
    for (const auto& untold : limiter_.settle(net::now()))
      tell_count(untold.peer, untold.kind, untold.count);
    if (limiter_.holds_untold()) settle_later();
  });
}

}  // namespace gpulet::frontend

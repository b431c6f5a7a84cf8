#include "frontend/frames/peer_log.h"

#include <spdlog/spdlog.h>

#include <cstdint>
#include <utility>

namespace gpulet::frontend {
namespace {

constexpr auto kFlushInterval = std::chrono::seconds(10);

void log_suppressed(std::string_view address, std::string_view kind, std::uint64_t count) {
  spdlog::warn("{} more lines of kind {} from {} were suppressed", count, kind,
               address.empty() ? "others" : address);
}

}  // namespace

bool PeerLog::admit(std::string_view address, std::string_view kind) {
  const auto before = limiter_.admit(address, kind, net::now());
  if (!before) {
    schedule_flush();
    return false;
  }
  if (*before > 0) log_suppressed(address, kind, *before);
  return true;
}

void PeerLog::warn(std::string_view address, std::string_view kind, const std::string& text) {
  if (admit(address, kind)) spdlog::warn("{}", text);
}

void PeerLog::info(std::string_view address, std::string_view kind, const std::string& text) {
  if (admit(address, kind)) spdlog::info("{}", text);
}

void PeerLog::stop() {
  stopped_ = true;
  timer_.cancel();
}

void PeerLog::schedule_flush() {
  if (stopped_ || std::exchange(flush_scheduled_, true)) return;
  timer_.set_after(kFlushInterval, [this] {
    flush_scheduled_ = false;
    for (const auto& untold : limiter_.take_suppressed(net::now()))
      log_suppressed(untold.peer, untold.kind, untold.count);
    if (limiter_.has_suppressed()) schedule_flush();
  });
}

}  // namespace gpulet::frontend

// FileWatch: tells when files in some folders were written, replaced or removed (inotify). What is
// still being written is not told of; several changes at once are told of once, when they have
// settled. Whatever it cannot watch, it leaves out. One thread: the one that runs the io_context.
#pragma once

#include <sys/inotify.h>

#include <array>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/net/alarm.h"
#include "gpulet/net/asio.h"

namespace gpulet::frontend {

class FileWatch {
 public:
  // By folder: the names that count; none: whatever is in it.
  using Folders = std::map<std::filesystem::path, std::set<std::string>>;

  FileWatch(net::asio::io_context& io, std::function<void()> changed);
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

  // These in place of those before. Fails (unavailable) where the system has no watches left.
  [[nodiscard]] Status watch(const Folders& folders);
  void stop();

 private:
  void read();
  void take_in(std::size_t bytes);
  [[nodiscard]] bool counts(const inotify_event& event, const std::string& name) const;
  void settle();

  std::function<void()> changed_;
  net::asio::posix::stream_descriptor events_;
  net::Alarm settled_;
  bool settling_ = false;
  Time first_change_{};
  alignas(inotify_event) std::array<char, 16384> buffer_{};
  Folders folders_;
  std::map<int, std::filesystem::path> watches_;  // by inotify's number
};

}  // namespace gpulet::frontend

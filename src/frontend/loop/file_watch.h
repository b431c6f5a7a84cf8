// FileWatch: reports when files in some folders were written, replaced or removed (inotify). Files
// that are still open for writing are not reported. Changes in quick succession cause one report,
// after they have settled. One thread: the thread of the io_context.
#pragma once

#include <sys/inotify.h>

#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/event_loop.h"

namespace gpulet::frontend {

// What is read again after a change.
class Reloadable {
 public:
  virtual void reload() = 0;

 protected:
  ~Reloadable() = default;
};

class FileWatch {
 public:
  // Folder -> names of the files to watch. An empty set means every file.
  using Folders = std::map<std::filesystem::path, std::set<std::string>>;

  // `target` must outlive this object.
  FileWatch(net::asio::io_context& io, Reloadable& target);
  FileWatch(const FileWatch&) = delete;
  FileWatch& operator=(const FileWatch&) = delete;

  // Replaces the watched folders; skips unreadable ones. Fails with unavailable without watches.
  [[nodiscard]] Status watch(const Folders& folders);
  void stop();

 private:
  void read();
  void handle(std::size_t bytes);
  [[nodiscard]] bool matters(const inotify_event& event, const std::string& name) const;
  void report_when_settled();

  Reloadable& target_;
  net::asio::posix::stream_descriptor events_;
  net::Alarm settled_;
  bool settling_ = false;
  Time first_change_{};
  alignas(inotify_event) std::array<char, 16384> buffer_{};
  Folders folders_;
  std::map<int, std::filesystem::path> watches_;  // by watch descriptor
};

}  // namespace gpulet::frontend

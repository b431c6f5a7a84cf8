#include "frontend/loop/file_watch.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace gpulet::frontend {
namespace {

namespace asio = net::asio;

// A change is reported once no other change followed for kQuiet, and after kMaxDelay at the latest.
constexpr auto kQuiet = std::chrono::milliseconds(150);
constexpr auto kMaxDelay = std::chrono::seconds(2);

constexpr std::uint32_t kWatched = IN_CLOSE_WRITE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE |
                                   IN_CREATE | IN_DELETE_SELF | IN_MOVE_SELF;

}  // namespace

FileWatch::FileWatch(asio::io_context& io, Reloadable& target)
    : target_(target), events_(io), settled_(io) {}

Status FileWatch::watch(const Folders& folders) {
  if (!events_.is_open()) {
    const int descriptor = ::inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (descriptor < 0) {
      return {StatusCode::unavailable,
              std::string("files cannot be watched: ") + std::strerror(errno)};
    }
    events_.assign(descriptor);
    read();
  }
  std::set<int> current;
  for (const auto& [folder, names] : folders) {
    const int number = ::inotify_add_watch(events_.native_handle(), folder.c_str(), kWatched);
    if (number < 0 && errno == ENOSPC) {
      return {StatusCode::unavailable, folder.string() +
                                           " cannot be watched: the system has no watches left; "
                                           "raise fs.inotify.max_user_watches"};
    }
    if (number < 0) continue;
    watches_[number] = folder;
    current.insert(number);
  }
  std::erase_if(watches_, [&](const auto& entry) {
    const bool obsolete = !current.contains(entry.first);
    if (obsolete) ::inotify_rm_watch(events_.native_handle(), entry.first);
    return obsolete;
  });
  folders_ = folders;
  return {};
}

void FileWatch::stop() {
  boost::system::error_code ignored;
  events_.close(ignored);
  settled_.cancel();
}

void FileWatch::read() {
  events_.async_read_some(asio::buffer(buffer_),
                          [this](const boost::system::error_code& error, std::size_t bytes) {
                            if (error) return;
                            handle(bytes);
                            read();
                          });
}

// A new file counts when it is closed after writing; a new link or folder counts at once.
bool FileWatch::matters(const inotify_event& event, const std::string& name) const {
  if ((event.mask & IN_Q_OVERFLOW) != 0) return true;
  const auto watch = watches_.find(event.wd);
  if (watch == watches_.end()) return false;
  const std::set<std::string>& names = folders_.at(watch->second);
  if (!name.empty() && !names.empty() && !names.contains(name)) return false;
  if ((event.mask & IN_CREATE) == 0) return true;
  std::error_code error;
  return (event.mask & IN_ISDIR) != 0 ||
         std::filesystem::is_symlink(std::filesystem::symlink_status(watch->second / name, error));
}

void FileWatch::handle(std::size_t bytes) {
  bool changed = false;
  for (std::size_t at = 0; at + sizeof(inotify_event) <= bytes;) {
    inotify_event event{};
    std::memcpy(&event, buffer_.data() + at, sizeof(event));
    const char* const text = buffer_.data() + at + sizeof(event);
    const std::string name(text, ::strnlen(text, event.len));
    changed = matters(event, name) || changed;
    if ((event.mask & IN_IGNORED) != 0) watches_.erase(event.wd);
    at += sizeof(event) + event.len;
  }
  if (changed) report_when_settled();
}

void FileWatch::report_when_settled() {
  const Time now = net::now();
  if (!std::exchange(settling_, true)) first_change_ = now;
  const Time due = std::min(now + kQuiet, first_change_ + kMaxDelay);
  settled_.set(due, [this] {
    settling_ = false;
    target_.reload();
  });
}

}  // namespace gpulet::frontend

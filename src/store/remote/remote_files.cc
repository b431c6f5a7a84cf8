#include "gpulet/store/remote/remote_files.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "store/remote/fetch_schedule.h"
#include "store/remote/object_fetch.h"

namespace gpulet::store::remote {
namespace {

constexpr std::size_t kThreads = 4;
constexpr std::size_t kMostPerOrigin = 2;
constexpr Duration kReportEvery = std::chrono::milliseconds(500);
constexpr std::uint64_t kBytesInMegabyte = 1U << 20U;
constexpr auto kForgetAfter = std::chrono::hours(24 * 30);

Time now() { return Time(std::chrono::steady_clock::now().time_since_epoch()); }

std::string progress_text(std::uint64_t bytes, std::optional<std::uint64_t> total) {
  constexpr double kWhole = 100;
  if (!total || *total == 0) return fmt::format("fetching, {} MB", bytes / kBytesInMegabyte);
  const double part = static_cast<double>(bytes) / static_cast<double>(*total);
  return fmt::format("fetching, {} %", static_cast<int>(kWhole * std::min(part, 1.0)));
}

}  // namespace

struct RemoteFiles::Entry {
  Entry(config::RemoteFile wanted, const FetchTimes& times)
      : file(std::move(wanted)), schedule(times) {}

  const config::RemoteFile file;
  std::atomic<bool> cancelled = false;
  // The rest is guarded by mutex_.
  FetchSchedule schedule;
  RemoteState state;
  bool running = false;
  bool look_again = false;  // asked for while it was running
};

struct RemoteFiles::Cache {
  Cache(ModelStore opened, const std::filesystem::path& directory)
      : store(std::move(opened)), folder(directory) {}
  SharedStore store;
  CacheFolder folder;
};

RemoteFiles::RemoteFiles(RemoteFilesOptions options) : options_(std::move(options)) {}

RemoteFiles::~RemoteFiles() {
  stop();
  for (std::thread& thread : threads_) thread.join();
}

void RemoteFiles::start(std::function<void()> changed) {
  {
    const std::lock_guard lock(telling_);
    changed_ = std::move(changed);
  }
  // Without a wanted file they sleep.
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads_.emplace_back([this] {
      (void)::pthread_setname_np(::pthread_self(), "remote-files");
      work();
    });
  }
}

void RemoteFiles::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& [key, entry] : entries_) entry->cancelled = true;
  }
  wake_.notify_all();
  const std::lock_guard lock(telling_);
  changed_ = nullptr;
}

Result<std::shared_ptr<RemoteFiles::Cache>> RemoteFiles::open_cache() const {
  const std::filesystem::path& folder = options_.stores.cache;
  if (folder.empty()) {
    return Status(StatusCode::unavailable,
                  "there is no folder for model files of stores; set \"cache\" of "
                  "\"remote_stores\"");
  }
  ModelStoreOptions options;
  if (options_.stores.cache_mb > 0)
    options.max_bytes = std::uint64_t{options_.stores.cache_mb} * kBytesInMegabyte;
  Result<ModelStore> opened = ModelStore::open(folder, std::move(options));
  if (!opened.ok()) return opened.status().within("remote_stores");
  return std::make_shared<Cache>(std::move(opened).value(), folder);
}

std::shared_ptr<RemoteFiles::Entry> RemoteFiles::make_entry(const config::RemoteFile& file,
                                                            const std::string& key,
                                                            Cache* cache) const {
  auto entry = std::make_shared<Entry>(
      file,
      FetchTimes{options_.stores.poll, options_.stores.first_retry, options_.stores.longest_retry});
  entry->state.text = "waits to be fetched";
  if (cache == nullptr) return entry;
  const std::string stored = file.sha256.empty() ? cache->folder.read(key).sha256 : file.sha256;
  if (const auto path = cache->store.use(stored)) entry->state = {stored, *path};
  return entry;
}

// The lock is never held during file I/O: the event loop takes it, too.
void RemoteFiles::want(const std::vector<config::RemoteFile>& files,
                       const std::set<std::string, std::less<>>& used) {
  Entries known;
  std::shared_ptr<Cache> cache;
  {
    const std::lock_guard lock(mutex_);
    known = entries_;
    cache = cache_;
  }
  const bool opens = cache == nullptr && !files.empty();
  Status failure;
  if (opens) {
    Result<std::shared_ptr<Cache>> opened = open_cache();
    failure = opened.status();
    if (opened.ok()) cache = std::move(opened).value();
  }
  Entries entries;
  std::set<std::string> keys;
  for (const config::RemoteFile& file : files) {
    const std::string key = CacheFolder::key_of(file);
    if (!keys.insert(key).second) continue;
    const auto before = known.find(key);
    entries.emplace(key,
                    before != known.end() ? before->second : make_entry(file, key, cache.get()));
  }
  std::set<std::string, std::less<>> kept = used;
  {
    const std::lock_guard lock(mutex_);
    cache_ = cache;
    entries_ = entries;
    for (const auto& [key, entry] : known)
      if (!entries.contains(key)) entry->cancelled = true;
    for (const auto& [key, entry] : entries) {
      if (!failure.ok()) {
        entry->state.failed = true;
        entry->state.text = failure.message();
      }
      kept.insert(entry->state.sha256);
    }
  }
  wake_.notify_all();
  if (cache == nullptr) return;
  cache->store.keep_only(kept);
  if (opens) cache->folder.sweep(keys, kForgetAfter);
}

RemoteState RemoteFiles::state(const config::RemoteFile& file) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(CacheFolder::key_of(file));
  return found == entries_.end() ? RemoteState() : found->second->state;
}

void RemoteFiles::look_now(const config::RemoteFile& file) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(CacheFolder::key_of(file));
  if (found == entries_.end()) return;
  found->second->schedule.soon(now());
  found->second->look_again = found->second->running;
  wake_.notify_all();
}

void RemoteFiles::report() {
  const std::lock_guard lock(mutex_);
  report_ = true;
  wake_.notify_one();
}

void RemoteFiles::tell() {
  const std::lock_guard lock(telling_);
  if (changed_) changed_();
}

std::shared_ptr<RemoteFiles::Entry> RemoteFiles::next(std::unique_lock<std::mutex>& lock) {
  while (!stopping_) {
    if (std::exchange(report_, false)) {
      lock.unlock();
      tell();
      lock.lock();
      continue;
    }
    std::vector<std::shared_ptr<Entry>> entries;
    std::vector<WaitingFetch> fetches;
    Time first = kNever;
    const Time at = now();
    for (const auto& [key, entry] : entries_) {
      if (cache_ == nullptr) break;
      entries.push_back(entry);
      fetches.push_back({entry->schedule.due(), entry->file.url.origin(), entry->running});
      // Those that are due already wait for the end of another one.
      if (!entry->running && entry->schedule.due() > at)
        first = std::min(first, entry->schedule.due());
    }
    if (const auto chosen = choose_fetch(fetches, kMostPerOrigin, at)) {
      entries[*chosen]->running = true;
      return entries[*chosen];
    }
    if (first == kNever) {
      wake_.wait(lock);
    } else {
      wake_.wait_for(lock, first - at);
    }
  }
  return nullptr;
}

void RemoteFiles::work() {
  std::unique_lock lock(mutex_);
  while (const std::shared_ptr<Entry> entry = next(lock)) {
    lock.unlock();
    fetch(entry);
    tell();
    lock.lock();
    wake_.notify_all();  // another of the same origin may begin
  }
}

void RemoteFiles::fetch(const std::shared_ptr<Entry>& entry) {
  std::shared_ptr<Cache> cache;
  {
    const std::lock_guard lock(mutex_);
    cache = cache_;
  }
  const config::RemoteStoresConfig& stores = options_.stores;
  FetchLimits limits{
      {stores.connect, stores.fetch, stores.min_bytes_per_second, stores.stall, stores.authority},
      std::uint64_t{stores.largest_file_mb} * kBytesInMegabyte,
      stores.redirects};
  Time told = now() - kReportEvery;
  const auto progress = [&](std::uint64_t bytes, std::optional<std::uint64_t> total) {
    if (now() - told < kReportEvery) return;
    told = now();
    {
      const std::lock_guard lock(mutex_);
      entry->state.failed = false;
      entry->state.text = progress_text(bytes, total);
    }
    tell();
  };
  const FetchContext context{cache->store,
                             cache->folder,
                             std::move(limits),
                             process_environment,
                             std::chrono::system_clock::now,
                             options_.check,
                             progress,
                             [&entry] { return entry->cancelled.load(); }};
  FetchOutcome outcome = fetch_object(entry->file, context);
  const auto path = outcome.status.ok() ? cache->store.use(outcome.sha256) : std::nullopt;
  if (outcome.status.ok() && !path)
    outcome.status = {StatusCode::unavailable, "the cache has lost the file again"};
  const std::lock_guard lock(mutex_);
  entry->running = false;
  RemoteState& state = entry->state;
  if (path) {
    state = {outcome.sha256, *path};
    entry->schedule.succeeded(outcome.polls, now());
  } else {
    entry->schedule.failed(outcome.progressed, now());
    state.failed = true;
    state.text = entry->file.url.shown() + ": " + outcome.status.message() +
                 (state.sha256.empty() ? "" : "; the version fetched before stays in force");
  }
  if (std::exchange(entry->look_again, false)) entry->schedule.soon(now());
}

}  // namespace gpulet::store::remote

#include "store/remote/cache_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "gpulet/base/files.h"
#include "gpulet/base/sha256.h"
#include "gpulet/base/text.h"

namespace gpulet::store::remote {
namespace {

using nlohmann::json;

constexpr int kFormat = 1;
constexpr std::size_t kLongestRecord = 16U << 10U;
constexpr std::size_t kLongestReason = 1024;
constexpr mode_t kFileMode = 0600;
constexpr std::string_view kRecordSuffix = ".fetched";
constexpr std::string_view kPartSuffix = ".fetching";

Status disk_failure(const std::string& action, const std::filesystem::path& file) {
  return {StatusCode::unavailable,
          "cannot " + action + " " + file.string() + ": " + std::strerror(errno)};
}

json to_json(const Validators& validators) {
  return {{"etag", validators.etag}, {"last_modified", validators.last_modified}};
}

Validators validators_of(const json& value) {
  Validators validators{value.at("etag").get<std::string>(),
                        value.at("last_modified").get<std::string>()};
  const bool valid = is_validator(validators.etag) && is_validator(validators.last_modified);
  return valid ? validators : Validators();
}

// A name that no other object of any process uses.
std::string unique_suffix() {
  static std::atomic<std::uint64_t> last{0};
  return '.' + std::to_string(::getpid()) + '.' + std::to_string(++last);
}

// Opens and locks it. Invalid: somebody else has the lock, or errno says why.
FileDescriptor open_locked(const std::filesystem::path& path) {
  FileDescriptor file(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, kFileMode));
  struct stat status {};
  if (!file.valid() || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 ||
      ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_nlink == 0)
    return {};
  return file;
}

}  // namespace

std::string to_text(const FetchRecord& record) {
  const json document{{"format", kFormat},
                      {"sha256", record.sha256},
                      {"version", to_json(record.version)},
                      {"unfinished", to_json(record.unfinished)},
                      {"refused", to_json(record.refused)},
                      {"why", record.why}};
  return json_line(document);
}

FetchRecord parse_record(std::string_view text) {
  const json document = text.size() > kLongestRecord ? json() : json::parse(text, nullptr, false);
  if (!document.is_object()) return {};
  try {
    FetchRecord record;
    if (document.at("format").get<int>() != kFormat) return {};
    record.sha256 = document.at("sha256").get<std::string>();
    record.version = validators_of(document.at("version"));
    record.unfinished = validators_of(document.at("unfinished"));
    record.refused = validators_of(document.at("refused"));
    record.why = escaped(document.at("why").get<std::string>(), kLongestReason);
    if (!record.sha256.empty() && !is_sha256(record.sha256)) return {};
    return record;
  } catch (const json::exception&) {
    return {};
  }
}

std::string CacheFolder::key_of(const config::RemoteFile& file) {
  return sha256_of(file.url.text() + '\n' + file.sha256);
}

FetchRecord CacheFolder::read(const std::string& key) const {
  std::ifstream stream(folder_ / (key + std::string(kRecordSuffix)), std::ios::binary);
  std::string text(kLongestRecord + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return parse_record(text);
}

Status CacheFolder::write(const std::string& key, const FetchRecord& record) const {
  const auto name = folder_ / (key + std::string(kRecordSuffix));
  const auto temporary = folder_ / (key + unique_suffix() + std::string(kPartSuffix));
  const FileDescriptor file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode));
  if (!file.valid()) return disk_failure("write", temporary);
  if (write_all(file.get(), to_text(record)) && ::rename(temporary.c_str(), name.c_str()) == 0)
    return {};
  Status failure = disk_failure("write", name);
  ::unlink(temporary.c_str());
  return failure;
}

Result<CacheFolder::Part> CacheFolder::open_part(const std::string& key) const {
  Part part;
  part.path = folder_ / (key + std::string(kPartSuffix));
  part.file = open_locked(part.path);
  if (!part.file.valid()) {
    part.resumable = false;
    part.path = folder_ / (key + unique_suffix() + std::string(kPartSuffix));
    part.file = open_locked(part.path);
  }
  struct stat status {};
  if (!part.file.valid() || ::fstat(part.file.get(), &status) != 0)
    return disk_failure("write", part.path);
  part.bytes = static_cast<std::uint64_t>(status.st_size);
  return part;
}

void CacheFolder::sweep(const std::set<std::string>& keys, std::chrono::seconds age) const {
  const auto now = std::filesystem::file_time_type::clock::now();
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder_, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::filesystem::path& path = entry->path();
    if (path.extension() != kRecordSuffix && path.extension() != kPartSuffix) continue;
    const std::string name = path.filename().string();
    if (keys.contains(name.substr(0, name.find('.')))) continue;
    std::error_code unknown;
    const auto written = std::filesystem::last_write_time(path, unknown);
    if (unknown || now - written < age) continue;
    const FileDescriptor unlocked = open_locked(path);
    if (unlocked.valid()) ::unlink(path.c_str());
  }
}

}  // namespace gpulet::store::remote

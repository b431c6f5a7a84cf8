#include "store/remote/object_fetch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "gpulet/base/sha256.h"

namespace gpulet::store::remote {
namespace {

constexpr std::uint64_t kMegabyte = 1U << 20U;

enum HttpStatus : int {
  kNotModified = 304,
  kUnauthorized = 401,
  kForbidden = 403,
  kNotFound = 404,
  kGone = 410,
  kRangeNotSatisfiable = 416,
  kTooManyRequests = 429,
  kFirstRedirect = 300,
  kFirstError = 400,
  kFirstServerError = 500,
  kPartialContent = 206,
};

class ObjectFetch {
 public:
  ObjectFetch(const config::RemoteFile& file, const FetchContext& context)
      : file_(file),
        context_(context),
        key_(CacheFolder::key_of(file)),
        record_(context.folder.read(key_)),
        // The cache may have lost the file since.
        has_version_(!record_.sha256.empty() && context.store.use(record_.sha256)) {}

  FetchOutcome run() {
    FetchOutcome outcome;
    outcome.status = fetch();
    outcome.progressed = progressed_;
    outcome.sha256 = record_.sha256;
    // A file of which the digest is known never changes.
    outcome.polls = file_.sha256.empty() && !record_.version.empty();
    return outcome;
  }

 private:
  Status fetch() {
    if (!file_.sha256.empty() && context_.store.use(file_.sha256)) {
      record_.sha256 = file_.sha256;
      return {};
    }
    GPULET_TRY(CacheFolder::Part part, context_.folder.open_part(key_));
    part_ = std::move(part);
    context_.store.keep_part(key_, part_.bytes);
    Status status = fetch_part();
    // What cannot go on later is of no use.
    if (record_.unfinished.for_range().empty() || !part_.resumable) drop_part();
    if (part_.bytes == 0 && !part_.path.empty()) ::unlink(part_.path.c_str());
    context_.store.keep_part(key_, part_.bytes);
    return status;
  }

  Status fetch_part() {
    if (part_.bytes > 0 && record_.unfinished.for_range().empty()) drop_part();
    GPULET_TRY(GetResponse response, follow());
    if (response.head.has_content()) return finish();
    const int status = response.head.status();
    if (status == kNotModified) return unmodified(response.head);
    if (status == kRangeNotSatisfiable) {
      drop_part();
      return {StatusCode::unavailable, "the file became shorter while it was fetched"};
    }
    return failure_of(response);
  }

  // ---- requests

  // The answer after all redirects.
  Result<GetResponse> follow() {
    Url url = file_.url;
    std::optional<AddressClass> reaches;  // from the second request on
    for (std::uint32_t left = context_.limits.redirects;; --left) {
      GPULET_TRY(GetRequest request, request_for(url));
      request.reaches = reaches;
      const GetCalls calls{[this](const ResponseHead& head) { return begin(head); },
                           [this](std::string_view bytes) { return append(bytes); },
                           context_.cancelled};
      Result<GetResponse> response = http_get(request, context_.limits.get, calls);
      if (!response.ok() || response.value().redirect.empty() || url.scheme == Url::Scheme::s3)
        return response;
      if (left == 0) {
        return Status(StatusCode::invalid,
                      fmt::format("the store redirects more than {} times; correct \"file\", or "
                                  "raise \"redirects\" of \"remote_stores\"",
                                  context_.limits.redirects));
      }
      Result<Url> next = parse_url(response.value().redirect);
      if (!next.ok()) return next.status().within("the store redirects to a URL of no file");
      if (next.value().scheme == Url::Scheme::s3 ||
          (url.scheme == Url::Scheme::https && next.value().scheme == Url::Scheme::http)) {
        return Status(StatusCode::invalid, "the store redirects from https to " +
                                               next.value().origin() +
                                               ", which is not protected; correct \"file\"");
      }
      if (!reaches) reaches = response.value().peer;
      // A proxy of the environment would connect in our place.
      const auto named = class_of(next.value().host);
      if (named && *named != AddressClass::global && *named != *reaches) {
        return Status(StatusCode::invalid,
                      "the store redirects to an address of this machine or of its network, where "
                      "the store itself is not; correct \"file\"");
      }
      url = std::move(next).value();
    }
  }

  Result<GetRequest> request_for(const Url& url) {
    GetRequest request;
    if (url.scheme == Url::Scheme::s3) {
      GPULET_TRY(const S3Place place, read_s3_place(context_.environment));
      GPULET_TRY(const AwsCredentials credentials, read_credentials(context_.environment));
      anonymous_ = credentials.empty();
      S3Request made = s3_request(url, place, credentials, context_.wall_clock());
      request = {std::move(made.url), std::move(made.headers)};
    } else {
      request.url = url.text();
    }
    add_conditions(request);
    if (part_.bytes > 0) {
      request.headers.emplace_back("range", fmt::format("bytes={}-", part_.bytes));
      request.headers.emplace_back("if-range", record_.unfinished.for_range());
    }
    return request;
  }

  // Neither the version of the cache nor one that was refused is to be sent again.
  void add_conditions(GetRequest& request) const {
    std::string etags = has_version_ ? record_.version.etag : std::string();
    if (!record_.refused.etag.empty()) etags += (etags.empty() ? "" : ", ") + record_.refused.etag;
    std::string date = has_version_ ? record_.version.last_modified : std::string();
    if (!record_.refused.last_modified.empty()) date = record_.refused.last_modified;
    if (!etags.empty()) {
      request.headers.emplace_back("if-none-match", etags);
    } else if (!date.empty()) {
      request.headers.emplace_back("if-modified-since", date);
    }
  }

  // After "304 Not Modified".
  [[nodiscard]] Status unmodified(const ResponseHead& head) const {
    const std::string& etag = head.validators().etag;
    const bool is_refused =
        !record_.refused.empty() && (etag.empty() || !has_version_ || etag == record_.refused.etag);
    if (is_refused) return {StatusCode::invalid, record_.why};
    if (has_version_) return {};
    return {StatusCode::malformed, "the store answers 304 to a request without a condition"};
  }

  // ---- the body

  Status begin(const ResponseHead& head) {
    if (head.status() == kPartialContent) {
      const auto& range = head.range();
      const bool same = head.validators().etag == record_.unfinished.etag;
      if (part_.bytes == 0 || !range || range->first != part_.bytes || !same) {
        drop_part();
        return {StatusCode::unavailable, "the store sent another part than the one requested"};
      }
      total_ = range->total;
    } else {
      drop_part();
      total_ = head.length();
    }
    if (total_ && *total_ > context_.limits.largest_file) return too_large(*total_);
    if (total_) {
      if (Status room = make_room(*total_); !room.ok()) return room;
    }
    if (head.status() == kPartialContent || record_.unfinished == head.validators()) return {};
    record_.unfinished = head.validators();
    return context_.folder.write(key_, record_);
  }

  Status append(std::string_view bytes) {
    if (bytes.size() > context_.limits.largest_file - part_.bytes)
      return too_large(part_.bytes + bytes.size());
    if (const std::uint64_t needed = part_.bytes + bytes.size(); needed > room_) {
      // The length is unknown, or was a lie. Not for every piece: it looks at the folder.
      Status room = context_.store.grow_part(key_, part_.bytes, needed + kMegabyte);
      if (room.ok()) {
        room_ = needed + kMegabyte;
      } else if (room = make_room(needed); !room.ok()) {
        return room;
      }
    }
    while (!bytes.empty()) {
      const ssize_t written =
          ::pwrite(part_.file.get(), bytes.data(), bytes.size(), static_cast<off_t>(part_.bytes));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0)
        return {StatusCode::unavailable,
                "cannot write " + part_.path.string() + ": " + std::strerror(errno)};
      bytes.remove_prefix(static_cast<std::size_t>(written));
      part_.bytes += static_cast<std::uint64_t>(written);
    }
    progressed_ = true;
    context_.progress(part_.bytes, total_);
    return {};
  }

  // For the whole part. A file for which there is none is given up: it would fail the same way
  // again, as often as it is tried.
  Status make_room(std::uint64_t bytes) {
    Status room = context_.store.grow_part(key_, part_.bytes, bytes);
    if (room.ok()) {
      room_ = bytes;
    } else {
      drop_part();
      progressed_ = false;
    }
    return room;
  }

  Status too_large(std::uint64_t bytes) {
    drop_part();
    progressed_ = false;
    return {StatusCode::invalid,
            fmt::format("the file has {} MB or more, and {} MB are allowed; raise "
                        "\"largest_file_mb\" of \"remote_stores\"",
                        bytes / kMegabyte, context_.limits.largest_file / kMegabyte)};
  }

  void drop_part() {
    if (part_.file.valid()) static_cast<void>(::ftruncate(part_.file.get(), 0));
    part_.bytes = 0;
    room_ = 0;
  }

  // ---- the complete file

  Status finish() {
    if (total_ && part_.bytes != *total_)
      return {StatusCode::unavailable, "the transfer broke off"};
    GPULET_TRY(const std::string sha256, hash());
    if (Status fits = check(sha256); !fits.ok()) return refuse(fits);
    // The cache may have had the same content before.
    if (!context_.store.use(sha256)) {
      context_.store.keep_part(key_, 0);  // it becomes one of the complete files
      const auto adopted = context_.store.adopt(sha256, part_.path);
      if (!adopted.ok()) return adopted.status();
      part_ = {};
    }
    record_.sha256 = sha256;
    record_.version = record_.unfinished;
    record_.unfinished = {};
    record_.refused = {};
    record_.why.clear();
    drop_part();
    return context_.folder.write(key_, record_);
  }

  Result<std::string> hash() const {
    Sha256 hash;
    std::vector<std::byte> block(kMegabyte);
    for (std::uint64_t at = 0; at < part_.bytes;) {
      if (context_.cancelled()) return Status(StatusCode::cancelled, "the fetch was cancelled");
      const ssize_t got =
          ::pread(part_.file.get(), block.data(), block.size(), static_cast<off_t>(at));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        return Status(StatusCode::unavailable,
                      "cannot read " + part_.path.string() + " again: " + std::strerror(errno));
      }
      hash.update(std::span(block).first(static_cast<std::size_t>(got)));
      at += static_cast<std::uint64_t>(got);
    }
    return hash.finish();
  }

  Status check(const std::string& sha256) const {
    if (!file_.sha256.empty() && sha256 != file_.sha256) {
      return {StatusCode::invalid,
              fmt::format("the file in the store has the SHA-256 {}, not the one of its entry; "
                          "correct \"sha256\", or the file",
                          sha256)};
    }
    return context_.check ? context_.check(part_.file.get()) : Status();
  }

  // Remembers the version, so that it is not transferred again.
  Status refuse(const Status& why) {
    record_.refused = record_.unfinished;
    record_.unfinished = {};
    record_.why = why.message();
    drop_part();
    if (Status written = context_.folder.write(key_, record_); !written.ok()) return written;
    return {StatusCode::invalid, why.message()};
  }

  // ---- errors of the store

  Status failure_of(const GetResponse& response) const {
    const int status = response.head.status();
    const bool is_s3 = file_.url.scheme == Url::Scheme::s3;
    const std::string code = is_s3 ? s3_error_code(response.error) : std::string();
    const std::string answer =
        fmt::format("the store answers {}{}", status, code.empty() ? "" : " " + code);
    if (is_s3 && !response.head.region().empty() &&
        (status == kFirstError || (status >= kFirstRedirect && status < kFirstError))) {
      return {StatusCode::invalid, answer +
                                       ": the bucket is in another region; set AWS_REGION to " +
                                       response.head.region()};
    }
    if (status == kUnauthorized || status == kForbidden) {
      if (!is_s3)
        return {StatusCode::forbidden,
                answer + ": it lets nobody read the file without a password"};
      return {StatusCode::forbidden,
              answer + (anonymous_ ? ": the request had no credentials; set AWS_ACCESS_KEY_ID and "
                                     "AWS_SECRET_ACCESS_KEY"
                                   : ": it does not let these credentials read the file; correct "
                                     "them or its policy")};
    }
    if (status == kNotFound || status == kGone) {
      return {StatusCode::not_found,
              answer + ": there is no such file; correct \"file\", or put it there"};
    }
    const bool passing = status == kTooManyRequests || status >= kFirstServerError;
    return {passing ? StatusCode::unavailable : StatusCode::invalid, answer};
  }

  const config::RemoteFile& file_;
  const FetchContext& context_;
  const std::string key_;
  FetchRecord record_;
  const bool has_version_;
  CacheFolder::Part part_;
  std::optional<std::uint64_t> total_;
  std::uint64_t room_ = 0;  // bytes of the part that the cache has room for
  bool progressed_ = false;
  bool anonymous_ = false;
};

}  // namespace

// The complete files and all parts together must fit. Parts on the disk count as if they were not
// written yet, so the check of its free space errs on the safe side.
Status SharedStore::grow_part(const std::string& key, std::uint64_t bytes, std::uint64_t total) {
  const std::lock_guard lock(mutex_);
  std::uint64_t others = 0;
  for (const auto& [other, taken] : parts_) others += other == key ? 0 : taken;
  if (Status room = store_.make_room(others + std::max(bytes, total)); !room.ok()) return room;
  parts_[key] = total;
  return {};
}

void SharedStore::keep_part(const std::string& key, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes == 0) {
    parts_.erase(key);
  } else {
    parts_[key] = bytes;
  }
}

FetchOutcome fetch_object(const config::RemoteFile& file, const FetchContext& context) {
  return ObjectFetch(file, context).run();
}

}  // namespace gpulet::store::remote

// ResponseHead: what a fetch needs to know of the head of an HTTP response. Every byte comes from
// the store, and none is trusted. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gpulet::store::remote {

// What names a version of an object. Empty: the store did not tell.
struct Validators {
  std::string etag;           // with its quotes, and "W/" where it is weak
  std::string last_modified;  // the date as it came
  [[nodiscard]] bool empty() const { return etag.empty() && last_modified.empty(); }
  // The value of If-Range: a strong ETag, else the date. Empty: a transfer cannot go on later.
  [[nodiscard]] const std::string& for_range() const;
  friend bool operator==(const Validators&, const Validators&) = default;
};

// Printable ASCII, at most 256 bytes: it is sent back in a header and kept in a file.
[[nodiscard]] bool is_validator(std::string_view text);

// The value of Content-Range: "bytes 100-199/1000".
struct ContentRange {
  std::uint64_t first = 0;
  std::uint64_t total = 0;
  friend bool operator==(const ContentRange&, const ContentRange&) = default;
};
// Empty: it is something else, or has no total, or its numbers contradict each other.
[[nodiscard]] std::optional<ContentRange> parse_content_range(std::string_view value);

class ResponseHead {
 public:
  // Takes a line with or without its end. A status line begins a new head: of a proxy before, or
  // after "100 Continue". False: the head is longer than 64 KB, and the response is to be refused.
  [[nodiscard]] bool add_line(std::string_view line);

  [[nodiscard]] int status() const { return status_; }  // 0: there was no status line
  // The body is the object, or a part of it.
  [[nodiscard]] bool has_content() const { return status_ == 200 || status_ == 206; }
  [[nodiscard]] const Validators& validators() const { return validators_; }
  [[nodiscard]] const std::optional<ContentRange>& range() const { return range_; }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return length_; }
  // Of the bucket, where S3 tells it. Empty: it does not.
  [[nodiscard]] const std::string& region() const { return region_; }

 private:
  void clear();

  std::size_t bytes_ = 0;
  int status_ = 0;
  Validators validators_;
  std::optional<ContentRange> range_;
  std::optional<std::uint64_t> length_;
  std::string region_;
};

// The code in the XML of an error of S3: "AccessDenied". Empty: there is none.
[[nodiscard]] std::string s3_error_code(std::string_view body);

}  // namespace gpulet::store::remote

// What stores send and what users write: heads of answers, errors of S3, records of the cache,
// files of credentials and URLs. The first byte chooses.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "gpulet/base/url.h"
#include "store/remote/aws_settings.h"
#include "store/remote/cache_folder.h"
#include "store/remote/response_head.h"

namespace {

using namespace gpulet;
using namespace gpulet::store::remote;

void require(bool holds) {
  if (!holds) std::abort();
}

void read_head(std::string_view text) {
  ResponseHead head;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (!head.add_line(line)) return;
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  require(is_validator(head.validators().etag) && is_validator(head.validators().last_modified));
  require(!head.range() || head.range()->first < head.range()->total);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 5) {
    case 0:
      read_head(text);
      break;
    case 1:
      require(s3_error_code(text).size() <= 64);
      break;
    case 2: {
      const FetchRecord record = parse_record(text);
      require(record == FetchRecord() || parse_record(to_text(record)) == record);
      break;
    }
    case 3: {
      const auto read = parse_credentials(text, "default");
      require(!read.ok() || !read.value() || !read.value()->secret.empty());
      break;
    }
    default: {
      const Result<Url> url = parse_url(text);
      require(!url.ok() || parse_url(url.value().text()).ok());
    }
  }
  return 0;
}

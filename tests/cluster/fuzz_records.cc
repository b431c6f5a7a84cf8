// Any bytes, read as the values of a cluster's keys: a record that is written and read back as
// itself, or a Status. Another program may write below the prefix.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "cluster/records.h"

namespace {

using namespace gpulet::cluster;  // NOLINT(google-build-using-namespace)

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto cluster = parse_cluster(text); cluster.ok()) {
    const auto again = parse_cluster(to_json(cluster.value()));
    require(again.ok() && again.value().name == cluster.value().name &&
            again.value().base == cluster.value().base);
  }
  if (const auto member = parse_member(text); member.ok()) {
    const auto again = parse_member(to_json(member.value()));
    require(again.ok() && again.value().member == member.value().member &&
            again.value().incarnation == member.value().incarnation);
  }
  return 0;
}

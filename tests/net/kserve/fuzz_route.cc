// Any bytes as a pattern, a target and a body of administration, a line each.
#include <optional>
#include <string>
#include <string_view>

#include "tests/net/kserve/fuzz_inference.h"

namespace {

using namespace gpulet;
using namespace gpulet::net;
using kserve::testing::require;

std::string_view line_of(std::string_view& input) {
  const std::size_t end = input.find('\n');
  const std::string_view line = input.substr(0, end);
  input.remove_prefix(end == std::string_view::npos ? input.size() : end + 1);
  return line;
}

template <typename Value>
void require_reason(const Result<Value>& result) {
  require(result.ok() || !result.status().message().empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string_view pattern = line_of(input);
  const std::string_view target = line_of(input);
  const auto path = kserve::TargetPath::of(target);
  // The first line is a pattern here: any bytes must do no harm.
  if (path) (void)path->match(pattern);
  for (const std::string_view known : {"v2", "v2/models/{M}/infer", "v2/models/{M}/versions/{V}",
                                       "v2/systemsharedmemory/region/{R}/status"}) {
    const auto route = path ? path->match(known) : std::nullopt;
    if (!route) continue;
    require(route->version.find_first_not_of("0123456789") == std::string::npos);
    require(kserve::check_model(nullptr, *route).code() == StatusCode::not_found);
    (void)kserve::check_model(&kserve::testing::fuzz_model(), *route);
  }
  const Bytes body = http::bytes_of(std::string(input));
  require_reason(kserve::read_repository_index(body));
  require_reason(kserve::read_repository_load(body));
  require_reason(kserve::read_register("r", body));
  const auto settings = kserve::read_settings(body);
  require_reason(settings);
  if (settings.ok()) {
    require_reason(kserve::change_log(kserve::LogLevel::info, settings.value()));
    require_reason(kserve::change_tracing({}, settings.value()));
  }
  return 0;
}

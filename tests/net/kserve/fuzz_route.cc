// Any bytes as a method, a target and a body of administration, a line each.
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
  const std::string_view method = line_of(input);
  const std::string_view target = line_of(input);
  std::string allow;
  const auto route = kserve::find_route(method, target, &allow);
  require_reason(route);
  if (route.ok()) {
    const auto& version = route.value().version;
    require(version.find_first_not_of("0123456789") == std::string::npos);
    require(kserve::check_model(nullptr, route.value()).code() == StatusCode::not_found);
    (void)kserve::check_model(&kserve::testing::fuzz_model(), route.value());
  } else {
    require(allow.empty() == (route.status().code() == StatusCode::not_found));
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

// Any bytes, read as every kind of configuration: a value or a Status with a message, and nothing
// else.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "gpulet/config/cluster_config.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/config/model_config.h"

namespace {

template <typename T>
void expect_reason(const gpulet::Result<T>& result) {
  if (!result.ok() && !result.status().message().starts_with("fuzz.json: ")) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  expect_reason(gpulet::config::parse_models(text, "fuzz.json"));
  expect_reason(gpulet::config::parse_cluster(text, "fuzz.json"));
  expect_reason(gpulet::config::parse_demand(text, "fuzz.json"));
  expect_reason(gpulet::config::parse_scenarios(text, "fuzz.json"));
  expect_reason(gpulet::config::parse_control(text, "fuzz.json"));
  expect_reason(gpulet::config::parse_frontend(text, "fuzz.json"));
  expect_reason(gpulet::config::parse_backend(text, "fuzz.json"));
  expect_reason(gpulet::config::parse_workload(text, "fuzz.json"));
  return 0;
}

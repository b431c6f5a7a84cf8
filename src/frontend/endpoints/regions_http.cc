#include "frontend/endpoints/regions_http.h"

#include <array>
#include <string>
#include <vector>

#include "frontend/endpoints/kserve_http.h"
#include "gpulet/access/tokens.h"
#include "gpulet/net/kserve/http_api.h"

namespace gpulet::frontend {
namespace {

namespace kserve = net::kserve;

constexpr unsigned kNoCudaMemory = 501;

}  // namespace

std::span<const EndpointRow> RegionsHttp::rows() const {
  using access::Right;
  using Here = RegionsHttp;
  static const auto kRows = std::to_array<EndpointRow>({
      {"v2/systemsharedmemory/status", "GET", Right::observe, "observe", handle(&Here::all)},
      {"v2/systemsharedmemory/region/{R}/status", "GET", Right::observe, "observe",
       handle(&Here::one)},
      {"v2/systemsharedmemory/region/{R}/register", "POST", Right::admin, "shared_memory_register",
       handle(&Here::add)},
      {"v2/systemsharedmemory/unregister", "POST", Right::admin, "shared_memory_unregister",
       handle(&Here::remove)},
      {"v2/systemsharedmemory/region/{R}/unregister", "POST", Right::admin,
       "shared_memory_unregister", handle(&Here::remove)},
      {"v2/cudasharedmemory/status", "GET", Right::observe, "observe", handle(&Here::cuda_all)},
      {"v2/cudasharedmemory/region/{R}/status", "GET", Right::observe, "observe",
       handle(&Here::cuda_one)},
      {"v2/cudasharedmemory/region/{R}/register", "POST", Right::admin, "shared_memory_register",
       handle(&Here::cuda_add)},
      {"v2/cudasharedmemory/unregister", "POST", Right::admin, "shared_memory_unregister",
       handle(&Here::cuda_remove)},
      {"v2/cudasharedmemory/region/{R}/unregister", "POST", Right::admin,
       "shared_memory_unregister", handle(&Here::cuda_remove)},
  });
  return kRows;
}

void RegionsHttp::add(EndpointCall call) {
  const Result<kserve::RegionInfo> region =
      kserve::read_register(call.route.names.region, call.request.body);
  call.exchange->answer(
      kserve_outcome(region.ok() ? regions_.add(region.value()) : region.status()));
}

// Without a name: all.
void RegionsHttp::remove(EndpointCall call) {
  regions_.remove(call.route.names.region);
  call.exchange->answer(kserve_outcome({}));
}

void RegionsHttp::all(EndpointCall call) {
  call.exchange->answer(kserve::shared_memory_status(regions_.regions()));
}

void RegionsHttp::one(EndpointCall call) {
  const std::string& name = call.route.names.region;
  std::vector<kserve::RegionInfo> found = regions_.regions();
  std::erase_if(found, [&name](const auto& region) { return region.name != name; });
  if (!found.empty()) return call.exchange->answer(kserve::shared_memory_status(found));
  call.exchange->answer(kserve::error(
      Status(StatusCode::not_found, "Unable to find system shared memory region: '" + name + "'")));
}

void RegionsHttp::cuda_add(EndpointCall call) {
  call.exchange->answer(
      kserve::error(kNoCudaMemory, kserve::cuda_memory_refusal(call.route.names.region)));
}

void RegionsHttp::cuda_remove(EndpointCall call) { call.exchange->answer(kserve_outcome({})); }

void RegionsHttp::cuda_all(EndpointCall call) {
  call.exchange->answer(kserve::shared_memory_status({}));
}

void RegionsHttp::cuda_one(EndpointCall call) {
  call.exchange->answer(kserve::error(kserve::unknown_cuda_region(call.route.names.region)));
}

}  // namespace gpulet::frontend

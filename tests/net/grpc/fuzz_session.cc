// Any bytes of a gRPC connection, at once and in pieces whose size the first byte says. Whatever
// they are, memory stays within its bounds and is given back.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/net/grpc/session_fixture.h"

namespace {

using gpulet::net::grpc_api::testing::kMostBytes;
using gpulet::net::grpc_api::testing::kPreface;
using gpulet::net::grpc_api::testing::World;

void require(bool holds) {
  if (!holds) std::abort();
}

void read(std::string_view bytes, std::size_t piece) {
  constexpr std::size_t kBudget = 4 * kMostBytes;
  World world({}, kBudget);
  world.receive(kPreface);
  while (!bytes.empty() && !world.session().over()) {
    world.receive(bytes.substr(0, piece));
    bytes.remove_prefix(std::min(piece, bytes.size()));
    world.now += std::chrono::milliseconds(10);
    world.check_deadlines();
  }
  require(world.most_taken <= kBudget);
  require(world.session().calls() <= 1024);
  world.close();
  require(world.budget_taken() == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  read(bytes, bytes.size() + 1);
  read(bytes, 1U + data[0]);
  return 0;
}

// System shared memory as the simple_*_shm examples use it, and CUDA shared memory, which every
// client unregisters first.
#include <gmock/gmock.h>

#include "tests/conformance/conformance_test.h"
#include "tests/conformance/shared_region.h"

namespace gpulet::conformance {
namespace {

using nlohmann::json;

class SharedMemory : public ConformanceTest {
 protected:
  void SetUp() override { ASSERT_EQ(http().post("/v2/systemsharedmemory/unregister").status, 200); }
  void TearDown() override { http().post("/v2/systemsharedmemory/unregister"); }
  HttpAnswer register_region(const SharedRegion& region, std::size_t bytes) {
    const json body = {{"key", region.key()}, {"offset", 0}, {"byte_size", bytes}};
    return http().post("/v2/systemsharedmemory/region/" + region.name() + "/register", body.dump());
  }
  static json where(const SharedRegion& region, std::size_t offset) {
    json place = {{"shared_memory_region", region.name()},
                  {"shared_memory_byte_size", kSimpleBytes}};
    if (offset != 0) place["shared_memory_offset"] = offset;
    return place;
  }
};

// Both tensors of a direction are in one region, as in the example.
TEST_F(SharedMemory, HoldsInputsAndOutputsOverHttp) {
  const SharedRegion input("input_data", bytes_of(simple_input0()) + bytes_of(simple_input1()));
  const SharedRegion output("output_data", 2 * kSimpleBytes);
  ASSERT_EQ(register_region(input, 2 * kSimpleBytes).status, 200);
  ASSERT_EQ(register_region(output, 2 * kSimpleBytes).status, 200);
  json request = {{"id", ""}, {"inputs", simple_http_inputs()}};
  request["inputs"][0]["parameters"] = where(input, 0);
  request["inputs"][1]["parameters"] = where(input, kSimpleBytes);
  request["outputs"] = {{{"name", "OUTPUT0"}, {"parameters", where(output, 0)}},
                        {{"name", "OUTPUT1"}, {"parameters", where(output, kSimpleBytes)}}};
  const auto outputs = read_outputs(http().infer("simple", request));
  EXPECT_EQ(outputs.at("OUTPUT0").datatype, "INT32");
  EXPECT_THAT(outputs.at("OUTPUT0").shape, ::testing::ElementsAre(1, 16));
  EXPECT_EQ(elements_of<std::int32_t>(output.bytes().substr(0, kSimpleBytes)), simple_sum());
  EXPECT_EQ(elements_of<std::int32_t>(output.bytes().substr(kSimpleBytes)), simple_difference());
}

TEST_F(SharedMemory, HasNoResponseParametersForAnOutputInSharedMemory) {
  const SharedRegion output("output_data", kSimpleBytes);
  ASSERT_EQ(register_region(output, kSimpleBytes).status, 200);
  json request = {{"id", ""}, {"inputs", simple_http_inputs()}};
  request["outputs"] = {{{"name", "OUTPUT0"}, {"parameters", where(output, 0)}},
                        {{"name", "OUTPUT1"}, {"parameters", {{"binary_data", true}}}}};
  const HttpAnswer answer =
      http().infer("simple", request, bytes_of(simple_input0()) + bytes_of(simple_input1()));
  const json header = read_header(answer);
  for (const json& member : header.at("outputs"))
    EXPECT_EQ(member.contains("parameters"), member.at("name") == "OUTPUT1") << member;
  const auto outputs = read_outputs(answer);
  EXPECT_FALSE(outputs.at("OUTPUT0").in_answer);
  EXPECT_EQ(elements_of<std::int32_t>(outputs.at("OUTPUT1").bytes), simple_difference());
  EXPECT_EQ(elements_of<std::int32_t>(output.bytes()), simple_sum());
}

TEST_F(SharedMemory, ListsItsRegions) {
  const SharedRegion region("listed", 2 * kSimpleBytes);
  EXPECT_EQ(get_json("/v2/systemsharedmemory/status"), json::array());
  ASSERT_EQ(register_region(region, kSimpleBytes).status, 200);
  const json entry = {
      {"name", "listed"}, {"key", region.key()}, {"offset", 0}, {"byte_size", kSimpleBytes}};
  EXPECT_EQ(get_json("/v2/systemsharedmemory/status"), json::array({entry}));
  EXPECT_EQ(get_json("/v2/systemsharedmemory/region/listed/status"), json::array({entry}));
  const auto listed = grpc().call<SystemRegions>("SystemSharedMemoryStatus", Name());
  ASSERT_TRUE(listed.status.ok()) << listed.status.error_message();
  ASSERT_EQ(listed.message.regions().count("listed"), 1U);
  EXPECT_EQ(listed.message.regions().at("listed").key(), region.key());
  EXPECT_EQ(listed.message.regions().at("listed").byte_size(), kSimpleBytes);
  EXPECT_EQ(http().post("/v2/systemsharedmemory/region/listed/unregister").status, 200);
  EXPECT_EQ(get_json("/v2/systemsharedmemory/status"), json::array());
}

TEST_F(SharedMemory, RejectsAnUnknownRegion) {
  const json body = {{"key", "/gpulet_no_such_key"}, {"offset", 0}, {"byte_size", kSimpleBytes}};
  const HttpAnswer answer = http().post("/v2/systemsharedmemory/region/none/register", body.dump());
  EXPECT_EQ(answer.status, 400);
  check_error(answer);
}

TEST_F(SharedMemory, CudaRegionsAreEmptyAndUnregisterOverHttp) {
  EXPECT_EQ(get_json("/v2/cudasharedmemory/status"), json::array());
  EXPECT_EQ(http().post("/v2/cudasharedmemory/unregister").status, 200);
  EXPECT_EQ(http().post("/v2/cudasharedmemory/region/none/unregister").status, 200);
  const json body = {{"raw_handle", {{"b64", std::string(88, 'A')}}},
                     {"device_id", 0},
                     {"byte_size", kSimpleBytes}};
  check_error(http().post("/v2/cudasharedmemory/region/none/register", body.dump()));
}

TEST_F(SharedMemory, CudaRegionsAreEmptyAndUnregisterOverGrpc) {
  const auto listed = grpc().call<CudaRegions>("CudaSharedMemoryStatus", Name());
  EXPECT_TRUE(listed.status.ok()) << listed.status.error_message();
  EXPECT_TRUE(listed.message.regions().empty());
  EXPECT_TRUE(grpc().call<Empty>("CudaSharedMemoryUnregister", Name()).status.ok());
  CudaRegister request;
  request.set_name("none");
  request.set_raw_handle(std::string(64, '\0'));
  request.set_byte_size(kSimpleBytes);
  const auto refused = grpc().call<Empty>("CudaSharedMemoryRegister", request);
  EXPECT_FALSE(refused.status.ok());
  EXPECT_NE(refused.status.error_message(), "");
}

}  // namespace
}  // namespace gpulet::conformance

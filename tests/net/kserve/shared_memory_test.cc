// Regions of shared memory: registering them, and tensors in them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/net/kserve/kserve_case.h"
#include "tests/support/names.h"

namespace gpulet::net::kserve {
namespace {

using namespace testing;
using support::names;

// Shared memory as a client makes it; its name is this process's alone.
class ClientMemory {
 public:
  explicit ClientMemory(off_t bytes)
      : key_("/gpulet_kserve_test_" + std::to_string(::getpid())),
        number_(::shm_open(key_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0600)) {
    resize(bytes);
  }
  ~ClientMemory() {
    ::close(number_);
    ::shm_unlink(key_.c_str());
  }
  ClientMemory(const ClientMemory&) = delete;
  ClientMemory& operator=(const ClientMemory&) = delete;

  void resize(off_t bytes) const { EXPECT_EQ(::ftruncate(number_, bytes), 0); }
  void put(const std::string& text, off_t at) const {
    EXPECT_EQ(::pwrite(number_, text.data(), text.size(), at), static_cast<ssize_t>(text.size()));
  }
  [[nodiscard]] std::string get(std::size_t bytes, off_t at) const {
    std::string text(bytes, '\0');
    EXPECT_EQ(::pread(number_, text.data(), bytes, at), static_cast<ssize_t>(bytes));
    return text;
  }
  [[nodiscard]] const std::string& key() const { return key_; }

 private:
  std::string key_;
  int number_;
};

TEST(SharedMemory, WhatIsOffSaysHowToSwitchItOn) {
  SharedMemory off(false);
  EXPECT_EQ(off.add({"r", "/x", 0, 4}).code(), StatusCode::invalid);
  EXPECT_EQ(off.read({"r", 0, 4}).status().code(), StatusCode::invalid);
  EXPECT_TRUE(names(off.write({"r", 0, 4}, {}), "\"shared_memory\"", "--shared-memory"));
  off.remove("");
  EXPECT_TRUE(off.regions().empty());
}

TEST(SharedMemory, ARegionIsAPartOfWhatIsThere) {
  const ClientMemory client(100);
  SharedMemory regions(true);
  ASSERT_TRUE(regions.add({"r", client.key(), 10, 50}).ok());
  ASSERT_TRUE(regions.add({"s", client.key(), 0, 100}).ok());
  EXPECT_TRUE(names(regions.add({"r", client.key(), 0, 1}), "'r'"));
  for (const auto& [offset, bytes] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {0, 101}, {100, 1}, {101, 0}, {0, 0}, {~0ULL, 2}, {2, ~0ULL}}) {
    EXPECT_TRUE(names(regions.add({"t", client.key(), offset, bytes}), "100 bytes",
                      "'" + client.key() + "'"));
  }
  for (const std::string& key :
       {std::string("/gpulet_no_such_memory"), std::string(), std::string("/"), std::string(".."),
        std::string("/a/b"), std::string(1000, 'a'), std::string("/a\0b", 4)}) {
    EXPECT_EQ(regions.add({"t", key, 0, 1}).code(), StatusCode::invalid) << key;
  }
  const auto status = json_of(shared_memory_status(regions.regions()));
  EXPECT_EQ(status,
            Json({{{"name", "r"}, {"key", client.key()}, {"offset", 10}, {"byte_size", 50}},
                  {{"name", "s"}, {"key", client.key()}, {"offset", 0}, {"byte_size", 100}}}));
  regions.remove("nobody");
  regions.remove("r");
  EXPECT_EQ(regions.regions().size(), 1U);
  regions.remove("");
  EXPECT_TRUE(regions.regions().empty());
}

TEST(SharedMemory, SlicesStayWithinTheirRegion) {
  const ClientMemory client(100);
  client.put("hello", 12);
  SharedMemory regions(true);
  ASSERT_TRUE(regions.add({"r", client.key(), 10, 50}).ok());
  EXPECT_EQ(text_of(regions.read({"r", 2, 5}).value()), "hello");
  EXPECT_TRUE(regions.write({"r", 45, 5}, http::bytes_of("world")).ok());
  EXPECT_EQ(client.get(5, 55), "world");
  EXPECT_TRUE(names(regions.read({"r", 46, 5}).status(), "'r'", "50 bytes"));
  EXPECT_FALSE(regions.read({"r", ~0ULL, 2}).ok());
  EXPECT_FALSE(regions.read({"r", 0, ~0ULL}).ok());
  EXPECT_FALSE(regions.write({"r", 46, 5}, http::bytes_of("x")).ok());
  EXPECT_TRUE(names(regions.write({"r", 0, 4}, http::bytes_of("hello")), "'r'", "5 bytes", "4"));
  EXPECT_TRUE(names(regions.read({"s", 0, 1}).status(), "'s'"));
}

TEST(SharedMemory, AClientThatShrinksItsMemoryGetsAnError) {
  const ClientMemory client(100);
  SharedMemory regions(true);
  ASSERT_TRUE(regions.add({"r", client.key(), 0, 100}).ok());
  client.resize(10);
  EXPECT_EQ(regions.read({"r", 0, 100}).status().code(), StatusCode::invalid);
  EXPECT_EQ(regions.read({"r", 8, 8}).status().code(), StatusCode::invalid);
  EXPECT_EQ(regions.write({"r", 90, 4}, http::bytes_of("abcd")).code(), StatusCode::invalid);
}

TEST(SharedMemory, ARegistrationNeedsKeyAndSize) {
  const auto wanted =
      read_register("r", http::bytes_of(R"({"key":"/k","offset":4,"byte_size":9,"more":[1]})"));
  ASSERT_TRUE(wanted.ok());
  EXPECT_EQ(wanted.value().name, "r");
  EXPECT_EQ(wanted.value().key, "/k");
  EXPECT_EQ(wanted.value().offset, 4U);
  EXPECT_EQ(wanted.value().bytes, 9U);
  for (const char* const body :
       {"", "[]", "{}", R"({"key":"/k"})", R"({"byte_size":9})", R"({"key":7,"byte_size":9})",
        R"({"key":"/k","byte_size":-9})", R"({"key":"/k","byte_size":"9"})",
        R"({"key":"/k","byte_size":9,"offset":1.5})"}) {
    const Status refused = read_register("r", http::bytes_of(body)).status();
    EXPECT_EQ(refused.code(), StatusCode::invalid) << body;
    EXPECT_TRUE(names(refused, "'r'")) << body;
  }
}

TEST(SharedMemory, TensorsAreTakenFromThereAndPutThere) {
  const ClientMemory client(100);
  client.put(text_of(bytes_of<float>({1, 2, 3, 4})), 8);
  SharedMemory regions(true);
  ASSERT_TRUE(regions.add({"r", client.key(), 0, 100}).ok());
  const auto request = [](const std::string& bytes) {
    return http::bytes_of(R"({"inputs":[{"name":"x","shape":[1,2,2],"datatype":"FP32","parameters":
      {"shared_memory_region":"r","shared_memory_offset":8,"shared_memory_byte_size":)" +
                          bytes + R"(}}],"outputs":[{"name":"y","parameters":
      {"shared_memory_region":"r","shared_memory_offset":40,"shared_memory_byte_size":20}}]})");
  };
  const Model model = small_model();
  const auto call = read_infer({}, request("16"), model, regions);
  ASSERT_TRUE(call.ok()) << call.status().to_string();
  EXPECT_EQ(text_of(call.value().requests[0].payload), text_of(bytes_of<float>({1, 2, 3, 4})));
  const std::vector<InferReply> replies{reply(model, {bytes_of<float>({7, 8, 9})})};
  const auto response = write_infer(call.value(), model, replies, regions);
  // Clients take any parameters of an output to hold a binary_data_size.
  EXPECT_EQ(json_of(response)["outputs"][0],
            Json::parse(R"({"name":"y","datatype":"FP32","shape":[1,3]})"));
  EXPECT_EQ(http::find_header(response.headers, "Inference-Header-Content-Length"), "");
  EXPECT_EQ(client.get(12, 40), text_of(bytes_of<float>({7, 8, 9})));
  EXPECT_TRUE(names(read_infer({}, request("20"), model, regions).status(), "16", "20"));
  EXPECT_EQ(read_infer({}, request("16"), model, SharedMemory(false)).status().code(),
            StatusCode::invalid);
  regions.remove("r");
  EXPECT_EQ(write_infer(call.value(), model, replies, regions).status, 400U);
}

}  // namespace
}  // namespace gpulet::net::kserve

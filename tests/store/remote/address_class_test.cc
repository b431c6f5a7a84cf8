#include "store/remote/address_class.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "store/remote/http_get.h"
#include "tests/support/store/object_server.h"

namespace gpulet::store::remote::address_class_test {
namespace {

using gpulet::testing::ObjectAnswer;
using gpulet::testing::ObjectRequest;
using gpulet::testing::ObjectServer;

TEST(AddressClass, TellsWhoCanReachAnAddress) {
  struct Case {
    const char* address;
    AddressClass expected;
  };
  for (const Case& one : {Case{"8.8.8.8", AddressClass::global},
                          Case{"2606:4700::1", AddressClass::global},
                          Case{"::ffff:8.8.8.8", AddressClass::global},
                          Case{"127.0.0.1", AddressClass::loopback},
                          Case{"127.1", AddressClass::loopback},
                          Case{"0177.0.0.1", AddressClass::loopback},
                          Case{"2130706433", AddressClass::loopback},
                          Case{"[::1]", AddressClass::loopback},
                          Case{"::ffff:127.0.0.1", AddressClass::loopback},
                          Case{"::127.0.0.1", AddressClass::loopback},
                          Case{"64:ff9b::127.0.0.1", AddressClass::loopback},
                          Case{"2002:7f00:1::", AddressClass::loopback},
                          Case{"10.1.2.3", AddressClass::private_network},
                          Case{"172.31.255.255", AddressClass::private_network},
                          Case{"172.32.0.0", AddressClass::global},
                          Case{"192.168.0.1", AddressClass::private_network},
                          Case{"100.64.0.1", AddressClass::private_network},
                          Case{"fd00::1", AddressClass::private_network},
                          Case{"169.254.169.254", AddressClass::link_local},
                          Case{"fe80::1%eth0", AddressClass::link_local},
                          Case{"0.0.0.0", AddressClass::special},
                          Case{"::", AddressClass::special},
                          Case{"224.0.0.1", AddressClass::special},
                          Case{"255.255.255.255", AddressClass::special},
                          Case{"ff02::1", AddressClass::special}})
    EXPECT_EQ(class_of(std::string(one.address)), one.expected) << one.address;
  EXPECT_EQ(class_of(std::string("store.example")), std::nullopt);
}

// The address that counts is the one behind the name.
TEST(HttpGet, ANameOfThisMachineIsNotReachedFromElsewhere) {
  ObjectServer server([](const ObjectRequest&) { return ObjectAnswer{200, {}, "secret"}; });
  const GetLimits limits{.connect = std::chrono::seconds(5),
                         .total = std::chrono::seconds(20),
                         .min_bytes_per_second = 1,
                         .stall = std::chrono::seconds(20)};
  const GetCalls calls{[](const ResponseHead&) { return Status(); },
                       [](std::string_view) { return Status(); }, [] { return false; }};
  GetRequest request{"http://localhost:" + std::to_string(server.port()) + "/", {}, {}};
  request.reaches = AddressClass::global;
  EXPECT_EQ(http_get(request, limits, calls).status().code(), StatusCode::invalid);
  EXPECT_TRUE(server.requests().empty());
  request.reaches = AddressClass::loopback;
  EXPECT_TRUE(http_get(request, limits, calls).ok());
}

}  // namespace
}  // namespace gpulet::store::remote::address_class_test

#include "net/http/inbox.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

namespace gpulet::net::http::inbox_test {
namespace {

std::string text_in(const Inbox& inbox) {
  const auto bytes = inbox.view();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Receives as much of the text as fits. Returns its length.
std::size_t receive(Inbox& inbox, std::string_view text, std::size_t capacity) {
  const auto space = inbox.space(capacity);
  const std::size_t bytes = std::min(space.size(), text.size());
  if (bytes > 0) std::memcpy(space.data(), text.data(), bytes);
  inbox.received(bytes);
  return bytes;
}

TEST(Inbox, HoldsNothingAtFirst) {
  Inbox inbox;
  EXPECT_TRUE(inbox.empty());
  EXPECT_EQ(inbox.capacity(), 0U);
  EXPECT_EQ(inbox.view().size(), 0U);
}

TEST(Inbox, HasNoSpaceWhenItIsFull) {
  Inbox inbox;
  EXPECT_EQ(receive(inbox, "0123456789", 4), 4U);
  EXPECT_TRUE(inbox.space(4).empty());
  EXPECT_EQ(inbox.space(6).size(), 2U);
  EXPECT_EQ(text_in(inbox), "0123");
}

TEST(Inbox, UsesTheSpaceOfTakenBytesAgain) {
  Inbox inbox;
  receive(inbox, "0123", 4);
  inbox.take(3);
  EXPECT_EQ(inbox.space(4).size(), 3U);
  EXPECT_EQ(receive(inbox, "456", 4), 3U);
  EXPECT_EQ(text_in(inbox), "3456");
  EXPECT_EQ(inbox.capacity(), 4U);
}

TEST(Inbox, NeverShrinks) {
  Inbox inbox;
  EXPECT_EQ(inbox.space(8).size(), 8U);
  EXPECT_EQ(inbox.space(4).size(), 8U);
}

TEST(Inbox, ClearsItsBytesAndReleasesItsMemory) {
  Inbox inbox;
  receive(inbox, "0123", 4);
  inbox.clear();
  EXPECT_TRUE(inbox.empty());
  EXPECT_EQ(inbox.capacity(), 4U);
  receive(inbox, "45", 4);
  inbox.release();
  EXPECT_TRUE(inbox.empty());
  EXPECT_EQ(inbox.capacity(), 0U);
}

RC_GTEST_PROP(InboxProperty, HoldsTheBytesThatWereNotTakenInOrder, (const std::string& stream)) {
  Inbox inbox;
  std::string_view rest = stream;
  std::string expected;
  std::string taken;
  while (!rest.empty() || !expected.empty()) {
    const std::size_t most = *rc::gen::inRange<std::size_t>(1, 20);
    const std::size_t capacity = *rc::gen::inRange<std::size_t>(1, 40);
    const std::size_t bytes = receive(inbox, rest.substr(0, most), capacity);
    expected += rest.substr(0, bytes);
    rest.remove_prefix(bytes);
    RC_ASSERT(text_in(inbox) == expected);
    const std::size_t least = bytes == 0 ? 1 : 0;  // it is full, or all has come
    const std::size_t take = *rc::gen::inRange<std::size_t>(least, expected.size() + 1);
    inbox.take(take);
    taken += expected.substr(0, take);
    expected.erase(0, take);
    RC_ASSERT(inbox.empty() == expected.empty());
  }
  RC_ASSERT(taken == stream);
}

}  // namespace
}  // namespace gpulet::net::http::inbox_test

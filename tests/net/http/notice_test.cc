#include "net/http/notice.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/net/loop.h"

namespace gpulet::net::http::notice_test {
namespace {

class NoticeTest : public ::testing::Test {
 protected:
  net::testing::Loop loop_;
  Notice notice_;
  int calls_ = 0;
};

TEST_F(NoticeTest, IsCalledOnce) {
  EXPECT_FALSE(notice_.pending());
  notice_.tell();
  notice_.set([this] { ++calls_; });
  EXPECT_TRUE(notice_.pending());
  notice_.tell();
  notice_.tell();
  EXPECT_EQ(calls_, 1);
  EXPECT_FALSE(notice_.pending());
}

TEST_F(NoticeTest, IsReplaced) {
  notice_.set([this] { calls_ += 100; });
  notice_.set([this] { ++calls_; });
  notice_.tell();
  EXPECT_EQ(calls_, 1);
}

TEST_F(NoticeTest, IsPostedOnce) {
  notice_.post(loop_.executor());
  notice_.set([this] { ++calls_; });
  notice_.post(loop_.executor());
  EXPECT_FALSE(notice_.pending());
  notice_.post(loop_.executor());
  EXPECT_EQ(calls_, 0) << "not from within the call";
  loop_.run_ready();
  EXPECT_EQ(calls_, 1);
}

TEST_F(NoticeTest, MayBeSetInItsOwnCall) {
  notice_.set([this] {
    ++calls_;
    notice_.set([this] { ++calls_; });
  });
  notice_.tell();
  EXPECT_EQ(calls_, 1);
  EXPECT_TRUE(notice_.pending());
  notice_.tell();
  EXPECT_EQ(calls_, 2);
}

TEST_F(NoticeTest, MayBeDestroyedInItsOwnCall) {
  auto owned = std::make_unique<Notice>();
  owned->set([this, &owned] {
    owned.reset();
    ++calls_;
  });
  owned->tell();
  EXPECT_EQ(calls_, 1);
}

TEST_F(NoticeTest, KeepsWhatItRefersToForItsTaker) {
  auto value = std::make_shared<int>(1);
  const std::weak_ptr<int> kept = value;
  notice_.set([value] {});
  value.reset();
  {
    const Notice::Call taken = notice_.take();
    EXPECT_FALSE(notice_.pending());
    EXPECT_FALSE(kept.expired());
  }
  EXPECT_TRUE(kept.expired());
}

}  // namespace
}  // namespace gpulet::net::http::notice_test

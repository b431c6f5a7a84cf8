#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "gpulet/base/bytes.h"
#include "gpulet/base/random.h"
#include "gpulet/base/sha256.h"
#include "gpulet/base/status.h"

namespace gpulet {
namespace {

TEST(StatusTest, TellsWhereOnTheWayOut) {
  const Status status(StatusCode::invalid, "rate must not be negative; was -3");
  EXPECT_EQ(status.within("models.json").to_string(),
            "invalid: models.json: rate must not be negative; was -3");
  EXPECT_TRUE(Status().within("anywhere").ok());
}

TEST(ResultTest, AskingAFailureForItsValueIsABug) {
  const Result<int> failure = Status(StatusCode::not_found, "no such model");
  EXPECT_FALSE(failure.ok());
  EXPECT_THROW((void)failure.value(), std::logic_error);
  EXPECT_THROW(static_cast<void>(Result<int>{Status()}), std::logic_error);
}

TEST(BytesTest, SliceSharesMemoryAndKeepsItAlive) {
  Bytes slice;
  {
    const Bytes whole = Bytes::own(std::vector<std::byte>(8, std::byte{7}));
    slice = whole.slice(2, 4);
    EXPECT_EQ(slice.view().data(), whole.view().data() + 2);
    EXPECT_THROW((void)whole.slice(6, 3), std::out_of_range);
  }
  EXPECT_EQ(std::to_integer<int>(slice.view()[3]), 7);
}

TEST(RandomTest, SeedDecidesTheSequence) {
  Random one(42);
  Random same(42);
  Random other(43);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t value = one.next();
    EXPECT_EQ(value, same.next());
    seen.insert(value);
    seen.insert(other.next());
  }
  EXPECT_EQ(seen.size(), 200U);
}

TEST(RandomTest, ExponentialHasItsMean) {
  Random random(1);
  double sum = 0;
  constexpr int kDraws = 200000;
  for (int i = 0; i < kDraws; ++i) sum += random.exponential(3);
  EXPECT_NEAR(sum / kDraws, 3, 0.05);
}

TEST(RandomTest, LogNormalHasItsMeanAndVariation) {
  Random random(1);
  EXPECT_EQ(random.log_normal(0), 1);
  for (const double cv : {0.05, 0.2, 1.0}) {
    double sum = 0;
    double squares = 0;
    constexpr int kDraws = 400000;
    for (int i = 0; i < kDraws; ++i) {
      const double value = random.log_normal(cv);
      ASSERT_GT(value, 0);
      sum += value;
      squares += value * value;
    }
    const double mean = sum / kDraws;
    EXPECT_NEAR(mean, 1, 0.01);
    EXPECT_NEAR(std::sqrt(squares / kDraws - mean * mean), cv, 0.05 * cv);
  }
}

TEST(RandomTest, BelowStaysBelow) {
  Random random(5);
  for (int i = 0; i < 1000; ++i) EXPECT_LT(random.below(7), 7U);
}

TEST(Sha256Test, KnownDigestsInAnyPieces) {
  const std::string text = "abc";
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text.data(), 1)));
  hash.update(std::as_bytes(std::span(text.data() + 1, 2)));
  EXPECT_EQ(hash.finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of(text), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256().finish(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256Test, MissingFileIsNotFound) {
  const auto result =
      sha256_of_file(std::filesystem::temp_directory_path() / "gpulet-no-such-file");
  EXPECT_EQ(result.status().code(), StatusCode::not_found);
}

TEST(Sha256Test, OnlyRegularFilesAreRead) {
  for (const char* const file : {"/dev/zero", "/tmp"})
    EXPECT_EQ(sha256_of_file(file).status().code(), StatusCode::invalid) << file;
}

}  // namespace
}  // namespace gpulet

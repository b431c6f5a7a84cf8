#include "executor/row_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/names.h"

namespace gpulet::executor {
namespace {

using support::names;
using Rows = std::vector<std::vector<float>>;

constexpr std::size_t kWidth = 2;
constexpr double kTolerance = 1e-3;

// A model from x FP32[2] to y FP32[2], given by what it makes of the rows of a batch.
class Model {
 public:
  explicit Model(std::function<Rows(Rows, std::uint32_t draw)> rows) : rows_(std::move(rows)) {}

  [[nodiscard]] Status check(std::uint32_t max_batch) {
    const std::vector<TensorSpec> inputs{{"x", DataType::fp32, {kWidth}}};
    const std::vector<TensorSpec> outputs{{"y", DataType::fp32, {kWidth}}};
    RowCheck check(inputs, outputs, kTolerance,
                   [this](std::uint32_t count, std::span<const std::byte> input,
                          std::uint32_t draw) { return run(count, input, draw); });
    Status status = check.begin();
    for (std::uint32_t count = 2; status.ok() && count <= max_batch; ++count)
      status = check.check(count);
    if (status.ok() && max_batch > 1) status = check.check(max_batch);  // in another order
    content_ = check.content();
    return status.ok() ? check.check_repeats() : status;
  }
  [[nodiscard]] SampleContent content() const { return content_; }

 private:
  Result<std::vector<std::byte>> run(std::uint32_t count, std::span<const std::byte> input,
                                     std::uint32_t draw) {
    Rows rows(count, std::vector<float>(kWidth));
    for (std::size_t i = 0; i < count; ++i)
      std::memcpy(rows[i].data(), input.data() + i * kWidth * sizeof(float),
                  kWidth * sizeof(float));
    rows = rows_(rows, draw);
    if (rows.size() != count) return Status(StatusCode::invalid, "has other rows");
    std::vector<std::byte> output(input.size());
    for (std::size_t i = 0; i < count; ++i)
      std::memcpy(output.data() + i * kWidth * sizeof(float), rows[i].data(),
                  kWidth * sizeof(float));
    return output;
  }

  std::function<Rows(Rows, std::uint32_t)> rows_;
  SampleContent content_{};
};

// Without random numbers.
Model model(std::function<Rows(Rows)> rows) {
  return Model(
      [rows = std::move(rows)](Rows given, std::uint32_t) { return rows(std::move(given)); });
}

// With a change of each number that depends on the whole batch.
Model coupled(std::function<float(const Rows&)> of_batch) {
  return model([of_batch = std::move(of_batch)](Rows rows) {
    const float change = of_batch(rows);
    for (auto& row : rows) {
      for (float& number : row) number += change;
    }
    return rows;
  });
}

TEST(RowCheck, PassesIndependentRows) {
  EXPECT_TRUE(model([](Rows rows) { return rows; }).check(9).ok());
  EXPECT_TRUE(model([](Rows rows) {
                for (auto& row : rows) row[1] = std::numeric_limits<float>::quiet_NaN();
                return rows;
              })
                  .check(9)
                  .ok());
  // As another order of addition changes the result.
  EXPECT_TRUE(coupled([](const Rows& rows) { return 1e-5F * static_cast<float>(rows.size()); })
                  .check(9)
                  .ok());
}

TEST(RowCheck, FindsRowsThatDependOnEachOther) {
  const auto expect_found = [](Model found, std::uint32_t max_batch, const char* what) {
    const Status status = found.check(max_batch);
    EXPECT_EQ(status.code(), StatusCode::invalid) << what;
    EXPECT_TRUE(names(status, "'y'", "--max-batch 1"));
    EXPECT_TRUE(found.check(1).ok()) << what;
  };
  const auto count = [](const Rows& rows) { return static_cast<float>(rows.size() - 1); };
  for (const std::uint32_t max_batch : {2U, 3U, 8U}) {
    expect_found(coupled(count), max_batch, "size");
    expect_found(model([](Rows rows) {
                   for (std::size_t i = 1; i < rows.size(); ++i) rows[i][0] += rows[i - 1][0];
                   return rows;
                 }),
                 max_batch, "running sum");
    expect_found(model([](Rows rows) {
                   std::reverse(rows.begin(), rows.end());
                   return rows;
                 }),
                 max_batch, "reversed");
    expect_found(model([](Rows rows) {
                   std::sort(rows.begin(), rows.end());
                   return rows;
                 }),
                 max_batch, "sorted");
    expect_found(model([](Rows rows) {
                   std::sort(rows.rbegin(), rows.rend());
                   return rows;
                 }),
                 max_batch, "sorted, falling");
  }
  expect_found(coupled([](const Rows& rows) { return rows.size() > 6 ? 1.0F : 0.0F; }), 8,
               "large batches");
}

TEST(RowCheck, DoesNotCompareRandomNumbers) {
  float random = 0;
  Model noise([&random](Rows rows, std::uint32_t draw) {
    // Equal for equal draws, as after a seed.
    random = static_cast<float>(draw);
    for (auto& row : rows) row[0] += random += 1;
    return rows;
  });
  EXPECT_TRUE(noise.check(8).ok());
}

TEST(RowCheck, FindsWhatEarlierBatchesLeft) {
  std::vector<float> last(kWidth);
  Model state = model([&last](Rows rows) {
    std::swap(last, rows[0]);
    return rows;
  });
  for (const std::uint32_t max_batch : {1U, 4U})
    EXPECT_EQ(state.check(max_batch).code(), StatusCode::invalid);
}

TEST(RowCheck, TakesSamplesThatTheModelComputes) {
  const auto refuses = [](bool (*bad)(float)) {
    return model([bad](Rows rows) {
      for (const auto& row : rows) {
        if (std::any_of(row.begin(), row.end(), bad)) return Rows();
      }
      return rows;
    });
  };
  Model positive = refuses([](float number) { return number < 0; });
  EXPECT_TRUE(positive.check(4).ok());
  EXPECT_NE(positive.content(), SampleContent::varied);
  Model all = refuses([](float) { return true; });
  EXPECT_EQ(all.check(1).code(), StatusCode::invalid);
  Model one = model([](const Rows& rows) { return rows.size() == 1 ? rows : Rows(); });
  EXPECT_TRUE(one.check(1).ok());
  EXPECT_TRUE(names(one.check(2), "--max-batch 1"));
}

TEST(RowCheck, SamplesHaveTheBytesOfTheirTensors) {
  for (int number = 1; number <= 11; ++number) {
    TensorSpec spec{"x", static_cast<DataType>(number), {2, 3}};
    if (spec.type == DataType::bytes) spec.max_bytes = 60;
    const std::size_t size = byte_size(spec).value();
    const auto batch = sample_batch({spec}, {{1U, 0U, 1U}}, SampleContent::varied);
    ASSERT_EQ(batch.size(), 3 * size) << to_string(spec);
    const auto row = [&](std::size_t i) {
      return std::vector(batch.begin() + static_cast<std::ptrdiff_t>(i * size),
                         batch.begin() + static_cast<std::ptrdiff_t>((i + 1) * size));
    };
    EXPECT_EQ(row(0), row(2)) << to_string(spec);
    EXPECT_NE(row(0), row(1)) << to_string(spec);
  }
}

}  // namespace
}  // namespace gpulet::executor

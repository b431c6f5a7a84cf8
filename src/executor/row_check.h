// RowCheck: whether a model computes each row of a batch by itself. A batch holds the requests of
// several clients, so a model whose rows depend on each other must not get more than one at a time.
// For loading: compares rows of sample batches with the same rows in batches of one.
//
// Outputs that differ between two equal batches come from random numbers; they are not compared.
// One thread at a time; it does what `run` does, and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "gpulet/base/status.h"
#include "gpulet/core/tensor.h"

namespace gpulet::executor {

// What samples contain. A sample that a model cannot compute gives way to the next kind.
enum class SampleContent : std::uint8_t {
  varied = 0,   // floating-point numbers of both signs, whole numbers from 0 to 2
  careful = 1,  // floating-point numbers from 0 to 1, whole numbers 0 and 1
  plain = 2,    // floating-point numbers from 0 to 1, whole numbers 0
};

inline constexpr std::uint32_t kSampleRows = 3;

// A batch in which the request at position i is the sample row rows[i]. Inputs that are converted
// have bytes of all sizes, whatever the content. Those with a range have values of it. Strings are
// whole numbers, or empty where their slot has no room. REQUIRES: the rows are below kSampleRows,
// and the tensors have sizes.
[[nodiscard]] std::vector<std::byte> sample_batch(const std::vector<TensorSpec>& inputs,
                                                  std::span<const std::uint32_t> rows,
                                                  SampleContent content);

// The failure of a batch of several of a model that computes batches of one, with the fix.
[[nodiscard]] Status takes_one_only(const Status& failure);

class RowCheck {
 public:
  // Runs a batch of `count` and returns its outputs, one after another. Runs with the same `draw`
  // take the same random numbers, where the library allows it. Fails with invalid where the model
  // does not compute the batch as declared.
  using Run = std::function<Result<std::vector<std::byte>>(
      std::uint32_t count, std::span<const std::byte> input, std::uint32_t draw)>;

  // `tolerance`: how far a floating-point number may be off, as a fraction of the largest magnitude
  // of its tensor, because libraries add in another order in other batches. Those of 16 bits may be
  // off by more. REQUIRES: the specs outlive this object and have sizes.
  RowCheck(const std::vector<TensorSpec>& inputs, const std::vector<TensorSpec>& outputs,
           double tolerance, Run run);

  // Runs batches of one. The first call. Fails as `run`.
  [[nodiscard]] Status begin();
  // Of the samples that the model computed.
  [[nodiscard]] SampleContent content() const { return content_; }
  // Runs a batch of that size. Fails as `run`, or with invalid if its rows depend on each other,
  // naming the output and the fix. Each call has its rows in another order.
  [[nodiscard]] Status check(std::uint32_t count);
  // Runs the first batch of one again. Fails with invalid if an output differs from before: it
  // holds what earlier batches left. Only for a library whose random numbers `draw` decides.
  [[nodiscard]] Status check_repeats();

 private:
  [[nodiscard]] Status run_alone();
  [[nodiscard]] Status compare(std::uint32_t count, std::span<const std::uint32_t> rows,
                               std::span<const std::byte> input,
                               std::span<const std::byte> outputs);
  [[nodiscard]] bool same(std::size_t output, std::span<const std::byte> left,
                          std::span<const std::byte> right) const;

  const std::vector<TensorSpec>& inputs_;
  const std::vector<TensorSpec>& outputs_;
  const double tolerance_;
  const Run run_;
  std::vector<std::size_t> output_sizes_;
  SampleContent content_ = SampleContent::varied;
  std::vector<std::vector<std::byte>> alone_;  // the outputs of the rows 0 and 1
  std::vector<bool> random_;                   // by output
  std::uint32_t checks_ = 0;
};

}  // namespace gpulet::executor

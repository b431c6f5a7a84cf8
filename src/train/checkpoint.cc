#include "train/checkpoint.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "gpulet/base/sha256.h"

namespace gpulet::train {

namespace {

// Checkpoints hold values in the machine's byte order.
static_assert(std::endian::native == std::endian::little);

class RecordWriter {
 public:
  template <typename T>
  void value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }

  template <typename Values>  // a vector or string
  void values(const Values& values) {
    using T = typename Values::value_type;
    static_assert(std::is_trivially_copyable_v<T>);
    value(std::uint64_t{values.size()});
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }

  [[nodiscard]] std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class RecordTooShort : public std::runtime_error {
 public:
  RecordTooShort() : std::runtime_error("the file ends too early") {}
};

// Throws RecordTooShort when the bytes do not suffice, before it allocates.
class RecordReader {
 public:
  explicit RecordReader(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  void value(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::memcpy(&value, cut(sizeof(T)).data(), sizeof(T));
  }

  template <typename Values>
  void values(Values& values) {
    using T = typename Values::value_type;
    static_assert(std::is_trivially_copyable_v<T>);
    std::uint64_t count = 0;
    value(count);
    if (count > rest_.size() / sizeof(T)) throw RecordTooShort();
    values.resize(count);
    const std::string_view bytes = cut(count * sizeof(T));
    if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
  }

  [[nodiscard]] bool at_end() const { return rest_.empty(); }

 private:
  std::string_view cut(std::size_t size) {
    if (size > rest_.size()) throw RecordTooShort();
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  std::string_view rest_;
};

constexpr std::string_view kFirstLine = "gpulet training checkpoint 2\n";
constexpr std::size_t kHashLength = 64;

// One field list for both directions: `each` is a RecordWriter or a RecordReader.
template <typename Record, typename Trained>
void walk_trained(Record& each, Trained& trained) {
  each.values(trained.parameters);
  each.values(trained.first_moments);
  each.values(trained.second_moments);
}

template <typename Record, typename Of>
void walk(Record& each, Of& checkpoint) {
  each.values(checkpoint.made_with);
  each.values(checkpoint.trained_for);
  each.values(checkpoint.curve);
  each.value(checkpoint.best_episode);
  each.value(checkpoint.best_reward);
  each.values(checkpoint.best_weights);
  auto& learner = checkpoint.learner;
  each.value(learner.updates);
  walk_trained(each, learner.policy);
  for (auto& critic : learner.critics) walk_trained(each, critic);
  for (auto& target : learner.targets) each.values(target);
  walk_trained(each, learner.log_temperature);
  each.value(learner.replay.next);
  each.values(learner.replay.observations);
  each.values(learner.replay.next_observations);
  each.values(learner.replay.chosen);
  each.values(learner.replay.allowed);
  each.values(learner.replay.rewards);
}

std::string digits(double value) {
  std::array<char, 32> text{};
  const int length = std::snprintf(text.data(), text.size(), "%.17g", value);
  return {text.data(), static_cast<std::size_t>(length)};
}

}  // namespace

std::string in_words(const TrainingOptions& options) {
  const LearnerOptions& learner = options.learner;
  std::string words = "seed " + std::to_string(options.seed) + ", hidden";
  for (const std::uint32_t width : learner.hidden) words += " " + std::to_string(width);
  words += ", learning rate " + digits(learner.learning_rate) + ", discount " +
           digits(learner.discount) + ", target update " + digits(learner.target_update) +
           ", first temperature " + digits(learner.first_temperature) + ", target entropy ";
  words += learner.target_entropy == TargetEntropy::paper
               ? "of the paper"
               : digits(learner.entropy_fraction) + " of the even choice's";
  words += ", reward scale " + digits(learner.reward_scale) + ", batch " +
           std::to_string(learner.batch) + ", replay " + std::to_string(learner.replay_capacity) +
           ", " + std::to_string(options.played_episodes) + " episodes played after every " +
           std::to_string(options.play_every);
  return words;
}

std::string write_checkpoint(const Checkpoint& checkpoint) {
  RecordWriter writer;
  walk(writer, checkpoint);
  const std::string body = writer.take();
  return std::string(kFirstLine) + sha256_of(body) + "\n" + body;
}

Result<Checkpoint> read_checkpoint(std::string_view bytes) {
  const auto bad = [](const std::string& what) { return Status(StatusCode::malformed, what); };
  if (!bytes.starts_with(kFirstLine)) {
    return bad("is not a checkpoint of gpulet train: it does not begin with \"" +
               std::string(kFirstLine.substr(0, kFirstLine.size() - 1)) + "\"");
  }
  bytes.remove_prefix(kFirstLine.size());
  const std::string_view body = bytes.size() > kHashLength ? bytes.substr(kHashLength + 1) : "";
  if (bytes.substr(0, kHashLength) != sha256_of(body))
    return bad("is damaged: the SHA-256 of its contents differs; use an earlier checkpoint");
  try {
    RecordReader reader(body);
    Checkpoint checkpoint;
    checkpoint.learner.critics.resize(2);
    checkpoint.learner.targets.resize(2);
    walk(reader, checkpoint);
    if (!reader.at_end()) return bad("has extra bytes at its end");
    return checkpoint;
  } catch (const RecordTooShort& error) {
    return bad(error.what());
  }
}

}  // namespace gpulet::train

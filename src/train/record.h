// Values one after another as bytes, and back: what a checkpoint is made of. The bytes are those of
// a little-endian machine, which is all that this builds for. One thread at a time.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace gpulet::train {

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

// The end of the bytes came before the end of what is read.
class RecordEnds : public std::runtime_error {
 public:
  RecordEnds() : std::runtime_error("it ends too early") {}
};

// Every reading throws RecordEnds where the bytes do not suffice, before it allocates.
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
    if (count > rest_.size() / sizeof(T)) throw RecordEnds();
    values.resize(count);
    const std::string_view bytes = cut(count * sizeof(T));
    if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
  }

  [[nodiscard]] bool at_end() const { return rest_.empty(); }

 private:
  std::string_view cut(std::size_t size) {
    if (size > rest_.size()) throw RecordEnds();
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }

  std::string_view rest_;
};

}  // namespace gpulet::train

// How readers of configuration files tell what they accept. A description is a document without
// values: every key is there and every list has an element, but nothing has a value. Where a reader
// would record that a value is not what it expects, the description notes what it expects instead.
// So the functions that read a file describe it, too, and need not know of descriptions.
//
// Readers get neutral values from a description, and no error is recorded in it. Its status() is
// not ok, so readers skip what they check of a document as a whole. One thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gpulet/config/check_file.h"
#include "gpulet/config/readers.h"

namespace gpulet::config {

// What the place of an object expects.
inline constexpr std::string_view kAnObject = "an object";

class Description {
 public:
  Description() = default;
  Description(const Description&) = delete;  // cursors refer to it
  Description& operator=(const Description&) = delete;

  // For the reader of a file. The description must outlive it and all cursors that come from it.
  [[nodiscard]] JsonCursor root();
  // The description that the cursor belongs to; null for a cursor of a document.
  [[nodiscard]] static Description* of(const JsonCursor& cursor);

  // The first key of a pointer and the first expectation of a place stay.
  void add(KeyReference key);
  void expect(const std::string& pointer, std::string_view expected);

  // In the order in which they were added, each with what its place expects.
  [[nodiscard]] std::vector<KeyReference> keys() const;

 private:
  std::vector<KeyReference> keys_;
  std::map<std::string, std::string> expected_;  // by pointer
};

// For a reader whose expectations depend on other values. In a description, notes what it expects
// at the cursor and returns true; of a document, returns false.
[[nodiscard]] bool describes(const JsonCursor& at, std::string_view expected);

}  // namespace gpulet::config

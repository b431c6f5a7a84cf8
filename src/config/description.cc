#include "config/description.h"

#include <algorithm>
#include <utility>

namespace gpulet::config {

JsonCursor Description::root() { return JsonCursor::describing(*this); }

Description* Description::of(const JsonCursor& cursor) { return cursor.description(); }

void Description::add(KeyReference key) {
  const bool known = std::any_of(keys_.begin(), keys_.end(), [&key](const KeyReference& one) {
    return one.pointer == key.pointer;
  });
  if (!known) keys_.push_back(std::move(key));
}

void Description::expect(const std::string& pointer, std::string_view expected) {
  expected_.try_emplace(pointer, expected);
}

std::vector<KeyReference> Description::keys() const {
  const auto expected_at = [this](const std::string& pointer) {
    const auto found = expected_.find(pointer);
    return found == expected_.end() ? std::string() : found->second;
  };
  std::vector<KeyReference> keys = keys_;
  for (KeyReference& key : keys) {
    key.value = expected_at(key.pointer);
    // Objects in a list have tables of their own.
    const std::string element = expected_at(key.pointer + "/*");
    if (!element.empty() && element != kAnObject) key.value += "; each " + element;
  }
  return keys;
}

bool describes(const JsonCursor& at, std::string_view expected) {
  Description* const description = Description::of(at);
  if (description != nullptr) description->expect(at.pointer(), expected);
  return description != nullptr;
}

}  // namespace gpulet::config

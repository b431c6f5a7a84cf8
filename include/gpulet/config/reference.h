// What configuration files may hold, told by their readers: the keys of each kind of file with
// their values, defaults and purpose. docs/configuration.md is as_markdown() of all of them. Pure;
// any thread.
#pragma once

#include <string>
#include <vector>

namespace gpulet::config {

struct KeyReference {
  // A JSON pointer, in which "*" stands for each element of a list and "NAME" for each name.
  std::string pointer;
  std::string value;      // what it accepts, in words: "a whole number from 0 to 64"
  bool required = false;  // in its object
  std::string otherwise;  // the value without the key, as JSON; empty: `help` says what it is
  std::string help;       // sentences
};

struct FileReference {
  std::string name;     // "frontend.json"
  std::string purpose;  // sentences
  // The keys of an object are together, and precede those of the objects in it.
  std::vector<KeyReference> keys;
};

// Frontend, backend, models, cluster, demand and workload files, in this order.
[[nodiscard]] std::vector<FileReference> file_references();

// A page: for each file a heading and a table for each of its objects.
[[nodiscard]] std::string as_markdown(const std::vector<FileReference>& files);

}  // namespace gpulet::config

// The configuration of the two fake libraries: a text file, named by GPULET_FAKE_GPUS, which they
// read at every call, so that a test can remove a GPU under a running program. They append their
// calls to
// "<that file>.calls". Without the file there is no GPU. fake_gpus.h describes the format.
#pragma once

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace gpulet::support {

class FakeSettings {
 public:
  [[nodiscard]] std::string text(const std::string& key, const std::string& otherwise) const {
    const auto found = values_.find(key);
    return found == values_.end() ? otherwise : found->second;
  }
  [[nodiscard]] long long number(const std::string& key, long long otherwise) const {
    const auto found = values_.find(key);
    return found == values_.end() ? otherwise : std::stoll(found->second);
  }
  void set(const std::string& key, const std::string& value) { values_[key] = value; }

 private:
  std::map<std::string, std::string> values_;
};

struct FakeMachine {
  FakeSettings settings;
  std::vector<FakeSettings> gpus;
};

inline std::string fake_control_file() {
  const char* const file = std::getenv("GPULET_FAKE_GPUS");
  return file != nullptr ? file : "";
}

inline FakeMachine read_fake_machine() {
  FakeMachine machine;
  std::ifstream stream(fake_control_file());
  for (std::string line; std::getline(stream, line);) {
    const std::size_t blank = line.find(' ');
    const std::string key = line.substr(0, blank);
    if (key == "gpu") {
      machine.gpus.emplace_back();
    } else if (blank != std::string::npos) {
      FakeSettings& owner = machine.gpus.empty() ? machine.settings : machine.gpus.back();
      owner.set(key, line.substr(blank + 1));
    }
  }
  return machine;
}

inline void record_fake_call(const std::string& line) {
  if (!fake_control_file().empty())
    std::ofstream(fake_control_file() + ".calls", std::ios::app) << line << '\n';
}

}  // namespace gpulet::support

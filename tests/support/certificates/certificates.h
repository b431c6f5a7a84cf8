// Authority: makes certificates as a test needs them, in files of a folder. For tests only.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gpulet/config/daemon_config.h"

namespace gpulet::testing {

class Authority {
 public:
  // Writes its own certificate to folder/name.pem.
  Authority(std::filesystem::path folder, const std::string& name);
  ~Authority();
  Authority(const Authority&) = delete;
  Authority& operator=(const Authority&) = delete;

  // A certificate for these names (addresses or hosts) and its key, in name.pem and name.key, with
  // this authority's own. The validity is in hours from now.
  [[nodiscard]] config::TlsFiles issue(const std::string& name,
                                       const std::vector<std::string>& names, int from_hours = -1,
                                       int to_hours = 24) const;
  [[nodiscard]] std::filesystem::path file() const;

 private:
  struct Impl;
  std::filesystem::path folder_;
  std::string name_;
  std::unique_ptr<Impl> impl_;
};

// Writes the text to a file that nobody else may read.
void write_secret(const std::filesystem::path& file, const std::string& text);

}  // namespace gpulet::testing

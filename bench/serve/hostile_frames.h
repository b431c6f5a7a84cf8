// The frames that an attacker sends (bench/serve/attacker.py), made with the protocol's own
// encoder.
#pragma once

#include <filesystem>
#include <string>

namespace gpulet::bench {

struct AttackedModels {
  std::string small;  // a model, and the SHA-256 of its file
  std::string small_sha256;
  std::string large;  // a model whose input may be large
};

// Writes each as NAME.bin into the folder: what a client says (status, models, announce), what a
// false backend says (hello_*, result_*, report_*, wanted, leaving), and valid_* of every kind.
// Throws std::runtime_error.
void write_attack_frames(const std::filesystem::path& folder, const AttackedModels& models);

}  // namespace gpulet::bench

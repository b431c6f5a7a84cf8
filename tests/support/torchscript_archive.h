// Files that look like TorchScript from outside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gpulet::support {

inline std::string little(std::uint64_t number, std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i));
  return text;
}

// A zip archive of empty members, as torch.jit.save writes it: with 64-bit records, or without.
inline std::string archive(const std::vector<std::string>& members, bool wide) {
  std::string text;
  std::string directory;
  for (const std::string& member : members) {
    directory += "PK\x01\x02" + std::string(24, '\0') + little(member.size(), 2) +
                 std::string(12, '\0') + little(text.size(), 4) + member;
    text += "PK\x03\x04" + std::string(22, '\0') + little(member.size(), 2) + little(0, 2) + member;
  }
  const std::uint64_t at = text.size();
  text += directory;
  if (wide) {
    const std::uint64_t record = text.size();
    text += "PK\x06\x06" + little(44, 8) + std::string(28, '\0') + little(directory.size(), 8) +
            little(at, 8);
    text += "PK\x06\x07" + little(0, 4) + little(record, 8) + little(1, 4);
  }
  const std::uint64_t in_64 = 0xffffffff;
  return text + "PK\x05\x06" + std::string(8, '\0') + little(wide ? in_64 : directory.size(), 4) +
         little(wide ? in_64 : at, 4) + little(0, 2);
}

// Of a model.
inline const std::vector<std::string> kMembers{"m/data.pkl", "m/code/__torch__.py",
                                               "m/constants.pkl", "m/data/0", "m/version"};

}  // namespace gpulet::support

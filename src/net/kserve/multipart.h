// The parts of a body of type multipart/form-data (RFC 7578), as browsers and `curl -F` send it.
// The body may come from an attacker: all bounds are checked before anything is kept. Private to
// net/kserve. Pure; any thread.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "gpulet/base/status.h"

namespace gpulet::net::kserve {

// Refers to the body.
struct FormPart {
  std::string_view content_type;  // without parameters; empty: the part states none
  bool is_file = false;           // it has a file name
  std::string_view content;
};

// The media type of a Content-Type, without its parameters and the blanks around it.
[[nodiscard]] std::string_view media_type(std::string_view content_type);

// Fails with invalid where the boundary or the structure is wrong, the body ends early, or it has
// more than `most_parts`.
[[nodiscard]] Result<std::vector<FormPart>> read_form(std::string_view content_type,
                                                      std::string_view body,
                                                      std::size_t most_parts);

}  // namespace gpulet::net::kserve

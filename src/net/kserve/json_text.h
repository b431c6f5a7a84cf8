// Text as JSON writes it. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

namespace gpulet::net::kserve {

// Appends it in double quotes. What is not UTF-8 becomes U+FFFD, so that no answer is unreadable.
void append_text(std::string& json, std::string_view text);

}  // namespace gpulet::net::kserve

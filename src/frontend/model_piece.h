// A piece of a model file, as a backend asks for it.
//
// Mapped, not read: what is sent is a view of the page cache that the socket takes from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "gpulet/serve/messages.h"

namespace gpulet::frontend {

// The piece that begins at `offset`. One without data, which says that the frontend does not have
// it, where the file cannot be mapped or ends before.
[[nodiscard]] serve::ModelPiece model_piece(const std::string& sha256,
                                            const std::filesystem::path& file,
                                            std::uint64_t offset);

}  // namespace gpulet::frontend

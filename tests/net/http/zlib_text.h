// Text in and out of gzip and deflate, by the library's own simplest means. For tests only.
#pragma once

#include <zlib.h>

#include <stdexcept>
#include <string>

namespace gpulet::net::http::testing {

// As zlib numbers them: the window's size, and what frame is around.
inline constexpr int kZlibFrame = 15;
inline constexpr int kGzipFrame = 31;
inline constexpr int kNoFrame = -15;

inline std::string compressed(const std::string& text, int frame) {
  z_stream zlib{};
  if (deflateInit2(&zlib, Z_BEST_COMPRESSION, Z_DEFLATED, frame, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("deflateInit2");
  std::string result(deflateBound(&zlib, text.size()) + 32, '\0');
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  zlib.avail_in = static_cast<uInt>(text.size());
  zlib.next_out = reinterpret_cast<Bytef*>(result.data());
  zlib.avail_out = static_cast<uInt>(result.size());
  const int outcome = deflate(&zlib, Z_FINISH);
  result.resize(zlib.total_out);
  deflateEnd(&zlib);
  if (outcome != Z_STREAM_END) throw std::runtime_error("deflate");
  return result;
}

inline std::string decompressed(const std::string& text, int frame,
                                std::size_t at_most = 1U << 24U) {
  z_stream zlib{};
  if (inflateInit2(&zlib, frame) != Z_OK) throw std::runtime_error("inflateInit2");
  std::string result(at_most, '\0');
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  zlib.avail_in = static_cast<uInt>(text.size());
  zlib.next_out = reinterpret_cast<Bytef*>(result.data());
  zlib.avail_out = static_cast<uInt>(result.size());
  const int outcome = inflate(&zlib, Z_FINISH);
  result.resize(zlib.total_out);
  inflateEnd(&zlib);
  if (outcome != Z_STREAM_END) throw std::runtime_error("inflate");
  return result;
}

}  // namespace gpulet::net::http::testing

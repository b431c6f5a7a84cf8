#include "net/http/coding.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "gpulet/base/text.h"
#include "gpulet/net/http/message.h"

namespace gpulet::net::http {
namespace {

// Takes a fraction of a millisecond; other requests are served between two steps.
constexpr std::size_t kInflatedPerStep = 64U << 10U;
constexpr std::size_t kDeflatedPerStep = 64U << 10U;

constexpr int kWindowBits = 15;
constexpr int kGzip = 16;  // added to the window bits, selects gzip framing
constexpr int kMemoryLevel = 8;

constexpr std::string_view kBlank = " \t";

// The weight of a list entry ("q=0.5"); 1 without one, 0 if it is malformed.
double weight_of(std::string_view parameters) {
  const std::size_t at = parameters.find_first_of("qQ");
  if (at == std::string_view::npos) return 1;
  const std::string_view value = trimmed(parameters.substr(at + 1), kBlank);
  if (!value.starts_with('=')) return 0;
  const std::string_view digits = trimmed(value.substr(1), kBlank);
  double weight = 0;
  // Not parse_number(): characters behind the number are ignored.
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), weight);
  return error == std::errc{} && std::isfinite(weight) ? weight : 0;
}

// A "deflate" body has zlib framing, which some senders omit.
bool has_zlib_framing(std::span<const std::byte> bytes) {
  constexpr unsigned kDeflateMethod = 8;
  constexpr unsigned kMethodMask = 0x0F;
  constexpr unsigned kCheck = 31;
  if (bytes.size() < 2) return true;
  const auto first = std::to_integer<unsigned>(bytes[0]);
  const auto second = std::to_integer<unsigned>(bytes[1]);
  return (first & kMethodMask) == kDeflateMethod && (first * 256 + second) % kCheck == 0;
}

int window_bits(Coding coding) {
  return coding == Coding::gzip ? kWindowBits + kGzip : kWindowBits;
}

// zlib only reads the input, but its type is not const.
Bytef* input_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
}
Bytef* output_of(std::span<std::byte> bytes) { return reinterpret_cast<Bytef*>(bytes.data()); }

}  // namespace

std::size_t total_bytes(const std::vector<Bytes>& parts) {
  return std::accumulate(parts.begin(), parts.end(), std::size_t{0},
                         [](std::size_t total, const Bytes& part) { return total + part.size(); });
}

std::string_view to_string(Coding coding) {
  if (coding == Coding::gzip) return "gzip";
  return coding == Coding::deflate ? "deflate" : "identity";
}

std::optional<Coding> parse_coding(std::string_view content_encoding) {
  const std::string_view name = trimmed(content_encoding, kBlank);
  if (name.empty() || same_ignoring_case(name, "identity")) return Coding::identity;
  if (same_ignoring_case(name, "gzip") || same_ignoring_case(name, "x-gzip")) return Coding::gzip;
  if (same_ignoring_case(name, "deflate")) return Coding::deflate;
  return std::nullopt;
}

Coding preferred_coding(std::string_view accept_encoding) {
  Coding preferred = Coding::identity;
  double best = 0;
  while (!accept_encoding.empty()) {
    const std::size_t comma = std::min(accept_encoding.find(','), accept_encoding.size());
    const std::string_view entry = accept_encoding.substr(0, comma);
    accept_encoding.remove_prefix(std::min(comma + 1, accept_encoding.size()));
    const std::size_t semicolon = std::min(entry.find(';'), entry.size());
    const std::optional<Coding> coding = parse_coding(entry.substr(0, semicolon));
    const double weight = weight_of(entry.substr(semicolon));
    if (!coding || *coding == Coding::identity || weight <= best) continue;
    preferred = *coding;
    best = weight;
  }
  return preferred;
}

struct ZlibStream {
  explicit ZlibStream(int (*end_stream)(z_stream*)) : end(end_stream) {}
  ~ZlibStream() {
    if (begun) end(&zlib);
  }
  ZlibStream(const ZlibStream&) = delete;
  ZlibStream& operator=(const ZlibStream&) = delete;

  int (*const end)(z_stream*);
  z_stream zlib{};
  bool begun = false;
};

// ---- decoding

Inflation::Inflation(Coding coding, Bytes encoded, std::size_t max_bytes, BufferPool& buffers)
    : coding_(coding),
      encoded_(std::move(encoded)),
      output_(buffers, max_bytes),
      stream_(std::make_unique<ZlibStream>(inflateEnd)) {}

Inflation::~Inflation() = default;

Progress Inflation::fail(Status failure) {
  failure_ = std::move(failure);
  return Progress::failed;
}

Progress Inflation::fail_in_zlib() {
  const char* const words = stream_->zlib.msg;
  return fail(
      {StatusCode::malformed, fmt::format("the body is not valid {}: {}", to_string(coding_),
                                          words != nullptr ? words : "it ends too early")});
}

Progress Inflation::step() {
  z_stream& zlib = stream_->zlib;
  if (!stream_->begun) {
    const bool raw = coding_ == Coding::deflate && !has_zlib_framing(encoded_.view());
    if (inflateInit2(&zlib, raw ? -kWindowBits : window_bits(coding_)) != Z_OK)
      return fail({StatusCode::overloaded, "out of memory while decompressing the body"});
    stream_->begun = true;
  }
  std::size_t produced = 0;
  while (produced < kInflatedPerStep) {
    const Result<std::span<std::byte>> space = output_.space();
    if (!space.ok()) return fail(space.status());
    const std::span<std::byte> room =
        space.value().first(std::min(space.value().size(), kInflatedPerStep - produced));
    const std::span<const std::byte> rest = encoded_.view().subspan(taken_);
    const std::span<const std::byte> input = rest.first(std::min(rest.size(), kInflatedPerStep));
    zlib.next_in = input_of(input);
    zlib.avail_in = static_cast<uInt>(input.size());
    zlib.next_out = output_of(room);
    zlib.avail_out = static_cast<uInt>(room.size());
    const int outcome = inflate(&zlib, Z_NO_FLUSH);
    taken_ += input.size() - zlib.avail_in;
    output_.filled(room.size() - zlib.avail_out);
    produced += room.size() - zlib.avail_out;
    if (outcome == Z_STREAM_END) {
      if (taken_ == encoded_.size()) return Progress::done;
      // gzip allows several streams in a row.
      if (coding_ != Coding::gzip || inflateReset(&zlib) != Z_OK) return fail_in_zlib();
      // Limits the number of empty streams per step.
      produced += kDeflatedPerStep;
      continue;
    }
    if (outcome != Z_OK) return fail_in_zlib();
  }
  return Progress::more;
}

// ---- encoding

Deflation::Deflation(Coding coding, std::vector<Bytes> plain, BufferPool& buffers)
    : plain_(std::move(plain)),
      output_(buffers, total_bytes(plain_)),
      stream_(std::make_unique<ZlibStream>(deflateEnd)) {
  // The fastest level, because encoding delays other requests.
  stream_->begun = deflateInit2(&stream_->zlib, Z_BEST_SPEED, Z_DEFLATED, window_bits(coding),
                                kMemoryLevel, Z_DEFAULT_STRATEGY) == Z_OK;
}

Deflation::~Deflation() = default;

Progress Deflation::step() {
  if (!stream_->begun) return Progress::failed;
  z_stream& zlib = stream_->zlib;
  std::size_t consumed = 0;
  while (consumed < kDeflatedPerStep) {
    while (part_ < plain_.size() && offset_ == plain_[part_].size()) {
      ++part_;
      offset_ = 0;
    }
    const bool last = part_ == plain_.size();
    const Result<std::span<std::byte>> room = output_.space();
    if (!room.ok()) return Progress::failed;
    std::span<const std::byte> input;
    if (!last) {
      const std::span<const std::byte> rest = plain_[part_].view().subspan(offset_);
      input = rest.first(std::min(rest.size(), kDeflatedPerStep - consumed));
    }
    zlib.next_in = input_of(input);
    zlib.avail_in = static_cast<uInt>(input.size());
    zlib.next_out = output_of(room.value());
    zlib.avail_out = static_cast<uInt>(std::min(room.value().size(), kInflatedPerStep));
    const std::size_t offered = zlib.avail_out;
    const int outcome = deflate(&zlib, last ? Z_FINISH : Z_NO_FLUSH);
    output_.filled(offered - zlib.avail_out);
    consumed += input.size() - zlib.avail_in;
    offset_ += input.size() - zlib.avail_in;
    if (outcome == Z_STREAM_END) return Progress::done;
    if (outcome != Z_OK && outcome != Z_BUF_ERROR) return Progress::failed;
  }
  return Progress::more;
}

// ---- GrowingMemory

Result<std::span<std::byte>> GrowingMemory::space() {
  constexpr std::size_t kFirstBytes = 16U << 10U;
  if (size_ < memory_.size()) return memory_.view().subspan(size_);
  if (size_ >= max_bytes_)
    return Status(StatusCode::invalid, fmt::format("the body exceeds {} bytes", max_bytes_));
  const std::size_t capacity = std::min(std::max(2 * size_, kFirstBytes), max_bytes_);
  GPULET_TRY(MutableBytes larger, buffers_->take(capacity));
  if (size_ > 0) std::memcpy(larger.view().data(), memory_.view().data(), size_);
  memory_ = std::move(larger);
  return memory_.view().subspan(size_);
}

Status GrowingMemory::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    GPULET_TRY(const std::span<std::byte> room, space());
    const std::size_t count = std::min(room.size(), bytes.size());
    std::memcpy(room.data(), bytes.data(), count);
    filled(count);
    bytes = bytes.subspan(count);
  }
  return {};
}

Bytes GrowingMemory::take() {
  const MutableBytes memory = std::exchange(memory_, {});
  return memory.freeze().slice(0, std::exchange(size_, 0));
}

}  // namespace gpulet::net::http

#include "net/http/coding.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

namespace gpulet::net::http {
namespace {

// A fraction of a millisecond of work: other requests take their turn between two steps.
constexpr std::size_t kInflatedPerStep = 64U << 10U;
constexpr std::size_t kDeflatedPerStep = 64U << 10U;

constexpr int kWindowBits = 15;
constexpr int kGzip = 16;  // zlib's way to ask for gzip's frame instead of its own
constexpr int kMemoryLevel = 8;

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

bool same_word(std::string_view left, std::string_view right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(),
                    [](char a, char b) { return lower(a) == lower(b); });
}

// "q=0.5" of a list's entry; 1 without it, 0 where it makes no sense.
double weight_of(std::string_view parameters) {
  const std::size_t at = parameters.find_first_of("qQ");
  if (at == std::string_view::npos) return 1;
  const std::string_view value = trimmed(parameters.substr(at + 1));
  if (!value.starts_with('=')) return 0;
  const std::string_view digits = trimmed(value.substr(1));
  double weight = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), weight);
  return error == std::errc{} && std::isfinite(weight) ? weight : 0;
}

// A body that calls itself "deflate" has zlib's frame; some senders leave it away.
bool has_zlib_frame(std::span<const std::byte> bytes) {
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

// zlib only reads there, but its types do not say so.
Bytef* input_of(std::span<const std::byte> bytes) {
  return reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
}
Bytef* output_of(std::span<std::byte> bytes) { return reinterpret_cast<Bytef*>(bytes.data()); }

std::size_t total_bytes(const std::vector<Bytes>& parts) {
  return std::accumulate(parts.begin(), parts.end(), std::size_t{0},
                         [](std::size_t total, const Bytes& part) { return total + part.size(); });
}

}  // namespace

std::string_view to_string(Coding coding) {
  switch (coding) {
    case Coding::gzip:
      return "gzip";
    case Coding::deflate:
      return "deflate";
    case Coding::identity:
      break;
  }
  return "identity";
}

std::optional<Coding> parse_coding(std::string_view content_encoding) {
  const std::string_view name = trimmed(content_encoding);
  if (name.empty() || same_word(name, "identity")) return Coding::identity;
  if (same_word(name, "gzip") || same_word(name, "x-gzip")) return Coding::gzip;
  if (same_word(name, "deflate")) return Coding::deflate;
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

// ---- taking it off

struct Inflation::Stream {
  z_stream zlib{};
  bool begun = false;
  ~Stream() {
    if (begun) inflateEnd(&zlib);
  }
};

Inflation::Inflation(Coding coding, Bytes encoded, std::size_t max_bytes, BufferPool& buffers)
    : coding_(coding),
      encoded_(std::move(encoded)),
      output_(buffers, max_bytes),
      stream_(std::make_unique<Stream>()) {}

Inflation::~Inflation() = default;

Progress Inflation::fail(Status failure) {
  failure_ = std::move(failure);
  return Progress::failed;
}

Progress Inflation::fail_of_zlib() {
  const char* const words = stream_->zlib.msg;
  return fail({StatusCode::malformed, "the body is not what its Content-Encoding says, " +
                                          std::string(to_string(coding_)) + ": " +
                                          (words != nullptr ? words : "it ends too early")});
}

Progress Inflation::step() {
  z_stream& zlib = stream_->zlib;
  if (!stream_->begun) {
    const bool raw = coding_ == Coding::deflate && !has_zlib_frame(encoded_.view());
    if (inflateInit2(&zlib, raw ? -kWindowBits : window_bits(coding_)) != Z_OK)
      return fail({StatusCode::overloaded, "no memory to decompress the body"});
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
      // gzip allows one stream after another.
      if (coding_ != Coding::gzip || inflateReset(&zlib) != Z_OK) return fail_of_zlib();
      // Many empty streams are work too.
      produced += kDeflatedPerStep;
      continue;
    }
    if (outcome != Z_OK) return fail_of_zlib();
  }
  return Progress::more;
}

// ---- putting it on

struct Deflation::Stream {
  z_stream zlib{};
  bool begun = false;
  ~Stream() {
    if (begun) deflateEnd(&zlib);
  }
};

Deflation::Deflation(Coding coding, std::vector<Bytes> plain, BufferPool& buffers)
    : plain_(std::move(plain)),
      output_(buffers, total_bytes(plain_)),
      stream_(std::make_unique<Stream>()) {
  // The fastest level: the sender has other requests to serve.
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

}  // namespace gpulet::net::http

#include "gpulet/net/codec/frame_reader.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace gpulet::net {

FrameReader::FrameReader(const FrameLimits& limits)
    : limits_(limits), buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {}

std::array<std::span<std::byte>, 2> FrameReader::space() {
  drop_frame();
  make_room();
  std::span<std::byte> rest;
  if (state_ == State::payload && payload_.size() > 0)
    rest = payload_.view().subspan(payload_received_);
  return {rest, std::span(buffer_.get() + end_, capacity_ - end_)};
}

void FrameReader::received(std::size_t bytes) {
  if (state_ == State::payload && payload_.size() == 0) return discard(bytes);
  if (state_ == State::payload) {
    const std::size_t taken = std::min(bytes, payload_.size() - payload_received_);
    payload_received_ += taken;
    bytes -= taken;
  }
  end_ += bytes;
}

// What was received behind the message is the payload's rest, and perhaps the next frame.
void FrameReader::discard(std::size_t bytes) {
  const std::size_t dropped = std::min(bytes, header_.payload_bytes - payload_received_);
  payload_received_ += dropped;
  std::byte* const first = buffer_.get() + end_;
  std::memmove(first, first + dropped, bytes - dropped);
  end_ += bytes - dropped;
}

Result<FrameReader::Event> FrameReader::next() {
  drop_frame();
  if (state_ == State::header) {
    if (buffered() < kFrameHeaderBytes) return Event{};
    const std::span<const std::byte, kFrameHeaderBytes> bytes(buffer_.get() + begin_,
                                                              kFrameHeaderBytes);
    Result<FrameHeader> header = decode_frame_header(bytes, limits_);
    if (!header.ok()) return header.status();
    header_ = header.value();
    state_ = State::message;
  }
  if (state_ == State::message) {
    if (buffered() < head_bytes()) return Event{};
    if (header_.payload_bytes == 0) return finish_frame();
    state_ = State::payload_memory;
    return Event{Event::Kind::payload_wanted, header_, message(), {}};
  }
  if (state_ == State::payload && payload_received_ == header_.payload_bytes) return finish_frame();
  return Event{};
}

Status FrameReader::give_payload(MutableBytes memory) {
  if (memory.size() != 0 && memory.size() != header_.payload_bytes) {
    return {StatusCode::internal, "memory of " + std::to_string(memory.size()) +
                                      " bytes for a payload of " +
                                      std::to_string(header_.payload_bytes)};
  }
  payload_ = std::move(memory);
  const std::size_t here = std::min<std::size_t>(buffered() - head_bytes(), header_.payload_bytes);
  std::byte* const first = buffer_.get() + begin_ + head_bytes();
  if (payload_.size() > 0) std::memcpy(payload_.view().data(), first, here);
  payload_received_ = here;
  state_ = State::payload;
  if (here < header_.payload_bytes) {
    end_ = begin_ + head_bytes();
  } else {
    // The head moves up to what follows the payload, so that it stays one piece with it.
    std::memmove(buffer_.get() + begin_ + here, buffer_.get() + begin_, head_bytes());
    begin_ += here;
  }
  return {};
}

bool FrameReader::inside_frame() const {
  if (frame_given_) return buffered() > head_bytes();
  return buffered() > 0;
}

std::span<const std::byte> FrameReader::message() const {
  return {buffer_.get() + begin_ + kFrameHeaderBytes, header_.message_bytes};
}

FrameReader::Event FrameReader::finish_frame() {
  frame_given_ = true;
  return {Event::Kind::frame, header_, message(), std::exchange(payload_, {})};
}

void FrameReader::drop_frame() {
  if (!frame_given_) return;
  frame_given_ = false;
  begin_ += head_bytes();
  state_ = State::header;
}

void FrameReader::make_room() {
  if (buffered() == 0) {
    begin_ = end_ = 0;
    if (capacity_ > kBufferBytes) move_to(kBufferBytes);
    return;
  }
  // Moving is cheap while little is buffered, and a receive should not be cut short by the buffer's
  // end.
  if (capacity_ - end_ < capacity_ / 2 && begin_ > 0) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, buffered());
    end_ -= std::exchange(begin_, 0);
  }
  if (end_ == capacity_) move_to(2 * capacity_);
}

void FrameReader::move_to(std::size_t capacity) {
  auto larger = std::make_unique_for_overwrite<std::byte[]>(capacity);
  std::memcpy(larger.get(), buffer_.get() + begin_, buffered());
  end_ -= std::exchange(begin_, 0);
  buffer_ = std::move(larger);
  capacity_ = capacity;
}

}  // namespace gpulet::net

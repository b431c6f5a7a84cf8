#include "net/grpc/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <new>
#include <utility>
#include <vector>

#include "gpulet/base/text.h"

namespace gpulet::net::grpc_api {
namespace {

constexpr std::size_t kPrefaceBytes = NGHTTP2_CLIENT_MAGIC_LEN;
constexpr std::size_t kHeaderCost = 32;  // of HTTP/2
constexpr std::int32_t kStreamWindow = 1 << 20;
constexpr std::int32_t kConnectionWindow = 4 << 20;
constexpr std::size_t kMostQueued = 256U << 10U;
constexpr std::size_t kLongestMessageText = 4096;
// nghttp2's own limits, which FrameGuard's are to precede.
constexpr std::uint64_t kResetBurst = 8192;
constexpr std::uint64_t kResetRate = 4096;

nghttp2_nv header(std::string_view name, std::string_view value) {
  const auto bytes = [](std::string_view text) {
    return const_cast<std::uint8_t*>(reinterpret_cast<const std::uint8_t*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

// grpc-message: what is not printable ASCII as %XX.
std::string percent_encoded(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char one : text) {
    if (encoded.size() + 3 > kLongestMessageText) break;
    if (one >= ' ' && one <= '~' && one != '%') {
      encoded += one;
      continue;
    }
    const auto byte = static_cast<unsigned char>(one);
    encoded += {'%', kDigits[byte >> 4U], kDigits[byte & 0xFU]};
  }
  return encoded;
}

// grpc-timeout: up to eight digits and a unit.
std::optional<Duration> parse_timeout(std::string_view text) {
  constexpr std::size_t kMostDigits = 8;
  if (text.size() < 2 || text.size() > kMostDigits + 1) return std::nullopt;
  const auto number = parse_number<std::uint32_t>(text.substr(0, text.size() - 1));
  if (!number) return std::nullopt;
  switch (text.back()) {
    case 'H':
      return std::chrono::hours(*number);
    case 'M':
      return std::chrono::minutes(*number);
    case 'S':
      return std::chrono::seconds(*number);
    case 'm':
      return std::chrono::milliseconds(*number);
    case 'u':
      return std::chrono::microseconds(*number);
    case 'n':
      return std::chrono::nanoseconds(*number);
    default:
      return std::nullopt;
  }
}

GrpcCode code_of_failure(StatusCode code) {
  switch (code) {
    case StatusCode::overloaded:
      return GrpcCode::resource_exhausted;
    case StatusCode::timeout:
      return GrpcCode::deadline_exceeded;
    case StatusCode::malformed:
      return GrpcCode::internal;
    case StatusCode::cancelled:
      return GrpcCode::cancelled;
    case StatusCode::unavailable:
      return GrpcCode::unavailable;
    default:
      return GrpcCode::invalid_argument;
  }
}

}  // namespace

struct Http2Session::Call {
  Call(std::int32_t number, const PaceLimits& limits) : stream(number), pace(limits) {}

  const std::int32_t stream;
  // ---- headers
  CallHead head;
  std::string http_method;
  std::string content_type;
  std::string encoding;
  std::string timeout;
  std::size_t metadata_bytes = 0;
  bool metadata_too_long = false;
  // ---- receiving
  const Method* method = nullptr;
  CallHandlerPointer handler;  // null: refused or ended
  std::unique_ptr<MessageReader> reader;
  std::vector<std::byte> waiting;  // received, not delivered, from waiting_begin on
  std::size_t waiting_begin = 0;
  bool decompressing = false;
  bool client_done = false;
  bool end_delivered = false;
  std::size_t messages = 0;
  Pace pace;
  TimePoint deadline = TimePoint::max();
  // ---- sending
  struct Outgoing {
    WireMessage message;
    Charge charge;
    std::size_t left;
    std::size_t piece = 0;
    std::size_t offset = 0;
  };
  std::deque<Outgoing> outgoing;
  std::optional<CallEnd> end;  // the service has ended the call
  bool headers_sent = false;
};

// ---- callbacks of nghttp2

struct Http2Session::Callbacks {
  static Http2Session& self(void* user) { return *static_cast<Http2Session*>(user); }

  static int on_begin_headers(nghttp2_session* /*session*/, const nghttp2_frame* frame,
                              void* user) {
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
    Http2Session& session = self(user);
    session.calls_[frame->hd.stream_id] =
        std::make_unique<Call>(frame->hd.stream_id, session.shared_.options.pace);
    return 0;
  }

  static int on_header(nghttp2_session* /*session*/, const nghttp2_frame* frame,
                       const std::uint8_t* name_bytes, std::size_t name_size,
                       const std::uint8_t* value_bytes, std::size_t value_size,
                       std::uint8_t /*flags*/, void* user) {
    Http2Session& session = self(user);
    Call* const call = session.find(frame->hd.stream_id);
    if (call == nullptr || call->metadata_too_long || call->method != nullptr) return 0;
    call->metadata_bytes += name_size + value_size + kHeaderCost;
    if (call->metadata_bytes > session.shared_.options.metadata_bytes) {
      call->metadata_too_long = true;
      return 0;
    }
    const std::string_view name(reinterpret_cast<const char*>(name_bytes), name_size);
    const std::string_view value(reinterpret_cast<const char*>(value_bytes), value_size);
    if (name == ":path") call->head.path = value;
    if (name == ":method") call->http_method = value;
    if (name == "content-type") call->content_type = value;
    if (name == "authorization") call->head.authorization = value;
    if (name == "grpc-encoding") call->encoding = value;
    if (name == "grpc-timeout") call->timeout = value;
    return 0;
  }

  static int on_frame(nghttp2_session* /*session*/, const nghttp2_frame* frame, void* user) {
    Http2Session& session = self(user);
    if (frame->hd.type == NGHTTP2_SETTINGS) session.open_ = true;
    Call* const call = session.find(frame->hd.stream_id);
    if (call == nullptr) return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
      session.begin_call(*call);
    const bool has_end = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (has_end && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
      call->client_done = true;
      session.deliver_end(*call);
    }
    return 0;
  }

  static int on_data(nghttp2_session* /*session*/, std::uint8_t /*flags*/, std::int32_t stream,
                     const std::uint8_t* bytes, std::size_t size, void* user) {
    Http2Session& session = self(user);
    if (Call* const call = session.find(stream)) {
      session.on_data(*call, {reinterpret_cast<const std::byte*>(bytes), size});
    } else {
      nghttp2_session_consume_connection(session.session_, size);
    }
    return 0;
  }

  static int on_stream_close(nghttp2_session* /*session*/, std::int32_t stream,
                             std::uint32_t /*error*/, void* user) {
    self(user).on_stream_closed(stream);
    return 0;
  }

  static int on_frame_sent(nghttp2_session* session, const nghttp2_frame* frame, void* user) {
    Http2Session& self_session = self(user);
    if (frame->hd.type == NGHTTP2_RST_STREAM && frame->rst_stream.error_code != NGHTTP2_NO_ERROR &&
        frame->rst_stream.error_code != NGHTTP2_REFUSED_STREAM) {
      if (const Status good = self_session.guard_.on_reset(self_session.now_); !good.ok())
        self_session.break_off(good);
      return 0;
    }
    // The client need not send the rest of a call that has ended.
    const bool ends =
        frame->hd.type == NGHTTP2_HEADERS && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    const Call* const call = ends ? self_session.find(frame->hd.stream_id) : nullptr;
    if (call != nullptr && !call->client_done) {
      nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
    }
    return 0;
  }

  static ssize_t send(nghttp2_session* /*session*/, const std::uint8_t* bytes, std::size_t size,
                      int /*flags*/, void* user) {
    OutputQueue& output = self(user).output_;
    if (output.size() >= kMostQueued) return NGHTTP2_ERR_WOULDBLOCK;
    output.add(std::span(reinterpret_cast<const std::byte*>(bytes), size));
    return static_cast<ssize_t>(size);
  }

  static ssize_t read_data(nghttp2_session* /*session*/, std::int32_t stream,
                           std::uint8_t* /*buffer*/, std::size_t most, std::uint32_t* flags,
                           nghttp2_data_source* /*source*/, void* user) {
    Call* const call = self(user).find(stream);
    if (call == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    return self(user).next_data(*call, most, *flags);
  }

  static ssize_t frame_length(nghttp2_session* /*session*/, std::uint8_t /*type*/,
                              std::int32_t /*stream*/, std::int32_t connection_window,
                              std::int32_t stream_window, std::uint32_t frame_bytes,
                              void* /*user*/) {
    constexpr std::int64_t kMost = 64 << 10;
    return std::min({std::int64_t{connection_window}, std::int64_t{stream_window},
                     std::int64_t{frame_bytes}, kMost});
  }

  static int send_data(nghttp2_session* /*session*/, nghttp2_frame* frame, const std::uint8_t* head,
                       std::size_t size, nghttp2_data_source* /*source*/, void* user) {
    constexpr std::size_t kHead = 9;
    Http2Session& session = self(user);
    if (session.output_.size() >= kMostQueued) return NGHTTP2_ERR_WOULDBLOCK;
    Call* const call = session.find(frame->hd.stream_id);
    if (call == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    session.send_data(*call, {reinterpret_cast<const std::byte*>(head), kHead}, size);
    return 0;
  }
};

// ---- the connection

Http2Session::Http2Session(SessionShared& shared, SessionOwner& owner, std::string peer_address,
                           bool reserved, TimePoint now)
    : shared_(shared),
      owner_(owner),
      peer_address_(std::move(peer_address)),
      reserved_(reserved),
      guard_(shared.options.frames, now),
      preface_left_(kPrefaceBytes),
      now_(now) {
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_option* options = nullptr;
  if (nghttp2_session_callbacks_new(&callbacks) != 0 || nghttp2_option_new(&options) != 0)
    throw std::bad_alloc();
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, Callbacks::on_begin_headers);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, Callbacks::on_header);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, Callbacks::on_frame);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, Callbacks::on_data);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, Callbacks::on_stream_close);
  nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, Callbacks::on_frame_sent);
  nghttp2_session_callbacks_set_send_callback(callbacks, Callbacks::send);
  nghttp2_session_callbacks_set_send_data_callback(callbacks, Callbacks::send_data);
  nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks,
                                                                 Callbacks::frame_length);
  nghttp2_option_set_no_auto_window_update(options, 1);
  nghttp2_option_set_no_closed_streams(options, 1);
  nghttp2_option_set_stream_reset_rate_limit(options, kResetBurst, kResetRate);
  const int made = nghttp2_session_server_new2(&session_, callbacks, this, options);
  nghttp2_option_del(options);
  nghttp2_session_callbacks_del(callbacks);
  if (made != 0) throw std::bad_alloc();
  const std::array<nghttp2_settings_entry, 4> settings{
      {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
        static_cast<std::uint32_t>(shared.options.max_calls)},
       {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindow},
       {NGHTTP2_SETTINGS_MAX_FRAME_SIZE,
        static_cast<std::uint32_t>(shared.options.frames.frame_bytes)},
       {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE,
        static_cast<std::uint32_t>(shared.options.metadata_bytes)}}};
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kConnectionWindow);
}

Http2Session::~Http2Session() {
  for (auto& [stream, call] : calls_) {
    if (const CallHandlerPointer handler = std::exchange(call->handler, nullptr))
      handler->on_cancel({StatusCode::cancelled, "the client disconnected"});
  }
  nghttp2_session_del(session_);
}

Http2Session::Call* Http2Session::find(std::int32_t stream) {
  const auto found = calls_.find(stream);
  return found == calls_.end() ? nullptr : found->second.get();
}

void Http2Session::receive(std::span<const std::byte> bytes, TimePoint now) {
  now_ = now;
  if (broken_) return;
  const std::size_t preface = std::min(preface_left_, bytes.size());
  preface_left_ -= preface;
  if (const Status good = guard_.check(bytes.subspan(preface), now); !good.ok())
    return break_off(good);
  const ssize_t taken = nghttp2_session_mem_recv(
      session_, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  if (taken < 0) break_off({StatusCode::malformed, nghttp2_strerror(static_cast<int>(taken))});
}

void Http2Session::break_off(const Status& why) {
  if (std::exchange(broken_, true)) return;
  const std::string& text = why.message();
  nghttp2_session_terminate_session(session_, why.code() == StatusCode::overloaded
                                                  ? NGHTTP2_ENHANCE_YOUR_CALM
                                                  : NGHTTP2_PROTOCOL_ERROR);
  for (auto& [stream, call] : calls_) {
    if (const CallHandlerPointer handler = std::exchange(call->handler, nullptr))
      handler->on_cancel({StatusCode::cancelled, text});
  }
}

bool Http2Session::over() const {
  return broken_ ||
         (nghttp2_session_want_read(session_) == 0 && nghttp2_session_want_write(session_) == 0);
}

void Http2Session::produce() {
  while (output_.size() < kMostQueued && nghttp2_session_want_write(session_) != 0) {
    const std::size_t before = output_.size();
    if (nghttp2_session_send(session_) != 0) {
      broken_ = true;
      return;
    }
    if (output_.size() == before) break;
  }
  return_window();
}

void Http2Session::start_drain() { nghttp2_submit_shutdown_notice(session_); }

void Http2Session::finish_drain() {
  nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE,
                        nghttp2_session_get_last_proc_stream_id(session_), NGHTTP2_NO_ERROR,
                        nullptr, 0);
}

void Http2Session::end(const CallEnd& why) {
  for (auto& [stream, call] : calls_) {
    if (const CallHandlerPointer handler = std::exchange(call->handler, nullptr))
      handler->on_cancel({StatusCode::unavailable, why.message});
    if (!call->end) end_call(*call, why);
  }
  finish_drain();
}

// ---- calls

void Http2Session::begin_call(Call& call) {
  ++calls_begun_;
  call.head.address = peer_address_;
  if (call.metadata_too_long) {
    return end_call(call, {GrpcCode::resource_exhausted,
                           fmt::format("the metadata exceeds the limit of {} bytes",
                                       shared_.options.metadata_bytes)});
  }
  if (call.http_method != "POST")
    return refuse_http(call, "405", {GrpcCode::unimplemented, "gRPC calls are POST requests"});
  if (!call.content_type.starts_with("application/grpc")) {
    return refuse_http(call, "415",
                       {GrpcCode::invalid_argument,
                        "this port serves gRPC (content-type application/grpc); HTTP has a port of "
                        "its own, 8000 by default"});
  }
  const auto method = shared_.methods.find(call.head.path);
  if (method == shared_.methods.end())
    return end_call(call, {GrpcCode::unimplemented, "this server has no method " + call.head.path});
  if (reserved_ && method->second.infers) {
    return end_call(call, {GrpcCode::resource_exhausted,
                           "the server is at its limit of connections (max_connections); retry "
                           "later"});
  }
  const std::optional<MessageCoding> coding = parse_message_coding(call.encoding);
  if (!coding) {
    return end_call(call,
                    {GrpcCode::unimplemented,
                     "unknown grpc-encoding; this server accepts identity, deflate and gzip"});
  }
  if (!call.timeout.empty()) {
    const std::optional<Duration> timeout = parse_timeout(call.timeout);
    if (!timeout) return end_call(call, {GrpcCode::internal, "grpc-timeout is malformed"});
    constexpr Duration kLongest = std::chrono::hours(24 * 365);
    call.deadline = now_ + std::min(*timeout, kLongest);
  }
  if (unread()) {
    return end_call(call, {GrpcCode::resource_exhausted,
                           "this connection has too many responses that were not read"});
  }
  call.method = &method->second;
  const std::size_t most =
      call.method->most_bytes > 0 ? call.method->most_bytes : shared_.max_message_bytes->load();
  call.reader = std::make_unique<MessageReader>(most, *coding, shared_.budget, shared_.buffers);
  if (!call.method->takes_several) call.pace.begin(now_);
  call.handler = call.method->start(call.head, owner_.responder_of(call.stream));
}

void Http2Session::refuse_http(Call& call, std::string_view status, CallEnd why) {
  const std::string code = std::to_string(static_cast<int>(why.code));
  const std::string message = percent_encoded(why.message);
  const std::array<nghttp2_nv, 4> headers{
      header(":status", status), header("content-type", "application/grpc"),
      header("grpc-status", code), header("grpc-message", message)};
  call.end = std::move(why);
  call.headers_sent = true;
  nghttp2_submit_response(session_, call.stream, headers.data(), headers.size(), nullptr);
}

void Http2Session::consume(Call& call, std::size_t bytes) {
  nghttp2_session_consume_stream(session_, call.stream, bytes);
  if (unread()) {
    withheld_ += bytes;
  } else {
    nghttp2_session_consume_connection(session_, bytes);
  }
}

// Lets the peer send again.
void Http2Session::return_window() {
  if (withheld_ == 0 || unread() || waiting_bytes_ > shared_.options.max_waiting_bytes) return;
  nghttp2_session_consume_connection(session_, std::exchange(withheld_, 0));
}

void Http2Session::on_data(Call& call, std::span<const std::byte> bytes) {
  call.pace.received(bytes.size(), now_);
  if (!call.handler) return consume(call, bytes.size());
  const std::size_t taken = call.waiting.empty() ? deliver(call, bytes) : 0;
  if (taken == bytes.size() || !call.handler) return consume(call, bytes.size());
  consume(call, taken);
  const std::span<const std::byte> rest = bytes.subspan(taken);
  if (waiting_bytes_ + rest.size() > shared_.options.max_waiting_bytes) {
    // Within the windows that the peer was given.
    withheld_ += rest.size();
  } else {
    nghttp2_session_consume_connection(session_, rest.size());
  }
  call.waiting.insert(call.waiting.end(), rest.begin(), rest.end());
  waiting_bytes_ += rest.size();
}

std::size_t Http2Session::deliver(Call& call, std::span<const std::byte> bytes) {
  std::size_t taken = 0;
  while (call.handler && !call.decompressing) {
    if (call.reader->complete()) {
      if (!deliver_message(call)) break;
      continue;
    }
    if (taken == bytes.size() || !call.handler->takes_messages()) break;
    const Result<std::size_t> more = call.reader->take(bytes.subspan(taken));
    if (!more.ok()) {
      fail(call, more.status());
      break;
    }
    taken += more.value();
  }
  if (call.handler && call.method->takes_several) {
    const bool expects = call.reader->begun() && call.handler->takes_messages();
    if (!expects) call.pace.end();
    if (expects && !call.pace.active()) call.pace.begin(now_);
  }
  return taken;
}

// False if it is not ready yet, or the call has ended.
bool Http2Session::deliver_message(Call& call) {
  const Result<bool> ready = call.reader->decompress_some();
  if (!ready.ok()) {
    fail(call, ready.status());
    return false;
  }
  if (!ready.value()) {
    call.decompressing = true;
    owner_.continue_later(call.stream);
    return false;
  }
  if (++call.messages > 1 && !call.method->takes_several) {
    fail(call, {StatusCode::malformed, "this method takes one message"});
    return false;
  }
  call.handler->on_message(call.reader->take_message());
  return true;
}

void Http2Session::continue_call(std::int32_t stream, TimePoint now) {
  now_ = now;
  Call* const call = find(stream);
  if (call == nullptr || broken_) return;
  call->decompressing = false;
  deliver_waiting(*call);
}

void Http2Session::deliver_waiting(Call& call) {
  const std::span<const std::byte> waiting = std::span(call.waiting).subspan(call.waiting_begin);
  const std::size_t taken = deliver(call, waiting);
  const std::size_t gone = call.handler ? taken : waiting.size();
  nghttp2_session_consume_stream(session_, call.stream, gone);
  call.waiting_begin += gone;
  waiting_bytes_ -= gone;
  if (call.waiting_begin == call.waiting.size()) {
    call.waiting = {};
    call.waiting_begin = 0;
  } else if (call.waiting_begin > call.waiting.size() / 2) {
    call.waiting.erase(call.waiting.begin(),
                       call.waiting.begin() + static_cast<std::ptrdiff_t>(call.waiting_begin));
    call.waiting_begin = 0;
  }
  return_window();
  deliver_end(call);
}

void Http2Session::deliver_end(Call& call) {
  if (!call.client_done || call.end_delivered || !call.handler || call.decompressing ||
      !call.waiting.empty() || call.reader->complete())
    return;
  if (call.reader->begun())
    return fail(call, {StatusCode::malformed, "the call ended within a message"});
  if (!call.method->takes_several && call.messages == 0)
    return fail(call, {StatusCode::malformed, "the call has no message"});
  call.end_delivered = true;
  call.pace.end();
  call.handler->on_end();
}

void Http2Session::fail(Call& call, const Status& why) {
  if (const CallHandlerPointer handler = std::exchange(call.handler, nullptr))
    handler->on_cancel(why);
  if (!call.end) end_call(call, {code_of_failure(why.code()), why.message()});
}

void Http2Session::on_stream_closed(std::int32_t stream) {
  const auto found = calls_.find(stream);
  if (found == calls_.end()) return;
  const std::unique_ptr<Call> call = std::move(found->second);
  calls_.erase(found);
  for (const Call::Outgoing& one : call->outgoing) unsent_bytes_ -= one.left;
  waiting_bytes_ -= call->waiting.size() - call->waiting_begin;
  return_window();
  if (const CallHandlerPointer handler = std::exchange(call->handler, nullptr)) {
    if (!call->end) handler->on_cancel({StatusCode::cancelled, "the client cancelled the call"});
  }
}

void Http2Session::check_deadlines(TimePoint now) {
  now_ = now;
  for (auto& [stream, call] : calls_) {
    if (!call->handler || call->end) continue;
    if (call->deadline <= now)
      fail(*call, {StatusCode::timeout, "the deadline of the call has passed"});
    else if (call->pace.deadline() <= now && !unread())
      fail(*call, {StatusCode::timeout,
                   "the request arrives too slowly; this server requires " + call->pace.demand()});
  }
}

// ---- responses

void Http2Session::respond(std::int32_t stream, std::optional<WireMessage> message,
                           std::optional<CallEnd> end) {
  Call* const call = find(stream);
  if (call == nullptr || call->end || broken_) return;
  if (message) {
    const std::size_t bytes = message->size();
    Charge charge(shared_.budget);
    if (!charge.grow_by(bytes)) {
      return fail(*call, {StatusCode::overloaded,
                          fmt::format("responses in memory reach the limit of {} bytes "
                                      "(max_buffered_mb); retry later",
                                      shared_.budget->most())});
    }
    unsent_bytes_ += bytes;
    call->outgoing.push_back({std::move(*message), std::move(charge), bytes});
    if (!call->headers_sent) submit_headers(*call);
  }
  if (end) return end_call(*call, std::move(*end));
  nghttp2_session_resume_data(session_, stream);
}

void Http2Session::submit_headers(Call& call) {
  const std::array<nghttp2_nv, 3> headers{header(":status", "200"),
                                          header("content-type", "application/grpc"),
                                          header("grpc-accept-encoding", "identity,deflate,gzip")};
  nghttp2_data_provider provider{};
  provider.read_callback = Callbacks::read_data;
  call.headers_sent = true;
  nghttp2_submit_response(session_, call.stream, headers.data(), headers.size(), &provider);
}

void Http2Session::end_call(Call& call, CallEnd end) {
  call.end = std::move(end);
  call.pace.end();
  if (call.headers_sent) {
    nghttp2_session_resume_data(session_, call.stream);
  } else {
    submit_trailers(call);
  }
}

// The headers of a call without a message are its trailers.
void Http2Session::submit_trailers(Call& call) {
  const std::string code = std::to_string(static_cast<int>(call.end->code));
  const std::string message = percent_encoded(call.end->message);
  std::vector<nghttp2_nv> headers;
  if (!call.headers_sent)
    headers = {header(":status", "200"), header("content-type", "application/grpc")};
  headers.push_back(header("grpc-status", code));
  if (!message.empty()) headers.push_back(header("grpc-message", message));
  std::string pushback;
  if (call.end->retry_after) {
    pushback = std::to_string(
        std::chrono::ceil<std::chrono::milliseconds>(*call.end->retry_after).count());
    headers.push_back(header("grpc-retry-pushback-ms", pushback));
  }
  if (std::exchange(call.headers_sent, true)) {
    nghttp2_submit_trailer(session_, call.stream, headers.data(), headers.size());
  } else {
    nghttp2_submit_response(session_, call.stream, headers.data(), headers.size(), nullptr);
  }
}

ssize_t Http2Session::next_data(Call& call, std::size_t most, std::uint32_t& flags) {
  if (call.outgoing.empty() && !call.end) return NGHTTP2_ERR_DEFERRED;
  std::size_t left = 0;
  for (const Call::Outgoing& one : call.outgoing) left += one.left;
  const std::size_t bytes = std::min(left, most);
  if (bytes > 0) flags |= NGHTTP2_DATA_FLAG_NO_COPY;
  if (call.end && bytes == left) {
    flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    submit_trailers(call);
  }
  return static_cast<ssize_t>(bytes);
}

void Http2Session::send_data(Call& call, std::span<const std::byte> head, std::size_t bytes) {
  output_.add(head);
  unsent_bytes_ -= bytes;
  bool sent = false;
  while (bytes > 0) {
    Call::Outgoing& one = call.outgoing.front();
    const Bytes& piece = one.message.pieces[one.piece];
    const std::size_t count = std::min(bytes, piece.size() - one.offset);
    output_.add(piece.slice(one.offset, count));
    bytes -= count;
    one.left -= count;
    one.offset += count;
    if (one.offset == piece.size()) {
      ++one.piece;
      one.offset = 0;
    }
    if (one.left > 0) continue;
    call.outgoing.pop_front();
    sent = true;
  }
  if (!sent || !call.handler || call.end) return;
  call.handler->on_sent();
  deliver_waiting(call);
}

}  // namespace gpulet::net::grpc_api

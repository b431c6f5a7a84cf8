// ProxyLink: the channel, the memory and the model files of one gpulet's proxy: everything that
// does not depend on whether a process or a worker is at the other end. A derived class knows how
// to end that.
//
// Lives in a shared_ptr. Single-strand type on the executor given.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gpulet/backend/proxy_process.h"
#include "gpulet/base/bytes.h"
#include "gpulet/base/files.h"
#include "gpulet/base/status.h"
#include "gpulet/base/time.h"
#include "gpulet/core/ids.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/connection.h"

namespace gpulet::backend {

// Memory that is shared with one proxy, divided into slots of one input and one output area, page
// aligned. Its file is created, empty, before the proxy starts; its size is set when the proxy gets
// its models.
//
// A slot is taken as MutableBytes over its input area. It is free again when the last copy of that,
// and of every Bytes made from it, is destroyed; those keep the mapping alive after the end of the
// proxy. One thread takes slots; any thread releases them.
class SlotMemory : public std::enable_shared_from_this<SlotMemory> {
 public:
  struct Slot {
    std::uint64_t input_offset = 0;
    std::uint64_t output_offset = 0;
    std::uint64_t output_capacity = 0;
  };

  // Fails with unavailable.
  [[nodiscard]] static Result<FileDescriptor> make_file();

  // Sets the final size of the file. slots: 1..64. Fails with invalid, or with unavailable if the
  // system has no such memory or another process changed the file.
  [[nodiscard]] static Result<std::shared_ptr<SlotMemory>> create(FileDescriptor file,
                                                                  std::uint32_t slots,
                                                                  std::size_t input_capacity,
                                                                  std::size_t output_capacity);
  ~SlotMemory();
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;

  [[nodiscard]] std::size_t size() const { return bytes_.size(); }

  // Empty if no slot is free or `bytes` exceeds the size of a slot.
  [[nodiscard]] std::optional<MutableBytes> take(std::size_t bytes);
  // The same for an input of zeros, which the taker leaves alone.
  [[nodiscard]] std::optional<MutableBytes> take_zeros(std::size_t bytes);
  // Whether `input`, of take_zeros(), has nothing but zeros: the proxy has filled as many bytes of
  // the slot, and nobody took it otherwise since. On the thread that takes slots.
  [[nodiscard]] bool has_zeros(const Bytes& input) const;
  void set_zeros(const Bytes& input);
  // The slot whose input area begins with these bytes; empty if there is none.
  [[nodiscard]] std::optional<Slot> slot_of(const Bytes& input) const;
  // The first `bytes` of the output area beside `input`. Keeps `input`, and so the slot. REQUIRES:
  // slot_of(input), bytes within its output_capacity.
  [[nodiscard]] Bytes outputs_beside(const Bytes& input, std::size_t bytes) const;

 private:
  SlotMemory(std::span<std::byte> bytes, std::uint32_t slots, std::size_t input_bytes,
             std::size_t output_bytes);
  // The number of a free slot, which is taken now.
  [[nodiscard]] std::optional<std::uint32_t> take_free(std::size_t bytes);
  [[nodiscard]] MutableBytes input_of(std::uint32_t slot, std::size_t bytes);
  [[nodiscard]] std::size_t number_of(const Bytes& input) const;

  const std::span<std::byte> bytes_;
  const std::uint32_t slots_;
  const std::size_t input_bytes_;  // per slot, whole pages
  const std::size_t output_bytes_;
  std::atomic<std::uint64_t> taken_{0};  // one bit per slot
  std::vector<std::size_t> zeros_;       // by slot: so many bytes of its input are zeros
};

// The time within which the other side of a closed channel must end, and the channel of an ended
// process must close. After it, the other side hangs, or a descendant holds the channel.
inline constexpr Duration kGracePeriod = std::chrono::seconds(2);

// The descriptors with which a proxy is started.
struct ProxyEnds {
  FileDescriptor control;
  FileDescriptor memory;
  FileDescriptor files;
};

class ProxyLink : public std::enable_shared_from_this<ProxyLink>, private net::ConnectionHandler {
 public:
  struct Ends {
    ProxyEnds ours;
    ProxyEnds theirs;  // its memory is the same file
  };
  // Fails with unavailable.
  [[nodiscard]] static Result<Ends> make_ends();

  ProxyLink(const net::asio::any_io_executor& executor, ProxyCallbacks callbacks);
  ~ProxyLink() override = default;
  ProxyLink(const ProxyLink&) = delete;
  ProxyLink& operator=(const ProxyLink&) = delete;

  // Starts to read. Called once, when this is in its shared_ptr.
  void connect(ProxyEnds ours);

  // As Proxy.
  [[nodiscard]] Status load(LoadModels models, const SlotOptions& slots);
  [[nodiscard]] std::optional<MutableBytes> take_slot(std::size_t bytes);
  [[nodiscard]] std::optional<MutableBytes> take_zeros(std::size_t bytes);
  [[nodiscard]] bool holds(const Bytes& input) const;
  void run(RunBatch batch, Bytes input);

  void set_callbacks(ProxyCallbacks callbacks) { callbacks_ = std::move(callbacks); }

 protected:
  // The proxy violated the protocol: it must end.
  virtual void on_violation(const Status& why) = 0;
  // Called once, when the channel was read to its end or was closed here.
  virtual void on_channel_closed(const Status& reason) = 0;
  // LoadModels is about to be sent.
  virtual void on_load() {}
  // An answer, which is delivered after this, reports a lost device.
  virtual void on_device_lost(const Status& /*why*/) {}
  // For messages: "process 7".
  [[nodiscard]] virtual std::string name() const = 0;

  [[nodiscard]] const ProxyCallbacks& callbacks() const { return callbacks_; }
  [[nodiscard]] bool was_loaded() const { return memory_ != nullptr; }
  [[nodiscard]] bool answered_load() const { return answered_load_; }
  [[nodiscard]] bool channel_closed() const { return channel_closed_; }
  void send(const ProxyCommand& command);
  // Ends callbacks and channel. Returns the callbacks.
  ProxyCallbacks drop();
  // Calls on_exit, the last callback.
  void report_exit(const Status& reason);
  // Sets the timer, which replaces an earlier one.
  void after(Duration delay, std::function<void()> then);
  // Stops reading; on_channel_closed() follows.
  void close_channel();

 private:
  struct InFlight {
    BatchId id;
    Bytes input;
    bool synthetic = false;
  };

  Result<MutableBytes> payload_memory(const protocol::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const protocol::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  void on_closed(const Status& reason) override;

  void on_message(ProxyIdle& idle);
  void on_message(ProxyReady& ready);
  void on_message(BatchRan& ran);

  ProxyCallbacks callbacks_;
  FileDescriptor memory_file_;  // until load()
  FileDescriptor files_;        // until load(): the socket that carries the model files
  std::shared_ptr<SlotMemory> memory_;
  net::asio::steady_timer deadline_;
  std::shared_ptr<net::Connection> connection_;
  std::deque<InFlight> in_flight_;  // in the order sent, which is the order of the answers
  bool answered_load_ = false;
  bool channel_closed_ = false;
};

// A pair of connected Unix sockets of that type. Fails with unavailable.
[[nodiscard]] Status make_socket_pair(int type, FileDescriptor& ours, FileDescriptor& theirs);

// Sends descriptors in a message of one byte, without waiting. Also returns true if the peer is
// gone: other calls detect that. False: see errno.
[[nodiscard]] bool send_descriptors(int socket, std::span<const int> descriptors);

}  // namespace gpulet::backend

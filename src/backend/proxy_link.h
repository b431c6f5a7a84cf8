// ProxyLink: the channel of one gpulet's proxy, its memory and its models' files: all that does not
// depend on whether a process or a lane is at the other end. Whoever derives from it knows how that
// end is ended.
//
// Lives in a shared_ptr. Single-strand type on the executor given.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/file_descriptor.h"
#include "backend/slot_memory.h"
#include "gpulet/backend/proxy.h"
#include "gpulet/core/bytes.h"
#include "gpulet/core/ids.h"
#include "gpulet/core/status.h"
#include "gpulet/core/time.h"
#include "gpulet/net/asio.h"
#include "gpulet/net/connection.h"

namespace gpulet::backend {

// The other side of a closed channel must end, and the channel of what has ended must close, within
// this time: what takes longer hangs, or has a descendant that holds on to it.
inline constexpr Duration kGrace = std::chrono::seconds(2);

// What a proxy is started with.
struct ProxyEnds {
  FileDescriptor control;
  FileDescriptor memory;
  FileDescriptor files;
};

class ProxyLink : public std::enable_shared_from_this<ProxyLink>, private net::ConnectionHandler {
 public:
  struct Made {
    ProxyEnds ours;
    ProxyEnds theirs;  // whose memory is the same file
  };
  // Fails with unavailable.
  [[nodiscard]] static Result<Made> make_ends();

  ProxyLink(const net::asio::any_io_executor& executor, ProxyCallbacks callbacks);
  ~ProxyLink() override = default;
  ProxyLink(const ProxyLink&) = delete;
  ProxyLink& operator=(const ProxyLink&) = delete;

  // Begins to listen. To be called once, when this is in its shared_ptr.
  void connect(ProxyEnds ours);

  // As Proxy.
  [[nodiscard]] Status load(serve::LoadModels models, const SlotOptions& slots);
  [[nodiscard]] std::optional<MutableBytes> take_slot(std::size_t bytes);
  [[nodiscard]] bool holds(const Bytes& input) const;
  void run(serve::RunBatch batch, Bytes input);

  void hand_over(ProxyCallbacks callbacks) { callbacks_ = std::move(callbacks); }

 protected:
  // What came over the channel is nothing that a proxy says: it must end.
  virtual void broken(const Status& why) = 0;
  // Called once, when the channel has been read to its end, or was closed here.
  virtual void closed(const Status& reason) = 0;
  // LoadModels is about to be sent.
  virtual void loads() {}
  // An answer told that the device is lost; it is passed on after this.
  virtual void lost_device(const Status& /*why*/) {}
  // For messages: "process 7".
  [[nodiscard]] virtual std::string name() const = 0;

  [[nodiscard]] const ProxyCallbacks& callbacks() const { return callbacks_; }
  [[nodiscard]] bool was_loaded() const { return memory_ != nullptr; }
  [[nodiscard]] bool answered_load() const { return answered_load_; }
  [[nodiscard]] bool channel_closed() const { return channel_closed_; }
  void send(const serve::ProxyCommand& command);
  // No more callbacks, no more channel. Returns what the callbacks were.
  ProxyCallbacks drop();
  // The last callback.
  void tell_exit(const Status& reason);
  // One at a time: a later one takes the place of the one before.
  void after(Duration delay, std::function<void()> then);
  // Reads no longer on; closed() follows.
  void close_channel();

 private:
  struct InFlight {
    BatchId id;
    Bytes input;
  };

  Result<MutableBytes> payload_memory(const net::FrameHeader& header,
                                      std::span<const std::byte> message) override;
  void on_frame(const net::FrameHeader& header, std::span<const std::byte> message,
                MutableBytes payload) override;
  void on_closed(const Status& reason) override;

  void on_message(serve::ProxyIdle& idle);
  void on_message(serve::ProxyReady& ready);
  void on_message(serve::BatchRan& ran);

  ProxyCallbacks callbacks_;
  FileDescriptor memory_file_;  // until load()
  FileDescriptor files_;        // until load(): models' files are sent over it
  std::shared_ptr<SlotMemory> memory_;
  net::asio::steady_timer deadline_;
  std::shared_ptr<net::Connection> connection_;
  std::deque<InFlight> in_flight_;  // in the order sent, which is the order of the answers
  bool answered_load_ = false;
  bool channel_closed_ = false;
};

// As one message of one byte, without waiting. True also where nobody is at the other end any more:
// that shows elsewhere. False: errno says why.
[[nodiscard]] bool send_descriptors(int socket, std::span<const int> descriptors);

}  // namespace gpulet::backend

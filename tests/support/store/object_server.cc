#include "tests/support/store/object_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "gpulet/base/files.h"
#include "gpulet/base/text.h"

namespace gpulet::testing {
namespace {

std::string lowered(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

ObjectRequest parse_request(const std::string& head) {
  ObjectRequest request;
  std::istringstream lines(head);
  std::string line;
  std::getline(lines, line);
  std::istringstream(line) >> request.method >> request.target;
  while (std::getline(lines, line)) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    request.headers[lowered(line.substr(0, colon))] =
        trimmed(std::string_view(line).substr(colon + 1));
  }
  return request;
}

using TlsContext = std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)>;
using TlsChannel = std::unique_ptr<SSL, void (*)(SSL*)>;

TlsContext context_of(const ServerIdentity& identity) {
  TlsContext context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  if (SSL_CTX_use_certificate_chain_file(context.get(), identity.certificate.c_str()) != 1 ||
      SSL_CTX_use_PrivateKey_file(context.get(), identity.key.c_str(), SSL_FILETYPE_PEM) != 1)
    throw std::runtime_error("no certificate for an object server");
  return context;
}

// One end of a connection, plain or over TLS.
class Wire {
 public:
  Wire(FileDescriptor socket, SSL_CTX* context) : socket_(std::move(socket)) {
    if (context == nullptr) return;
    channel_.reset(SSL_new(context));
    SSL_set_fd(channel_.get(), socket_.get());
    open_ = SSL_accept(channel_.get()) == 1;
  }
  ~Wire() {
    if (channel_ != nullptr && open_) SSL_shutdown(channel_.get());
  }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  [[nodiscard]] bool open() const { return open_; }
  [[nodiscard]] bool receive(char& byte) const {
    if (channel_ != nullptr) return SSL_read(channel_.get(), &byte, 1) == 1;
    return ::recv(socket_.get(), &byte, 1, 0) == 1;
  }
  [[nodiscard]] bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent =
          channel_ != nullptr
              ? SSL_write(channel_.get(), bytes.data(), static_cast<int>(bytes.size()))
              : ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

 private:
  FileDescriptor socket_;
  TlsChannel channel_{nullptr, SSL_free};
  bool open_ = true;
};

}  // namespace

std::string ObjectRequest::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? std::string() : found->second;
}

class ObjectServer::Impl {
 public:
  Impl(Handler handler, TlsContext context)
      : handler_(std::move(handler)), context_(std::move(context)) {
    listener_ = FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener_.get(), generic, length) != 0 || ::listen(listener_.get(), 64) != 0 ||
        ::getsockname(listener_.get(), generic, &length) != 0)
      throw std::runtime_error("no port for an object server");
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] { accept(); });
  }
  ~Impl() {
    stopping_ = true;
    ::shutdown(listener_.get(), SHUT_RDWR);
    accepting_.join();
    for (std::thread& thread : connections_) thread.join();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void answer_with(Handler handler) {
    const std::lock_guard lock(mutex_);
    handler_ = std::move(handler);
  }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] bool secure() const { return context_ != nullptr; }
  [[nodiscard]] std::vector<ObjectRequest> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void accept() {
    // A peer that refuses the certificate closes the connection while OpenSSL writes to it. Threads
    // inherit the mask.
    sigset_t broken_pipe;
    ::sigemptyset(&broken_pipe);
    ::sigaddset(&broken_pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
    while (!stopping_) {
      const int socket = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (socket >= 0) connections_.emplace_back([this, socket] { serve(FileDescriptor(socket)); });
    }
  }

  // Returns whether the server goes on.
  bool wait(std::chrono::milliseconds pause) const {
    const auto end = std::chrono::steady_clock::now() + pause;
    while (!stopping_ && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return !stopping_;
  }

  void serve(FileDescriptor socket) {
    const Wire wire(std::move(socket), context_.get());
    if (!wire.open()) return;
    std::string head;
    char byte = 0;
    while (!head.ends_with("\r\n\r\n") && wire.receive(byte)) head += byte;
    if (!head.ends_with("\r\n\r\n")) return;
    const ObjectRequest request = parse_request(head);
    Handler handler;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
      handler = handler_;
    }
    const ObjectAnswer answer = handler(request);
    std::string text = "HTTP/1.1 " + std::to_string(answer.status) + " Answer\r\n";
    if (answer.status != 304 && !answer.headers.contains("Transfer-Encoding"))
      text += "Content-Length: " + std::to_string(answer.body.size()) + "\r\n";
    for (const auto& [name, value] : answer.headers) text += name + ": " + value + "\r\n";
    text += "Connection: close\r\n\r\n";
    if (!wait(answer.pause) || !wire.send(text)) return;
    std::string_view body(answer.body);
    body = body.substr(0, answer.cut_after.value_or(body.size()));
    const std::size_t block = answer.block == 0 ? body.size() : answer.block;
    while (!body.empty()) {
      const std::string_view now = body.substr(0, block);
      if (!wire.send(now)) return;
      body.remove_prefix(now.size());
      if (!body.empty() && !wait(answer.pause)) return;
    }
  }

  mutable std::mutex mutex_;
  Handler handler_;
  TlsContext context_;  // null: plain
  std::vector<ObjectRequest> requests_;
  FileDescriptor listener_;
  std::uint16_t port_ = 0;
  std::atomic<bool> stopping_ = false;
  std::vector<std::thread> connections_;  // of accepting_, then of the destructor
  std::thread accepting_;
};

ObjectServer::ObjectServer(Handler handler)
    : impl_(std::make_unique<Impl>(std::move(handler), TlsContext(nullptr, SSL_CTX_free))) {}
ObjectServer::ObjectServer(Handler handler, const ServerIdentity& identity)
    : impl_(std::make_unique<Impl>(std::move(handler), context_of(identity))) {}
ObjectServer::~ObjectServer() = default;
void ObjectServer::answer_with(Handler handler) { impl_->answer_with(std::move(handler)); }
std::uint16_t ObjectServer::port() const { return impl_->port(); }
std::string ObjectServer::url(const std::string& path) const {
  return (impl_->secure() ? "https" : "http") + std::string("://127.0.0.1:") +
         std::to_string(port()) + path;
}
std::vector<ObjectRequest> ObjectServer::requests() const { return impl_->requests(); }

ObjectAnswer serve_object(const StoredObject& object, const ObjectRequest& request) {
  ObjectAnswer answer;
  if (!object.etag.empty()) answer.headers["ETag"] = object.etag;
  if (!object.last_modified.empty()) answer.headers["Last-Modified"] = object.last_modified;
  const bool same_etag = !object.etag.empty() &&
                         request.header("if-none-match").find(object.etag) != std::string::npos;
  const bool same_date =
      !object.last_modified.empty() && request.header("if-modified-since") == object.last_modified;
  if (same_etag || same_date) {
    answer.status = 304;
    return answer;
  }
  answer.body = object.body;
  const std::string range = request.header("range");
  const std::string condition = request.header("if-range");
  if (range.empty() || (condition != object.etag && condition != object.last_modified))
    return answer;
  const auto first = parse_number<std::size_t>(trimmed(range, "bytes=-"));
  if (!first || *first >= object.body.size()) {
    answer.status = 416;
    answer.body.clear();
    return answer;
  }
  answer.status = 206;
  answer.headers["Content-Range"] = "bytes " + std::to_string(*first) + "-" +
                                    std::to_string(object.body.size() - 1) + "/" +
                                    std::to_string(object.body.size());
  answer.body = object.body.substr(*first);
  return answer;
}

}  // namespace gpulet::testing

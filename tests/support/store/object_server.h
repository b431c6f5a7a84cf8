// ObjectServer: an HTTP server on loopback that misbehaves as a test wants it: it answers with any
// bytes, stops in the middle of a body, or waits. Plain or over TLS. One request per connection;
// threads of its own. Calls from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gpulet::testing {

struct ObjectRequest {
  std::string method;
  std::string target;                          // path and query
  std::map<std::string, std::string> headers;  // names in lower case
  [[nodiscard]] std::string header(const std::string& name) const;
};

struct ObjectAnswer {
  int status = 200;
  // Beside Content-Length, which an answer with Transfer-Encoding does not have.
  std::map<std::string, std::string> headers{};
  std::string body{};
  // After so many bytes of the body the connection ends.
  std::optional<std::size_t> cut_after{};
  // Before the first byte, and before each further block of that many bytes. 0: the whole at once.
  std::chrono::milliseconds pause{};
  std::size_t block = 0;
};

// Files in PEM.
struct ServerIdentity {
  std::filesystem::path certificate;
  std::filesystem::path key;
};

class ObjectServer {
 public:
  using Handler = std::function<ObjectAnswer(const ObjectRequest&)>;

  explicit ObjectServer(Handler handler);
  ObjectServer(Handler handler, const ServerIdentity& identity);  // over TLS
  ~ObjectServer();
  ObjectServer(const ObjectServer&) = delete;
  ObjectServer& operator=(const ObjectServer&) = delete;

  void answer_with(Handler handler);
  [[nodiscard]] std::uint16_t port() const;
  // "http://127.0.0.1:PORT" + path; https over TLS
  [[nodiscard]] std::string url(const std::string& path) const;
  // In the order of their arrival.
  [[nodiscard]] std::vector<ObjectRequest> requests() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Serves one object like a web server: ETag, conditions, ranges, If-Range.
struct StoredObject {
  std::string body;
  std::string etag;           // empty: none
  std::string last_modified;  // empty: none
};
[[nodiscard]] ObjectAnswer serve_object(const StoredObject& object, const ObjectRequest& request);

}  // namespace gpulet::testing

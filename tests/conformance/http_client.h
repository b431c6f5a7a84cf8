// HttpConnection: one kept-alive HTTP/1.1 connection on a plain socket, as libcurl has it. It
// shares no code with the server that it asks. Blocking; for one thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace gpulet::conformance {

struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

class HttpConnection {
 public:
  // Connects, or throws.
  explicit HttpConnection(std::uint16_t port);
  // Throws where the connection ends, or where the answer has neither a length nor chunks.
  HttpAnswer ask(const std::string& method, const std::string& target, const std::string& body = "",
                 const HttpHeaders& headers = {});
  HttpAnswer get(const std::string& target) { return ask("GET", target); }
  HttpAnswer post(const std::string& target, const std::string& body = "") {
    return ask("POST", target, body);
  }
  // A request with binary tensors after its JSON, with the headers that the C++ client sends.
  HttpAnswer infer(const std::string& model, const nlohmann::json& request,
                   const std::string& tensors = "", const HttpHeaders& more = {});

 private:
  std::string read_line();
  std::string read_bytes(std::size_t count);

  boost::asio::io_context io_;
  boost::asio::ip::tcp::socket socket_;
  std::string unread_;
};

// An output as Triton's C++ client keeps it.
struct HttpOutput {
  std::string datatype;
  std::vector<std::int64_t> shape;
  std::string bytes;    // of a binary output
  nlohmann::json data;  // of one in JSON
  bool in_answer = false;
};

// The outputs of an answer to an inference, read as strictly as Triton's clients do: `parameters`
// of an output must hold an unsigned binary_data_size, data in JSON must be flat, and the tensors
// must fill the rest of the body. Throws, saying what a client would refuse.
[[nodiscard]] std::map<std::string, HttpOutput> read_outputs(const HttpAnswer& answer);
// The JSON of an answer to an inference, without the tensors behind it. Throws where there is none.
[[nodiscard]] nlohmann::json read_header(const HttpAnswer& answer);
// Throws where the answer is not one that a client reports as a failure: not 200, with JSON
// {"error": text}.
void check_error(const HttpAnswer& answer);

}  // namespace gpulet::conformance

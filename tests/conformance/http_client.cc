#include "tests/conformance/http_client.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <cctype>
#include <stdexcept>

namespace gpulet::conformance {
namespace {

namespace asio = boost::asio;
using nlohmann::json;

void must(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text;
}

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::size_t header_length(const HttpAnswer& answer) {
  const auto found = answer.headers.find("inference-header-content-length");
  return found == answer.headers.end() ? answer.body.size() : std::stoul(found->second);
}

}  // namespace

HttpConnection::HttpConnection(std::uint16_t port) : socket_(io_) {
  socket_.connect({asio::ip::make_address("127.0.0.1"), port});
  socket_.set_option(asio::ip::tcp::no_delay(true));
}

std::string HttpConnection::read_line() {
  const std::size_t length = asio::read_until(socket_, asio::dynamic_buffer(unread_), "\r\n");
  std::string line = unread_.substr(0, length - 2);
  unread_.erase(0, length);
  return line;
}

std::string HttpConnection::read_bytes(std::size_t count) {
  if (unread_.size() < count)
    asio::read(socket_, asio::dynamic_buffer(unread_),
               asio::transfer_exactly(count - unread_.size()));
  std::string bytes = unread_.substr(0, count);
  unread_.erase(0, count);
  return bytes;
}

HttpAnswer HttpConnection::ask(const std::string& method, const std::string& target,
                               const std::string& body, const HttpHeaders& headers) {
  std::string head = method + " " + target + " HTTP/1.1\r\nHost: localhost\r\n";
  for (const auto& [name, value] : headers) head += name + ": " + value + "\r\n";
  if (method != "GET") head += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  asio::write(socket_, asio::buffer(head + "\r\n" + body));

  HttpAnswer answer;
  const std::string status_line = read_line();
  must(status_line.rfind("HTTP/1.1 ", 0) == 0, "not an answer of HTTP/1.1: " + status_line);
  answer.status = std::stoi(status_line.substr(9, 3));
  for (std::string line = read_line(); !line.empty(); line = read_line()) {
    const std::size_t colon = line.find(':');
    must(colon != std::string::npos, "not a header: " + line);
    answer.headers[lower(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
  }
  if (const auto length = answer.headers.find("content-length"); length != answer.headers.end()) {
    answer.body = read_bytes(std::stoul(length->second));
    return answer;
  }
  must(answer.headers["transfer-encoding"] == "chunked", "an answer without a length");
  while (const std::size_t size = std::stoul(read_line(), nullptr, 16)) {
    answer.body += read_bytes(size);
    read_line();
  }
  read_line();
  return answer;
}

HttpAnswer HttpConnection::infer(const std::string& model, const json& request,
                                 const std::string& tensors, const HttpHeaders& more) {
  const std::string text = request.dump();
  HttpHeaders headers = {{"Accept", "*/*"},
                         {"User-Agent", "libcurl-agent/1.0"},
                         {"Inference-Header-Content-Length", std::to_string(text.size())},
                         {"Content-Type", "application/octet-stream"}};
  headers.insert(headers.end(), more.begin(), more.end());
  return ask("POST", "/v2/models/" + model + "/infer", text + tensors, headers);
}

json read_header(const HttpAnswer& answer) {
  must(answer.status == 200, "status " + std::to_string(answer.status) + ": " + answer.body);
  const std::size_t length = header_length(answer);
  must(length <= answer.body.size(), "Inference-Header-Content-Length is beyond the body's end");
  json header = json::parse(answer.body.substr(0, length), nullptr, false);
  must(header.is_object(), "no JSON object: " + answer.body.substr(0, length));
  return header;
}

std::map<std::string, HttpOutput> read_outputs(const HttpAnswer& answer) {
  const json header = read_header(answer);
  std::size_t next = header_length(answer);
  std::map<std::string, HttpOutput> outputs;
  for (const json& member : header.at("outputs")) {
    HttpOutput output;
    output.datatype = member.at("datatype").get<std::string>();
    for (const json& dimension : member.at("shape")) {
      must(dimension.is_number_integer(), "a dimension that is no integer: " + member.dump());
      output.shape.push_back(dimension.get<std::int64_t>());
    }
    const auto parameters = member.find("parameters");
    const auto data = member.find("data");
    if (parameters != member.end()) {
      must(parameters->contains("binary_data_size") &&
               parameters->at("binary_data_size").is_number_unsigned(),
           "parameters without binary_data_size: " + member.dump());
      const auto size = parameters->at("binary_data_size").get<std::size_t>();
      must(next + size <= answer.body.size(), "a tensor beyond the body's end: " + member.dump());
      output.bytes = answer.body.substr(next, size);
      output.in_answer = true;
      next += size;
    } else if (data != member.end()) {
      must(data->is_array(), "data that is no list: " + member.dump());
      for (const json& element : *data)
        must(!element.is_array(), "data that is nested: " + member.dump());
      output.data = *data;
      output.in_answer = true;
    }
    outputs.emplace(member.at("name").get<std::string>(), std::move(output));
  }
  must(next == answer.body.size(), "bytes after the last tensor");
  return outputs;
}

void check_error(const HttpAnswer& answer) {
  must(answer.status != 200, "an error was expected: " + answer.body);
  must(answer.status != 499, "499 is read as a deadline that passed");
  const json body = json::parse(answer.body, nullptr, false);
  must(body.is_object() && body.contains("error") && body["error"].is_string() &&
           !body["error"].get<std::string>().empty(),
       "no {\"error\": text}: " + answer.body);
}

}  // namespace gpulet::conformance

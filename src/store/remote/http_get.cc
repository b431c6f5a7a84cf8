#include "store/remote/http_get.h"

#include <curl/curl.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <memory>

namespace gpulet::store::remote {
namespace {

constexpr std::size_t kLongestError = 4096;

struct FreeHandle {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};

// Global, once; libcurl needs it before its first handle.
bool curl_is_ready() {
  static const bool ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  return ready;
}

struct Transfer {
  const GetCalls& calls;
  std::optional<AddressClass> reaches;
  bool kept_away = false;  // from an address of another class
  GetResponse response{};
  Status failure{};  // of this side; ok: none
  bool begun = false;
  bool cancelled = false;

  [[nodiscard]] bool has_content() const { return response.head.has_content(); }
  // Whether the transfer goes on.
  bool take(std::string_view bytes) {
    if (!has_content()) {
      const std::size_t room = kLongestError - std::min(kLongestError, response.error.size());
      response.error += bytes.substr(0, room);
      return room > 0;
    }
    if (!std::exchange(begun, true)) failure = calls.begin(response.head);
    if (failure.ok()) failure = calls.data(bytes);
    return failure.ok();
  }
};

// C calls these. An exception must not pass through libcurl.
std::size_t on_header(char* line, std::size_t one, std::size_t count, void* transfer) {
  const std::size_t bytes = one * count;
  auto& state = *static_cast<Transfer*>(transfer);
  if (state.response.head.add_line({line, bytes})) return bytes;
  state.failure = {StatusCode::malformed, "the head of the store's answer is too long"};
  return 0;
}

std::size_t on_data(char* data, std::size_t one, std::size_t count, void* transfer) {
  const std::size_t bytes = one * count;
  return static_cast<Transfer*>(transfer)->take({data, bytes}) ? bytes : 0;
}

int on_progress(void* transfer, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  auto& state = *static_cast<Transfer*>(transfer);
  state.cancelled = state.calls.cancelled();
  return state.cancelled ? 1 : 0;
}

// The last word on where a connection goes: after redirects and name resolution, and in place of
// libcurl's own call of socket().
curl_socket_t on_connect(void* transfer, curlsocktype purpose, curl_sockaddr* address) {
  auto& state = *static_cast<Transfer*>(transfer);
  if (purpose != CURLSOCKTYPE_IPCXN) return CURL_SOCKET_BAD;
  const AddressClass found = class_of(address->addr);
  if (state.reaches && found != AddressClass::global && found != *state.reaches) {
    state.kept_away = true;
    return CURL_SOCKET_BAD;
  }
  return ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

long milliseconds(Duration duration) {
  return static_cast<long>(std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}
long seconds(Duration duration) {
  return std::max(
      1L, static_cast<long>(std::chrono::duration_cast<std::chrono::seconds>(duration).count()));
}

void configure(CURL* handle, const GetRequest& request, const GetLimits& limits,
               curl_slist* headers, Transfer& transfer) {
  curl_easy_setopt(handle, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(handle, CURLOPT_PATH_AS_IS, 1L);  // a signature covers the path as written
  curl_easy_setopt(handle, CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "gpulet");
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);    // other threads run
  curl_easy_setopt(handle, CURLOPT_QUICK_EXIT, 1L);  // a slow name server must not delay the end
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, milliseconds(limits.connect));
  curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, milliseconds(limits.total));
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(limits.min_bytes_per_second));
  curl_easy_setopt(handle, CURLOPT_LOW_SPEED_TIME, seconds(limits.stall));
  if (!limits.authority.empty()) curl_easy_setopt(handle, CURLOPT_CAINFO, limits.authority.c_str());
  curl_easy_setopt(handle, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(handle, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, on_data);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, on_progress);
  curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &transfer);
  curl_easy_setopt(handle, CURLOPT_OPENSOCKETFUNCTION, on_connect);
  curl_easy_setopt(handle, CURLOPT_OPENSOCKETDATA, &transfer);
}

// libcurl's own descriptions name neither the URL nor a header.
Status status_of(CURLcode code) {
  const std::string what = curl_easy_strerror(code);
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return {StatusCode::timeout, "the store is silent or too slow (" + what + ")"};
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_HTTP2_STREAM:
      return {StatusCode::unavailable, "the transfer broke off (" + what + ")"};
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return {StatusCode::invalid, "the store's certificate cannot be trusted (" + what +
                                       "); set \"authority\" of \"remote_stores\" to the "
                                       "certificate of its authority"};
    default:
      return {StatusCode::unavailable, "the store cannot be reached (" + what + ")"};
  }
}

}  // namespace

Result<GetResponse> http_get(const GetRequest& request, const GetLimits& limits,
                             const GetCalls& calls) {
  const std::unique_ptr<CURL, FreeHandle> handle(curl_is_ready() ? curl_easy_init() : nullptr);
  if (handle == nullptr) return Status(StatusCode::internal, "libcurl cannot be initialised");
  std::unique_ptr<curl_slist, FreeList> headers;
  for (const auto& [name, value] : request.headers) {
    curl_slist* const longer = curl_slist_append(headers.get(), (name + ": " + value).c_str());
    if (longer == nullptr) return Status(StatusCode::internal, "no memory for a header");
    static_cast<void>(headers.release());
    headers.reset(longer);
  }
  Transfer transfer{.calls = calls, .reaches = request.reaches};
  configure(handle.get(), request, limits, headers.get(), transfer);
  const CURLcode code = curl_easy_perform(handle.get());
  if (transfer.cancelled) return Status(StatusCode::cancelled, "the fetch was cancelled");
  if (!transfer.failure.ok()) return transfer.failure;
  // The rest of a long error page is not wanted.
  const bool cut = code == CURLE_WRITE_ERROR && !transfer.has_content();
  if (code != CURLE_OK && !cut) {
    if (!transfer.kept_away) return status_of(code);
    return Status(StatusCode::invalid,
                  "the store redirects to an address of this machine or of its network, where the "
                  "store itself is not; correct \"file\"");
  }
  if (transfer.has_content() && !transfer.begun) {
    if (Status begun = calls.begin(transfer.response.head); !begun.ok()) return begun;  // empty
  }
  char* peer = nullptr;
  if (curl_easy_getinfo(handle.get(), CURLINFO_PRIMARY_IP, &peer) == CURLE_OK && peer != nullptr)
    transfer.response.peer = class_of(std::string(peer)).value_or(AddressClass::special);
  char* redirect = nullptr;
  if (curl_easy_getinfo(handle.get(), CURLINFO_REDIRECT_URL, &redirect) == CURLE_OK &&
      redirect != nullptr)
    transfer.response.redirect = redirect;
  return std::move(transfer.response);
}

}  // namespace gpulet::store::remote

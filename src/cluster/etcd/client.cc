#include "cluster/etcd/client.h"

#include <fmt/format.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string_view>
#include <utility>

#include "etcd.grpc.pb.h"

namespace gpulet::cluster {
namespace {

namespace wire = ::etcdserverpb;

constexpr std::int64_t kPageKeys = 500;
constexpr std::size_t kMostKeys = 100'000;

// The first key after all keys that begin with the prefix.
std::string end_of(std::string prefix) {
  while (!prefix.empty() && prefix.back() == '\xff') prefix.pop_back();
  if (!prefix.empty()) prefix.back() = static_cast<char>(prefix.back() + 1);
  return prefix.empty() ? std::string(1, '\0') : prefix;
}

// etcd has one code for several faults of a login; only its text tells them apart.
StoreFault fault_of_argument(std::string_view text) {
  if (text.find("authentication failed") != std::string_view::npos)
    return StoreFault::wrong_password;
  const bool no_login = text.find("user name is empty") != std::string_view::npos ||
                        text.find("revision of auth store is old") != std::string_view::npos;
  return no_login ? StoreFault::not_logged_in : StoreFault::rejected;
}

StoreFault fault_of(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::UNAUTHENTICATED:
      return StoreFault::not_logged_in;
    case grpc::StatusCode::INVALID_ARGUMENT:
      return fault_of_argument(status.error_message());
    case grpc::StatusCode::PERMISSION_DENIED:
      return StoreFault::no_right;
    case grpc::StatusCode::NOT_FOUND:
      return StoreFault::lease_gone;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return StoreFault::full;
    default:
      return StoreFault::unreachable;
  }
}

StatusCode code_of(StoreFault fault) {
  switch (fault) {
    case StoreFault::wrong_password:
    case StoreFault::not_logged_in:
      return StatusCode::unauthenticated;
    case StoreFault::no_right:
      return StatusCode::forbidden;
    case StoreFault::full:
      return StatusCode::overloaded;
    case StoreFault::lease_gone:
      return StatusCode::not_found;
    case StoreFault::rejected:
      return StatusCode::internal;
    case StoreFault::unreachable:
      break;
  }
  return StatusCode::unavailable;
}

std::shared_ptr<grpc::Channel> channel_to(const std::string& endpoint,
                                          const std::optional<EtcdTls>& tls) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);  // also the time to connect
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10'000);  // etcd refuses less than 5 s
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 3'000);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto credentials = tls ? grpc::SslCredentials({tls->authority, tls->key, tls->certificate})
                               : grpc::InsecureChannelCredentials();
  return grpc::CreateCustomChannel(endpoint, credentials, arguments);
}

wire::TxnRequest transaction_of(const Write& write, const std::string& prefix) {
  wire::TxnRequest request;
  for (const Write::Condition& one : write.conditions) {
    wire::Compare& compare = *request.add_compare();
    compare.set_result(wire::Compare::EQUAL);
    compare.set_target(wire::Compare::MOD);
    compare.set_key(prefix + one.key);
    compare.set_mod_revision(one.changed);
  }
  for (const Write::Put& one : write.puts) {
    wire::RequestOp& operation = *request.add_success();
    if (!one.value) {
      operation.mutable_request_delete_range()->set_key(prefix + one.key);
      continue;
    }
    wire::PutRequest& put = *operation.mutable_request_put();
    put.set_key(prefix + one.key);
    put.set_value(*one.value);
    if (one.with_lease) put.set_lease(write.lease);
  }
  return request;
}

Duration seconds_of(std::int64_t seconds) {
  constexpr std::int64_t kLongest = 1'000'000;
  return std::chrono::seconds(std::clamp<std::int64_t>(seconds, 0, kLongest));
}

}  // namespace

// Channels must not end in a callback: the last one joins the threads that run callbacks. A call's
// context refers to its channel, so close() waits until every context is destroyed.
class EtcdClient::Impl {
 public:
  Impl(const EtcdOptions& options, std::function<void(Ended)> on_ended)
      : prefix_(options.prefix),
        user_(options.user),
        password_(options.password),
        on_ended_(std::move(on_ended)) {
    for (const std::string& endpoint : options.endpoints) {
      const auto channel = channel_to(endpoint, options.tls);
      endpoints_.push_back({endpoint, wire::KV::NewStub(channel), wire::Lease::NewStub(channel),
                            wire::Watch::NewStub(channel), wire::Auth::NewStub(channel)});
    }
  }

  void close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    for (grpc::ClientContext* const context : contexts_) context->TryCancel();
    idle_.wait(lock, [this] { return in_flight_ == 0; });
  }

  void start(const Call& call) {
    std::visit([&](const auto& request) { begin(call, request); }, call.request);
  }

 private:
  struct Endpoint {
    std::string name;
    std::unique_ptr<wire::KV::Stub> kv;
    std::unique_ptr<wire::Lease::Stub> lease;
    std::unique_ptr<wire::Watch::Stub> watch;
    std::unique_ptr<wire::Auth::Stub> auth;
  };

  // Counts a call from its construction to its destruction.
  class InFlight {
   public:
    explicit InFlight(Impl& impl) : impl_(impl) {
      const std::lock_guard lock(impl_.mutex_);
      ++impl_.in_flight_;
    }
    ~InFlight() {
      const std::lock_guard lock(impl_.mutex_);
      if (--impl_.in_flight_ == 0) impl_.idle_.notify_all();
    }
    InFlight(const InFlight&) = delete;
    InFlight& operator=(const InFlight&) = delete;

   private:
    Impl& impl_;
  };

  // A call in flight: what gRPC refers to until its callback.
  template <typename Request, typename Response>
  struct Unary {
    explicit Unary(Impl& impl) : in_flight(impl) {}

    InFlight in_flight;  // first, so that it is destroyed after the context
    grpc::ClientContext context;
    Request request;
    Response response;
  };

  // A KeepAlive or a Watch: a stream on which one request is written. Keeps itself until gRPC is
  // done with it.
  template <typename Request, typename Response>
  class Stream : public grpc::ClientBidiReactor<Request, Response> {
   public:
    InFlight in_flight;  // first, so that it is destroyed after the context
    grpc::ClientContext context;

    // Returns whether to read on.
    using OnResponse = std::function<bool(const Response&)>;
    using OnEnd = std::function<void(const grpc::Status&)>;

    Stream(Impl& impl, Request request, OnResponse on_response)
        : in_flight(impl), request_(std::move(request)), on_response_(std::move(on_response)) {}
    void run(std::shared_ptr<Stream> self, OnEnd on_end) {
      self_ = std::move(self);
      on_end_ = std::move(on_end);
      this->StartWrite(&request_);
      this->StartRead(&response_);
      this->StartCall();
    }
    void OnReadDone(bool ok) override {
      if (!ok) return;
      if (on_response_(response_)) {
        this->StartRead(&response_);
      } else {
        context.TryCancel();
      }
    }
    void OnDone(const grpc::Status& status) override {
      const std::shared_ptr<Stream> last = std::move(self_);
      on_end_(status);
    }

   private:
    Request request_;
    Response response_;
    OnResponse on_response_;
    OnEnd on_end_;
    std::shared_ptr<Stream> self_;
  };

  // Returns whether the call may begin.
  bool enter(grpc::ClientContext& context, bool limited) {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    contexts_.insert(&context);
    context.AddMetadata("hasleader", "true");
    if (!token_.empty()) context.AddMetadata("token", token_);
    if (limited) context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    return true;
  }
  void exit(grpc::ClientContext& context, Ended ended) {
    const std::lock_guard lock(mutex_);
    if (!closed_) on_ended_(std::move(ended));
    contexts_.erase(&context);
  }

  [[nodiscard]] CallEnded failed(const Call& call, const grpc::Status& status) const {
    const StoreFault fault = fault_of(status);
    return {call.number,
            CallFailed{fault,
                       {code_of(fault),
                        fmt::format("etcd at {}: {}", endpoints_[call.endpoint].name,
                                    status.error_message().empty() ? "no reply"
                                                                   : status.error_message())}}};
  }

  // `reply(response)`: the Reply of a call that succeeded.
  template <typename Request, typename Response, typename Method, typename MakeReply>
  void unary(const Call& call, Request request, Method method, MakeReply reply) {
    auto state = std::make_shared<Unary<Request, Response>>(*this);
    if (!enter(state->context, true)) return;
    state->request = std::move(request);
    method(state->context, state->request, state->response,
           [this, call, state, reply](const grpc::Status& status) {
             Ended ended = status.ok() ? CallEnded{call.number, Reply(reply(state->response))}
                                       : failed(call, status);
             exit(state->context, std::move(ended));
           });
  }

  void begin(const Call& call, const LogIn& /*request*/) {
    wire::AuthenticateRequest request;
    request.set_name(user_);
    request.set_password(password_);
    auto& stub = *endpoints_[call.endpoint].auth;
    auto state =
        std::make_shared<Unary<wire::AuthenticateRequest, wire::AuthenticateResponse>>(*this);
    set_token({});
    if (!enter(state->context, true)) return;
    state->request = std::move(request);
    stub.async()->Authenticate(
        &state->context, &state->request, &state->response,
        [this, call, state](const grpc::Status& status) {
          // Without users, etcd needs no login.
          const bool open = status.error_code() == grpc::StatusCode::FAILED_PRECONDITION;
          if (status.ok()) set_token(state->response.token());
          exit(state->context, status.ok() || open ? CallEnded{call.number, Reply(LoggedIn{})}
                                                   : failed(call, status));
        });
  }

  void set_token(std::string token) {
    const std::lock_guard lock(mutex_);
    token_ = std::move(token);
  }

  void begin(const Call& call, const ReadAll& /*request*/) {
    read_page(call, prefix_, 0, std::make_shared<AllKeys>());
  }
  // All pages are of one revision; 0: the present one.
  void read_page(const Call& call, const std::string& from, Revision revision,
                 const std::shared_ptr<AllKeys>& read) {
    auto state = std::make_shared<Unary<wire::RangeRequest, wire::RangeResponse>>(*this);
    if (!enter(state->context, true)) return;
    state->request.set_key(from);
    state->request.set_range_end(end_of(prefix_));
    state->request.set_limit(kPageKeys);
    state->request.set_revision(revision);
    endpoints_[call.endpoint].kv->async()->Range(
        &state->context, &state->request, &state->response,
        [this, call, state, read](const grpc::Status& status) {
          on_page(call, *state, status, read);
        });
  }
  void on_page(const Call& call, Unary<wire::RangeRequest, wire::RangeResponse>& state,
               const grpc::Status& status, const std::shared_ptr<AllKeys>& read) {
    if (!status.ok()) return exit(state.context, failed(call, status));
    const wire::RangeResponse& response = state.response;
    if (read->revision == 0) read->revision = response.header().revision();
    for (const wire::KeyValue& kv : response.kvs()) {
      if (!kv.key().starts_with(prefix_)) continue;
      read->values.insert_or_assign(
          kv.key().substr(prefix_.size()),
          StoredValue{kv.value(), kv.create_revision(), kv.mod_revision(), kv.lease()});
    }
    if (response.more() && response.kvs_size() > 0 && read->values.size() < kMostKeys) {
      const std::string last = response.kvs(response.kvs_size() - 1).key();
      read_page(call, last + '\0', read->revision, read);
      const std::lock_guard lock(mutex_);
      contexts_.erase(&state.context);
      return;
    }
    exit(state.context, CallEnded{call.number, Reply(std::move(*read))});
  }

  void begin(const Call& call, const Write& request) {
    unary<wire::TxnRequest, wire::TxnResponse>(
        call, transaction_of(request, prefix_),
        [&stub = *endpoints_[call.endpoint].kv](auto& context, const auto& asked, auto& answer,
                                                auto done) {
          stub.async()->Txn(&context, &asked, &answer, std::move(done));
        },
        [](const wire::TxnResponse& response) { return Written{response.succeeded()}; });
  }

  void begin(const Call& call, const GrantLease& request) {
    wire::LeaseGrantRequest asked;
    asked.set_ttl(std::chrono::ceil<std::chrono::seconds>(request.time_to_live).count());
    unary<wire::LeaseGrantRequest, wire::LeaseGrantResponse>(
        call, std::move(asked),
        [&stub = *endpoints_[call.endpoint].lease](auto& context, const auto& what, auto& answer,
                                                   auto done) {
          stub.async()->LeaseGrant(&context, &what, &answer, std::move(done));
        },
        [](const wire::LeaseGrantResponse& response) {
          return LeaseGranted{response.id(), seconds_of(response.ttl())};
        });
  }

  void begin(const Call& call, const RevokeLease& request) {
    wire::LeaseRevokeRequest asked;
    asked.set_id(request.lease);
    unary<wire::LeaseRevokeRequest, wire::LeaseRevokeResponse>(
        call, std::move(asked),
        [&stub = *endpoints_[call.endpoint].lease](auto& context, const auto& what, auto& answer,
                                                   auto done) {
          stub.async()->LeaseRevoke(&context, &what, &answer, std::move(done));
        },
        [](const wire::LeaseRevokeResponse& /*response*/) { return LeaseRevoked{}; });
  }

  void begin(const Call& call, const KeepAlive& request) {
    using KeepAliveStream = Stream<wire::LeaseKeepAliveRequest, wire::LeaseKeepAliveResponse>;
    wire::LeaseKeepAliveRequest asked;
    asked.set_id(request.lease);
    auto kept = std::make_shared<std::optional<KeptAlive>>();
    auto stream = std::make_shared<KeepAliveStream>(
        *this, std::move(asked), [kept](const wire::LeaseKeepAliveResponse& response) {
          *kept = KeptAlive{seconds_of(response.ttl())};
          return false;
        });
    run(
        stream,
        [this, kept, call](const grpc::Status& status) {
          return *kept ? CallEnded{call.number, Reply(**kept)} : failed(call, status);
        },
        true,
        [&](grpc::ClientContext* context, KeepAliveStream* reactor) {
          endpoints_[call.endpoint].lease->async()->LeaseKeepAlive(context, reactor);
        });
  }

  void begin(const Call& call, const Watch& /*request*/) {
    using WatchStream = Stream<wire::WatchRequest, wire::WatchResponse>;
    wire::WatchRequest asked;
    asked.mutable_create_request()->set_key(prefix_);
    asked.mutable_create_request()->set_range_end(end_of(prefix_));
    auto stream = std::make_shared<WatchStream>(
        *this, std::move(asked), [this, number = call.number](const wire::WatchResponse& response) {
          if (response.canceled()) return false;
          const std::lock_guard lock(mutex_);
          if (!closed_) on_ended_(ChangeSeen{number});
          return !closed_;
        });
    run(
        stream,
        [this, call](const grpc::Status& status) {
          const bool ended = status.ok() || status.error_code() == grpc::StatusCode::CANCELLED;
          return ended ? CallEnded{call.number, Reply(WatchEnded{})} : failed(call, status);
        },
        false,
        [&](grpc::ClientContext* context, WatchStream* reactor) {
          endpoints_[call.endpoint].watch->async()->Watch(context, reactor);
        });
  }

  template <typename AnyStream, typename MakeEnd, typename Bind>
  void run(const std::shared_ptr<AnyStream>& stream, MakeEnd end, bool limited, Bind bind) {
    if (!enter(stream->context, limited)) return;
    bind(&stream->context, stream.get());
    stream->run(stream, [this, end, raw = stream.get()](const grpc::Status& status) {
      exit(raw->context, end(status));
    });
  }

  const std::string prefix_;
  const std::string user_;
  const std::string password_;
  const std::function<void(Ended)> on_ended_;
  std::vector<Endpoint> endpoints_;

  std::mutex mutex_;  // guards the rest
  std::condition_variable idle_;
  bool closed_ = false;
  std::size_t in_flight_ = 0;                // calls that exist
  std::set<grpc::ClientContext*> contexts_;  // of those that have not ended
  std::string token_;
};

EtcdClient::EtcdClient(const EtcdOptions& options, std::function<void(Ended)> on_ended)
    : impl_(std::make_unique<Impl>(options, std::move(on_ended))) {}
EtcdClient::~EtcdClient() { impl_->close(); }
void EtcdClient::start(const Call& call) { impl_->start(call); }

}  // namespace gpulet::cluster

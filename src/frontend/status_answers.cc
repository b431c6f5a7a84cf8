#include "status_answers.h"

#include <utility>

#include "gpulet/net/codec/codec.h"
#include "gpulet/serve/messages.h"
#include "status_json.h"

namespace gpulet::frontend {

StatusAnswers::StatusAnswers(net::asio::io_context& io, StatusSnapshots& snapshots,
                             Background& background, Send send)
    : document_(io, snapshots, background,
                [](const TimedStatus& timed) {
                  return net::encode(serve::FrontendReply(
                      serve::StatusReply{status_json(timed.status, timed.moment)}));
                }),
      send_(std::move(send)) {}

void StatusAnswers::ask(ClientId client) {
  Asker& asker = askers_[client];
  if (++asker.open == 1) fetch(client, asker.had);
}

void StatusAnswers::fetch(ClientId client, std::uint64_t newer_than) {
  document_.get(
      [this, client](const auto& made) {
        const auto found = askers_.find(client);
        if (found == askers_.end()) return;  // it left
        found->second.had = made.number;
        const bool more = --found->second.open > 0;
        send_(client, *made.document);
        if (more) fetch(client, made.number);
      },
      newer_than);
}

}  // namespace gpulet::frontend

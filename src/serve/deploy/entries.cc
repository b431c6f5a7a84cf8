#include "serve/deploy/entries.h"

namespace gpulet::serve {

const std::string& Entries::member_of(ClientId client) const {
  const auto found = entries_.find(client);
  return found == entries_.end() ? nobody_ : found->second.member;
}

bool Entries::may_keep(ClientId client, Time now) const {
  const auto found = entries_.find(client);
  return found != entries_.end() && now >= found->second.with_payloads_until &&
         backends_.all_take_rows();
}

void Entries::note_missing(ClientId client, Time now) {
  const auto found = entries_.find(client);
  if (found != entries_.end()) found->second.with_payloads_until = now + kWithPayloadsFor;
}

}  // namespace gpulet::serve

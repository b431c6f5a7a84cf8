#include "frontend/cluster/model_changes.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace gpulet::frontend {

ModelChanges::ModelChanges(net::asio::io_context& io, const serve::FrontendCore& core,
                           const ClusterLink& cluster, CatalogueService& catalogue,
                           ServedFiles& files, Host& host)
    : core_(core),
      cluster_(cluster),
      catalogue_(catalogue),
      files_(files),
      host_(host),
      fetcher_(*this),
      adoption_(io, fetcher_, *this),
      shared_(io, *this),
      overdue_(io) {}

void ModelChanges::tell(const CatalogueState& state) { peers_->tell(state); }

std::set<ClientId> ModelChanges::listeners() const { return peers_->listeners(); }

void ModelChanges::adopt(Bytes text, Done done) {
  adoption_.adopt(std::move(text), std::move(done));
}

void ModelChanges::read_changes(Bytes text, Missing missing, CatalogueService::OnRead done) {
  catalogue_.adopt(std::move(text), missing, std::move(done));
}

void ModelChanges::apply(Result<LoadedCatalogue> read, Done done) {
  host_.apply_change(std::move(read), std::move(done));
}

std::vector<std::string> ModelChanges::members_with_files() const {
  return peers_->members_with_files();
}

void ModelChanges::request(const std::string& member, const ModelPieceRequest& piece,
                           ModelFetcher::OnPiece done) {
  peers_->request(member, piece, std::move(done));
}

void ModelChanges::store(ModelPiece piece, ModelFetcher::OnStored done) {
  catalogue_.store(std::move(piece), std::move(done));
}

void ModelChanges::on_change(ClientId client, const std::string& from, ChangeModels asked) {
  make({asked.change, std::move(asked.files), from},
       [this, client, from, tag = asked.tag, name = asked.change.name,
        kind = asked.change.kind](ModelsChanged changed) {
         host_.on_asked(from, name, kind, changed.status);
         peers_->reply_change(client, {tag, std::move(changed)});
       });
}

bool ModelChanges::on_piece_request(ClientId client, const ModelPieceRequest& request) {
  return files_.read(
      client.value, request.sha256, request.offset,
      [this, client](ModelPiece piece) { peers_->reply_piece(client, std::move(piece)); });
}

void ModelChanges::on_catalogue(const std::string& from, CatalogueState state) {
  shared_.on_state(from, std::move(state), [this, from](const CatalogueStamp& stamp) {
    peers_->send(from, CatalogueAdopted{stamp});
  });
}

void ModelChanges::on_adopted(ClientId client, const CatalogueStamp& stamp) {
  shared_.on_adopted(client, stamp);
}

void ModelChanges::on_gone(ClientId client) { shared_.on_gone(client); }

void ModelChanges::stop() {
  overdue_.cancel();
  shared_.stop();
  adoption_.stop();
}

void ModelChanges::follow(Term term, const std::string& leader, bool own) {
  shared_.follow(term, leader, own);
  const Time now = net::now();
  for (auto& [number, one] : pending_) {
    const bool still_leads = one.maker.empty() ? own : one.maker == leader;
    if (!still_leads) one.until = std::min(one.until, now + kFormerLeaderPatience);
  }
  answer_overdue();
}

ModelChanges::OnChanged ModelChanges::answered_in_time(const std::string& maker, OnChanged done) {
  const std::uint64_t number = ++last_pending_;
  pending_.emplace(number, Pending{maker, net::now() + kLongestChange, std::move(done)});
  answer_overdue();  // sets the alarm
  return [this, number](ModelsChanged changed) {
    auto found = pending_.extract(number);
    if (!found.empty()) found.mapped().done(std::move(changed));
  };
}

void ModelChanges::answer_overdue() {
  const Time now = net::now();
  std::vector<OnChanged> late;
  Time next = kNever;
  std::erase_if(pending_, [&](auto& one) {
    const bool over = now >= one.second.until;
    if (over) {
      late.push_back(std::move(one.second.done));
    } else {
      next = std::min(next, one.second.until);
    }
    return over;
  });
  if (next != kNever) overdue_.set(next, [this] { answer_overdue(); });
  for (const OnChanged& done : late) {
    done({{StatusCode::unavailable,
           "the change was not made in time, or another frontend leads now: look at the list of "
           "models, and try again"}});
  }
}

void ModelChanges::change(ModelsChange change, OnChanged done) {
  const std::string leader = core_.served_by();
  done = answered_in_time(leader, std::move(done));
  if (leader.empty()) return make({std::move(change), {}, {}}, std::move(done));
  // The leader may lack files that this machine has.
  catalogue_.files_of(change, [this, leader, change, done = std::move(done)](auto own) {
    pass_on(leader, change, std::move(own), done);
  });
}

void ModelChanges::pass_on(const std::string& leader, ModelsChange change,
                           CatalogueLoader::OwnFiles own, OnChanged done) {
  const std::uint64_t offer = files_.offer(std::move(own.files));
  peers_->change(leader, std::move(change), std::move(own.names),
                 [this, offer, done = std::move(done)](ModelsChanged made) {
                   files_.withdraw(offer);
                   if (!made.status.ok()) return done(std::move(made));
                   // The changes themselves arrived before the result.
                   catalogue_.after_changes([this, done, made = std::move(made)] {
                     std::vector<std::string> names;
                     for (const ModelInfo& model : made.models) names.push_back(model.name);
                     host_.when_settled([this, done, names = std::move(names)] {
                       done({{}, core_.models(names)});
                     });
                   });
                 });
}

void ModelChanges::make(Asked asked, OnChanged done) {
  const Term term = core_.leading_term();
  const std::optional<ClusterView>& cluster = cluster_.view();
  if (term == Term{})
    return done({{StatusCode::unavailable, "no frontend of the cluster leads now; try again"}});
  if (cluster && cluster->doubtful) {
    return done({{StatusCode::unavailable,
                  "another frontend may lead by now, because etcd is away; try again when it is "
                  "back"}});
  }
  read(std::move(asked), term, Missing::report, std::move(done));
}

void ModelChanges::read(Asked asked, Term term, Missing missing, OnChanged done) {
  ModelsChange change = asked.change;
  std::vector<NamedFile> files = asked.files;
  catalogue_.change(
      std::move(change), std::move(files), missing,
      [this, asked = std::move(asked), term, done = std::move(done)](Result<LoadedCatalogue> read) {
        if (!read.ok() || read.value().missing.empty())
          return conclude(term, std::move(read), done);
        fetcher_.fetch(members_beginning_with(asked.from), std::move(read.value().missing),
                       [this, asked, term, done](const Status& fetched) {
                         if (!fetched.ok()) spdlog::warn("{}", fetched.message());
                         this->read(asked, term, Missing::use_own, done);
                       });
      });
}

std::vector<std::string> ModelChanges::members_beginning_with(const std::string& first) const {
  std::vector<std::string> members = peers_->members_with_files();
  const auto found = std::ranges::find(members, first);
  if (found != members.end()) std::rotate(members.begin(), found, found + 1);
  return members;
}

void ModelChanges::conclude(Term term, Result<LoadedCatalogue> read, const OnChanged& done) {
  if (!read.ok()) {
    const Status why = read.status();
    return host_.apply_change(std::move(read), [done, why] { done({why}); });
  }
  std::vector<std::string> names = read.value().changed_models;
  std::string text = std::move(read.value().client_changes);
  host_.apply_change(std::move(read), [this, term, done, names = std::move(names),
                                       text = std::move(text)]() mutable {
    share(term, std::move(text), [this, done, names = std::move(names)] {
      if (core_.leading_term() == Term{}) {
        return done({{StatusCode::unavailable,
                      "another frontend leads now: look at the list of models, and try again"}});
      }
      done({{}, core_.models(names)});
    });
  });
}

void ModelChanges::share(Term term, std::string text, Done done) {
  if (peers_ == nullptr) return done();
  shared_.changed(term, std::move(text), std::move(done));
}

}  // namespace gpulet::frontend

#include "frontend/catalogue/shared_catalogue.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gpulet::frontend {
namespace {

Bytes bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return Bytes::own(std::vector<std::byte>(bytes.begin(), bytes.end()));
}

std::string text_of(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.view().data()), bytes.size()};
}

class SharedCatalogueTest : public ::testing::Test, private SharedCatalogue::Owner {
 protected:
  // What on_state() of that stamp answers; empty: nothing.
  std::optional<CatalogueStamp> hear(CatalogueStamp stamp, const std::string& text) {
    return hear("leader", stamp, text);
  }
  std::optional<CatalogueStamp> hear(const std::string& from, CatalogueStamp stamp,
                                     const std::string& text) {
    std::optional<CatalogueStamp> answered;
    shared_.on_state(from, {stamp, bytes_of(text)},
                     [&](const CatalogueStamp& adopted) { answered = adopted; });
    return answered;
  }

  net::asio::io_context io_{1};
  std::set<ClientId> listeners_;
  std::vector<std::string> told_;
  std::vector<std::string> adopted_;
  bool slow_ = false;
  std::vector<Done> adopting_;
  SharedCatalogue shared_{io_, *this};

 private:
  void tell(const CatalogueState& state) override { told_.push_back(text_of(state.text)); }
  [[nodiscard]] std::set<ClientId> listeners() const override { return listeners_; }
  void adopt(Bytes text, Done done) override {
    adopted_.push_back(text_of(text));
    if (!slow_) return done();
    adopting_.push_back(std::move(done));
  }
};

TEST_F(SharedCatalogueTest, AChangeIsMadeOnceAllListenersHaveIt) {
  listeners_ = {ClientId{1}, ClientId{2}};
  int made = 0;
  shared_.changed(Term{5}, "one", [&] { ++made; });
  EXPECT_EQ(told_, std::vector<std::string>{"one"});
  EXPECT_EQ(shared_.state().stamp, (CatalogueStamp{{5}, 1}));
  shared_.on_adopted(ClientId{1}, {{5}, 0});  // of an earlier change
  shared_.on_adopted(ClientId{1}, {{5}, 1});
  EXPECT_EQ(made, 0);
  shared_.on_gone(ClientId{2});
  EXPECT_EQ(made, 1);
  EXPECT_TRUE(adopted_.empty()) << "it has its own change";
}

TEST_F(SharedCatalogueTest, WithoutListenersAChangeIsMadeAtOnce) {
  int made = 0;
  shared_.changed(Term{5}, "one", [&] { ++made; });
  EXPECT_EQ(made, 1);
}

TEST_F(SharedCatalogueTest, AListenerThatDoesNotAnswerHoldsUpNoChange) {
  listeners_ = {ClientId{1}};
  int made = 0;
  shared_.changed(Term{5}, "one", [&] { ++made; });
  io_.run();  // until the alarm
  EXPECT_EQ(made, 1);
}

TEST_F(SharedCatalogueTest, LaterChangesAreAdoptedOnceAndToldOn) {
  shared_.follow({6}, "leader", false);
  EXPECT_EQ(hear({{5}, 1}, "one"), (CatalogueStamp{{5}, 1}));
  EXPECT_EQ(hear({{5}, 1}, "one"), (CatalogueStamp{{5}, 1})) << "from another frontend";
  EXPECT_EQ(adopted_, std::vector<std::string>{"one"});
  EXPECT_EQ(told_, std::vector<std::string>{"one"});
  EXPECT_EQ(hear({{6}, 2}, "two"), (CatalogueStamp{{6}, 2}));
  EXPECT_EQ(hear({{5}, 9}, "of a former leader"), std::nullopt);
  EXPECT_EQ(adopted_, (std::vector<std::string>{"one", "two"}));
  // Its own next change is later than all of them.
  shared_.changed(Term{7}, "three", [] {});
  EXPECT_EQ(shared_.state().stamp, (CatalogueStamp{{7}, 3}));
}

// Whoever is a member may repeat what a former leader said. Only the leader says what is new.
TEST_F(SharedCatalogueTest, OnlyTheLeaderOfTheTermMakesChanges) {
  constexpr std::uint64_t kMost = ~std::uint64_t{0};
  shared_.follow({6}, "leader", false);
  EXPECT_EQ(hear("other", {{6}, 1}, "made up"), std::nullopt);
  EXPECT_EQ(hear("other", {{kMost}, kMost}, "made up"), std::nullopt);
  EXPECT_EQ(hear("other", {{5}, kMost}, "made up"), std::nullopt);
  EXPECT_TRUE(adopted_.empty());
  EXPECT_EQ(hear("other", {{5}, 9}, "five"), (CatalogueStamp{{5}, 9}));
  EXPECT_EQ(hear("leader", {{6}, 1}, "six"), (CatalogueStamp{{6}, 1}));
  EXPECT_EQ(adopted_, (std::vector<std::string>{"five", "six"}));
  // What somebody made up has no part in the next term, either.
  shared_.follow({7}, "next", false);
  EXPECT_EQ(hear("next", {{7}, 1}, "seven"), (CatalogueStamp{{7}, 1}));
}

TEST_F(SharedCatalogueTest, ChangesOfATermWaitUntilTheStoreNamesIt) {
  shared_.follow({6}, "leader", false);
  std::vector<CatalogueStamp> adopted;
  shared_.on_state("next", {{{7}, 1}, bytes_of("seven")},
                   [&](const CatalogueStamp& stamp) { adopted.push_back(stamp); });
  EXPECT_TRUE(adopted.empty());
  shared_.follow({7}, "next", false);
  EXPECT_EQ(adopted, std::vector(1, CatalogueStamp{{7}, 1}));
  EXPECT_EQ(adopted_, std::vector<std::string>{"seven"});
}

TEST_F(SharedCatalogueTest, NobodyElseMakesChangesInTheOwnTerm) {
  shared_.follow({6}, "self", true);
  shared_.changed({6}, "one", [] {});
  EXPECT_EQ(hear("other", {{6}, 2}, "made up"), std::nullopt);
  shared_.follow({6}, "", false);
  EXPECT_EQ(hear("other", {{6}, 3}, "made up"), std::nullopt) << "it led in that term";
  EXPECT_EQ(hear("other", {{6}, 1}, "one"), (CatalogueStamp{{6}, 1})) << "what it said itself";
  EXPECT_TRUE(adopted_.empty());
}

TEST_F(SharedCatalogueTest, ChangesAreConfirmedOnceTheyAreAdopted) {
  shared_.follow({5}, "leader", false);
  slow_ = true;
  std::vector<CatalogueStamp> confirmed;
  const auto hear_later = [&](CatalogueStamp stamp) {
    shared_.on_state("leader", {stamp, bytes_of("text")},
                     [&](const CatalogueStamp& adopted) { confirmed.push_back(adopted); });
  };
  hear_later({{5}, 1});
  hear_later({{5}, 1});  // from another frontend
  EXPECT_TRUE(confirmed.empty());
  hear_later({{5}, 2});
  ASSERT_EQ(adopting_.size(), 2U);
  adopting_[0]();
  EXPECT_TRUE(confirmed.empty()) << "later changes are known";
  adopting_[1]();
  EXPECT_EQ(confirmed, std::vector(3, CatalogueStamp{{5}, 2}));
}

}  // namespace
}  // namespace gpulet::frontend

#include "serve/models/model_table.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <memory>
#include <set>

#include "tests/support/serve/ready_gpulet.h"

namespace gpulet::serve::model_table_test {
namespace {

using testing::at_ms;
using testing::byte_model;
using testing::FrontendParts;
using testing::new_version;

// A table over the queues and slots of a frontend, with versions that the test adds.
struct Table {
  ModelVersion version(const ServedModel& model) {
    ModelVersion made;
    made.index = parts.dispatcher.versions().add(model);
    made.id = version_of(model);
    return made;
  }
  NamedModel& add(const ServedModel& model) {
    NamedModel named;
    named.current = version(model);
    named.demand = parts.demands.add(model, at_ms(0));
    table.add(model.name, std::move(named));
    return *table.find(model.name);
  }

  FrontendParts parts;
  ModelTable table{parts.dispatcher.queues(), parts.dispatcher.slots(), parts.demands,
                   parts.backends};
};

TEST(NamedModel, TheNextVersionIsWantedUnlessItWaits) {
  NamedModel known;
  known.current.id = "current";
  EXPECT_EQ(known.wanted().id, "current");
  known.next.emplace().id = "next";
  EXPECT_EQ(known.wanted().id, "next");
  known.parked = true;
  EXPECT_EQ(known.wanted().id, "current");
  known.parked = false;
  for (const TrialWait wait : {TrialWait::turn, TrialWait::room}) {
    known.trial_wait = wait;
    EXPECT_FALSE(known.takes_next());
    EXPECT_EQ(known.wanted().id, "current");
  }
}

TEST(NamedModel, OnlyTheCurrentVersionCountsAsCurrentlyRefused) {
  NamedModel known;
  known.current.id = "current";
  EXPECT_FALSE(known.current_refused());
  known.refused.emplace().id = "other";
  EXPECT_FALSE(known.current_refused());
  known.refused->id = "current";
  EXPECT_TRUE(known.current_refused());
}

TEST(ModelTable, AModelIsFoundByItsNameUntilItIsRemoved) {
  Table one;
  const ModelIndex index = one.add(byte_model("a", 100, 10)).current.index;
  EXPECT_EQ(one.table.find("b"), nullptr);
  ASSERT_NE(one.table.find("a"), nullptr);
  EXPECT_EQ(one.table.served(*one.table.find("a")).sha256, "hash-of-a");
  EXPECT_EQ(one.table.name_of(index), "a");
  EXPECT_GT(one.table.index_end(), index);
  EXPECT_EQ(one.table.remove("a").index, index);
  EXPECT_EQ(one.table.find("a"), nullptr);
  EXPECT_TRUE(one.table.all().empty());
}

TEST(ModelTable, ADynamicModelCountsOnceHoweverManyBucketsItHas) {
  Table one;
  one.add(byte_model("plain", 100, 10));
  for (const std::int64_t length : {1, 2}) {
    ServedModel bucket = byte_model("d" + std::to_string(length), 100, 10);
    auto of = std::make_shared<Bucket>();
    of->model = "d";
    of->length = length;
    of->inputs = {{"x", DataType::uint8, {-1}}};
    of->outputs = {{"y", DataType::uint8, {-1}}};
    bucket.bucket = of;
    one.add(bucket);
  }
  EXPECT_EQ(one.table.all().size(), 3U);
  EXPECT_EQ(one.table.listed(), 2U);
  ASSERT_NE(one.table.dynamic().find("d"), nullptr);
  EXPECT_EQ(one.table.dynamic().find("d")->buckets.size(), 2U);
  EXPECT_EQ(one.table.remove("d1").id, version_of(byte_model("d1", 100, 10)));
  EXPECT_EQ(one.table.listed(), 2U);
  one.table.remove("d2");
  EXPECT_EQ(one.table.listed(), 1U);
  EXPECT_EQ(one.table.dynamic().find("d"), nullptr);
}

TEST(ModelTable, FilesAreThoseOfCurrentNextAndRefusedVersions) {
  Table one;
  NamedModel& a = one.add(byte_model("a", 100, 10));
  a.next = one.version(new_version("a", 2));
  NamedModel& b = one.add(byte_model("b", 100, 10));
  b.refused = {new_version("b", 3), version_of(new_version("b", 3)), {}, kNever};
  ServedModel without_file = byte_model("c", 100, 10);
  without_file.sha256.clear();
  const NamedModel& c = one.add(without_file);
  EXPECT_TRUE(one.table.lacks_file(c));
  EXPECT_FALSE(one.table.lacks_file(a));
  const std::set<std::string_view> expected = {"hash-of-a", "hash-2-of-a", "hash-of-b",
                                               "hash-3-of-b"};
  const auto files = one.table.known_files();
  EXPECT_EQ(std::set<std::string_view>(files.begin(), files.end()), expected);
  for (const std::string_view file : expected) EXPECT_TRUE(one.table.knows_file(file));
  EXPECT_FALSE(one.table.knows_file("hash-2-of-b"));
  EXPECT_FALSE(one.table.knows_file(""));
}

TEST(ModelTable, AGpuletHoldsACurrentNextOrDrainingVersion) {
  Table one;
  one.parts.join(1, "n0", at_ms(0));
  NamedModel& known = one.add(byte_model("a", 100, 10));
  known.next = one.version(new_version("a", 2));
  const ModelVersion old = one.version(new_version("a", 3));
  one.table.draining().push_back({"a", old, false, true});
  const auto hold = [&](std::uint64_t id, const std::string& version) {
    CreateGpulet create;
    create.id = GpuletId{id};
    create.size = Share{50};
    one.parts.backends.add_gpulet(create, {"n0", 0}, {{"a", 4, version}}, at_ms(0));
    return one.table.version_in(GpuletId{id}, "a");
  };
  EXPECT_EQ(hold(1, known.current.id), known.current.index);
  EXPECT_EQ(hold(2, known.next->id), known.next->index);
  EXPECT_EQ(hold(3, old.id), old.index);
  EXPECT_FALSE(hold(4, "of nobody"));
  EXPECT_FALSE(one.table.version_in(GpuletId{1}, "b"));
  EXPECT_FALSE(one.table.version_in(GpuletId{9}, "a"));
}

TEST(ModelTable, OnlyAnOpenDrainingVersionIsTakenBack) {
  Table one;
  const ModelVersion open = one.version(new_version("a", 2));
  const ModelVersion closed = one.version(new_version("a", 3));
  one.table.draining().push_back({"a", open, false, false});
  one.table.draining().push_back({"a", closed, false, true});
  EXPECT_FALSE(one.table.take_back("a", closed.id));
  EXPECT_FALSE(one.table.take_back("b", open.id));
  const std::optional<ModelVersion> back = one.table.take_back("a", open.id);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->index, open.index);
  EXPECT_FALSE(one.table.take_back("a", open.id));
  EXPECT_EQ(one.table.draining().size(), 1U);
}

TEST(ModelTable, SlotsAndSleepAreThoseOfTheModelsVersions) {
  Table one;
  const NamedModel& known = one.add(byte_model("a", 100, 10));
  const NamedModel& idle = one.add(byte_model("b", 100, 0));
  EXPECT_FALSE(one.table.asleep(known));
  EXPECT_TRUE(one.table.asleep(idle));
  EXPECT_FALSE(one.table.has_slot(known.current));
  one.parts.dispatcher.set_routes(
      {{GpuletId{1}, BackendId{1}, {}, {{known.current.index, {std::chrono::seconds(1)}}}}},
      at_ms(0));
  EXPECT_TRUE(one.table.has_slot(known.current));
  EXPECT_TRUE(one.table.has_ready_slot("a"));
  one.parts.dispatcher.set_ready(GpuletId{1}, false, at_ms(1));
  EXPECT_FALSE(one.table.has_ready_slot("a"));
  EXPECT_FALSE(one.table.has_ready_slot("nobody"));
}

// The table lists exactly the models that were added and not removed.
RC_GTEST_PROP(ModelTableProperty, ListsWhatWasAdded, ()) {
  Table one;
  std::map<std::string, ModelIndex> known;
  const int steps = *rc::gen::inRange(1, 30);
  for (int step = 0; step < steps; ++step) {
    const std::string name(1, *rc::gen::inRange('a', 'f'));
    if (known.contains(name)) {
      RC_ASSERT(one.table.remove(name).index == known.at(name));
      known.erase(name);
    } else {
      known[name] = one.add(byte_model(name, 100, 10)).current.index;
    }
    RC_ASSERT(one.table.listed() == known.size());
    RC_ASSERT(one.table.known_files().size() == known.size());
    for (const auto& [other, index] : known) {
      RC_ASSERT(one.table.find(other)->current.index == index);
      RC_ASSERT(one.table.name_of(index) == other);
    }
  }
}

}  // namespace
}  // namespace gpulet::serve::model_table_test

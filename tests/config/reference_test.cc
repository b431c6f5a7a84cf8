#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "config/description.h"
#include "config/reading.h"
#include "gpulet/config/check_file.h"
#include "gpulet/config/cluster_config.h"
#include "gpulet/config/daemon_config.h"
#include "gpulet/config/model_config.h"

namespace gpulet::config::reference_test {
namespace {

FileReference file_named(std::string_view name) {
  const std::vector<FileReference> files = file_references();
  const auto found = std::find_if(files.begin(), files.end(),
                                  [name](const FileReference& one) { return one.name == name; });
  return found == files.end() ? FileReference{} : *found;
}

KeyReference key_of(std::string_view file, std::string_view pointer) {
  for (const KeyReference& key : file_named(file).keys) {
    if (key.pointer == pointer) return key;
  }
  ADD_FAILURE() << file << " has no key " << pointer;
  return {};
}

// ---- an object of a reader

struct Inner {
  double factor = 2;
  std::string mode = "slow";
};
struct Outer {
  std::uint32_t workers = 3;
  std::uint32_t most = 0;  // stands for "no limit", which no file can state
  bool traces = true;
  std::vector<Inner> parts;
};

Inner read_inner(const JsonCursor& cursor) {
  Inner inner;
  ObjectReader(cursor)
      .required("factor", number(inner.factor, between(1, 4)), "The factor.")
      .optional("mode", choice(inner.mode, {"slow", "fast"}), "The mode.")
      .read();
  return inner;
}

Outer read_outer(const JsonCursor& cursor) {
  Outer outer;
  const auto parts = [&outer](const JsonCursor& at) {
    for (const JsonCursor& element : at.elements("a list of parts", 1))
      outer.parts.push_back(read_inner(element));
  };
  ObjectReader(cursor)
      .optional("parts", parts, "The parts.")
      .optional("workers", count(outer.workers, 1, 8), "The workers.")
      .optional("most", count(outer.most, 1, 8), "The most. Default: no limit.")
      .optional("traces", choice(outer.traces, {"off", "on"}), "The traces.")
      .read();
  return outer;
}

TEST(Description, HasTheRowsOfAReader) {
  Description description;
  static_cast<void>(read_outer(description.root()));
  const std::vector<KeyReference> keys = description.keys();
  ASSERT_EQ(keys.size(), 6U);
  EXPECT_EQ(keys[0].pointer, "/parts");
  EXPECT_EQ(keys[0].value, "a list of parts");
  EXPECT_EQ(keys[1].pointer, "/workers");
  EXPECT_EQ(keys[1].value, "a whole number from 1 to 8");
  EXPECT_EQ(keys[1].otherwise, "3");
  EXPECT_EQ(keys[1].help, "The workers.");
  EXPECT_FALSE(keys[1].required);
  EXPECT_EQ(keys[3].value, "one of off, on");
  EXPECT_EQ(keys[3].otherwise, "\"on\"");
  EXPECT_EQ(keys[4].pointer, "/parts/*/factor") << "objects follow the object that they are in";
  EXPECT_TRUE(keys[4].required);
  EXPECT_EQ(keys[4].otherwise, "") << "there is no default of a required key";
  EXPECT_EQ(keys[5].otherwise, "\"slow\"");
}

TEST(Description, HasNoDefaultThatAFileCannotState) {
  Description description;
  static_cast<void>(read_outer(description.root()));
  EXPECT_EQ(description.keys()[2].otherwise, "");
}

TEST(Description, LeavesDocumentsAlone) {
  const Result<JsonCursor> document = JsonCursor::parse(R"({"workers":5})", "f.json");
  ASSERT_TRUE(document.ok());
  EXPECT_EQ(Description::of(document.value()), nullptr);
  EXPECT_FALSE(describes(document.value(), "anything"));
  EXPECT_EQ(read_outer(document.value()).workers, 5U);
  EXPECT_TRUE(document.value().status().ok());
}

TEST(Description, RecordsNoErrorsAndIsNoDocument) {
  Description description;
  const JsonCursor root = description.root();
  static_cast<void>(read_outer(root));
  root.fail("what", "fix");
  EXPECT_TRUE(root.errors().empty());
  EXPECT_FALSE(root.status().ok());
}

// ---- the files

TEST(Reference, EveryKeyHasAValueAndSentences) {
  for (const FileReference& file : file_references()) {
    EXPECT_FALSE(file.keys.empty()) << file.name;
    std::set<std::string> seen;
    for (const KeyReference& key : file.keys) {
      EXPECT_FALSE(key.value.empty()) << file.name << key.pointer;
      EXPECT_TRUE(key.help.ends_with('.')) << file.name << key.pointer;
      EXPECT_TRUE(seen.insert(key.pointer).second) << file.name << key.pointer << " is there twice";
    }
  }
}

// An object's default is what its own keys say, and an empty list is one of the empty defaults.
TEST(Reference, AnOptionalKeyHasADefaultOrItsHelpSaysWhatHolds) {
  for (const FileReference& file : file_references()) {
    for (const KeyReference& key : file.keys) {
      if (key.required || !key.otherwise.empty() || key.value == "an object") continue;
      const bool told = key.help.find("Default: ") != std::string::npos ||
                        key.help.find("equired") != std::string::npos ||
                        key.help.find("n place of") != std::string::npos ||
                        key.help.find("default") != std::string::npos;
      EXPECT_TRUE(told) << file.name << key.pointer;
    }
  }
}

TEST(Reference, DefaultsAreThoseOfTheStructs) {
  EXPECT_EQ(key_of("backend.json", "/warm_proxies").otherwise,
            std::to_string(BackendConfig{}.warm_proxies));
  EXPECT_EQ(key_of("backend.json", "/proxy_memory/floor_mb").otherwise,
            std::to_string(ProxyMemory{}.floor_mb));
  EXPECT_EQ(key_of("frontend.json", "/listen").otherwise,
            in_quotes(to_string(FrontendConfig{}.listen)));
  EXPECT_EQ(key_of("frontend.json", "/late_grace_ms").otherwise,
            to_text(to_ms(FrontendConfig{}.late_grace)));
  EXPECT_EQ(key_of("frontend.json", "/verify").otherwise, "true");
  EXPECT_EQ(key_of("models.json", "/models/*/max_batch").otherwise,
            std::to_string(ModelConfig{}.max_batch));
  EXPECT_EQ(key_of("cluster.json", "/nodes/*/devices/*/sizes").otherwise, "[20,40,50,60,80,100]");
}

// So a stated default is JSON and within the bounds of its own reader.
TEST(Reference, AFrontendMayStateEveryDefault) {
  const std::string files = R"("models":"m.json","profiles":"p")";
  for (const KeyReference& key : file_named("frontend.json").keys) {
    const std::size_t last = key.pointer.rfind('/');
    const std::string object = key.pointer.substr(0, last);
    // The objects that need no other key.
    if (key.otherwise.empty() || object == "/cluster" || object.find('/', 1) != std::string::npos)
      continue;
    const std::string member = in_quotes(key.pointer.substr(last + 1)) + ':' + key.otherwise;
    const std::string text =
        object.empty() ? '{' + files + ',' + member + '}'
                       : '{' + files + ',' + in_quotes(object.substr(1)) + ":{" + member + "}}";
    const Status status = parse_frontend(text, "frontend.json").status();
    EXPECT_TRUE(status.ok()) << text << ": " << status.message();
  }
}

// Their readers depend on the values of other keys, of which a description has none.
TEST(Reference, HasKeysThatDependOnOthers) {
  EXPECT_EQ(key_of("cluster.json", "/nodes/*/devices/*/processes_per_instance").otherwise, "1");
  EXPECT_NE(key_of("cluster.json", "/nodes/*/devices/*/geometry").value.find("a100-40"),
            std::string::npos);
  EXPECT_NE(key_of("cluster.json", "/nodes/*/devices/*/gpu").value.find("UUID"), std::string::npos);
  EXPECT_EQ(key_of("workload.json", "/models/*/concurrency").otherwise, "1");
  for (const char* const pointer :
       {"/models/*/inputs/*/format", "/models/*/inputs/*/from/format",
        "/models/*/inputs/*/from/std", "/models/*/inputs/*/max_bytes", "/models/*/pad/values",
        "/models/*/lengths", "/models/*/queue/level_policies", "/models/*/labels",
        "/models/*/measured/NAME/cells/*/latency_ms", "/applications/*/nodes/*/model",
        "/applications/*/nodes/*/classes", "/applications/*/nodes/*/height",
        "/applications/*/outputs/*/from"})
    EXPECT_NE(key_of("models.json", pointer).value, "") << pointer;
}

TEST(Reference, IsAPageWithATableForEachObject) {
  const std::vector<FileReference> files{{"f.json",
                                          "A file.",
                                          {{"/a", "a <name>|text", true, {}, "The a."},
                                           {"/b", "an object", false, {}, "The b."},
                                           {"/b/c", "a number", false, "3", "The c."},
                                           {"/list/*/NAME/d", "a number", false, {}, "The d."}}}};
  const std::string page = as_markdown(files);
  EXPECT_TRUE(page.starts_with("# Configuration files\n"));
  EXPECT_TRUE(
      page.ends_with("\n## f.json\n\nA file.\n"
                     "\n| key | value | default | meaning |\n|---|---|---|---|\n"
                     "| `a` | a \\<name>\\|text | required | The a. |\n"
                     "| `b` | an object |  | The b. |\n"
                     "\n### f.json: `b`\n"
                     "\n| key | value | default | meaning |\n|---|---|---|---|\n"
                     "| `c` | a number | `3` | The c. |\n"
                     "\n### f.json: `list[].NAME`\n"
                     "\n| key | value | default | meaning |\n|---|---|---|---|\n"
                     "| `d` | a number |  | The d. |\n"))
      << page;
}

}  // namespace
}  // namespace gpulet::config::reference_test

#include "gpulet/archive/zip_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "gpulet/base/files.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/torchscript_archive.h"

namespace gpulet::zip_directory_test {
namespace {

using support::little;

std::string zeros(std::size_t bytes) { return std::string(bytes, '\0'); }

struct Member {
  std::string name;
  std::string content;
};

// Stored members; `wide`: with 64-bit records, and the sizes and offsets of members in them.
std::string zip(const std::vector<Member>& members, bool wide, std::uint16_t method = 0) {
  std::string text;
  std::string directory;
  for (const Member& member : members) {
    const std::uint64_t size = member.content.size();
    const std::uint64_t in_64 = 0xffffffff;
    const std::string extra = wide ? little(7, 2) + little(2, 2) + "xx" + little(1, 2) +
                                         little(24, 2) + little(size, 8) + little(size, 8) +
                                         little(text.size(), 8)
                                   : "";
    directory += "PK\x01\x02" + zeros(6) + little(method, 2) + zeros(8) +
                 little(wide ? in_64 : size, 4) + little(wide ? in_64 : size, 4) +
                 little(member.name.size(), 2) + little(extra.size(), 2) + zeros(10) +
                 little(wide ? in_64 : text.size(), 4) + member.name + extra;
    text += "PK\x03\x04" + zeros(22) + little(member.name.size(), 2) + little(3, 2) + member.name +
            "pad" + member.content;
  }
  const std::uint64_t at = text.size();
  return text + directory + "PK\x05\x06" + zeros(8) + little(directory.size(), 4) + little(at, 4) +
         little(0, 2);
}

class ZipDirectory : public ::testing::Test {
 public:
  [[nodiscard]] FileDescriptor opened(const std::string& content) const {
    return FileDescriptor(::open(folder_.write("m", content).c_str(), O_RDONLY | O_CLOEXEC));
  }

 private:
  support::TemporaryFolder folder_;
};

RC_GTEST_FIXTURE_PROP(ZipDirectory, FindsEveryMemberAndItsContent,
                      (const std::vector<std::pair<std::string, std::string>>& made, bool wide)) {
  RC_PRE(!made.empty());
  std::vector<Member> members;
  for (const auto& [name, content] : made) members.push_back({name, content});
  const FileDescriptor file = opened(zip(members, wide));
  const auto found = read_zip_directory(file.get());
  RC_ASSERT(found.ok());
  RC_ASSERT(found.value().size() == members.size());
  for (std::size_t i = 0; i < members.size(); ++i) {
    const ZipMember& member = found.value()[i];
    RC_ASSERT(member.name == members[i].name);
    RC_ASSERT(!member.compressed);
    RC_ASSERT(member.bytes == members[i].content.size());
    const auto begin = content_of(file.get(), member);
    RC_ASSERT(begin.ok());
    std::string content(members[i].content.size(), '\0');
    RC_ASSERT(::pread(file.get(), content.data(), content.size(),
                      static_cast<off_t>(begin.value())) == static_cast<ssize_t>(content.size()));
    RC_ASSERT(content == members[i].content);
  }
}

// Whatever was done to an archive, what is found lies within the file.
RC_GTEST_FIXTURE_PROP(ZipDirectory, StaysWithinABrokenFile,
                      (bool wide, std::size_t at, char value, std::size_t cut)) {
  std::string text = zip({{"a", "first"}, {"b/c", "second"}}, wide);
  text[at % text.size()] = value;
  text.resize(text.size() - cut % 4);
  const FileDescriptor file = opened(text);
  const auto found = read_zip_directory(file.get());
  if (!found.ok()) {
    RC_ASSERT(found.status().code() == StatusCode::invalid);
    return;
  }
  for (const ZipMember& member : found.value()) {
    const auto begin = content_of(file.get(), member);
    if (begin.ok()) RC_ASSERT(begin.value() + member.bytes <= text.size());
  }
}

TEST_F(ZipDirectory, TellsCompressedMembers) {
  const auto found = read_zip_directory(opened(zip({{"a", "x"}}, false, 8)).get());
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE(found.value().front().compressed);
}

TEST_F(ZipDirectory, RefusesOtherFiles) {
  for (const char* const text : {"", "PK", "no archive at all, but text of some length"})
    EXPECT_EQ(read_zip_directory(opened(text).get()).status().code(), StatusCode::invalid) << text;
  EXPECT_EQ(read_zip_directory(-1).status().code(), StatusCode::unavailable);
}

}  // namespace
}  // namespace gpulet::zip_directory_test

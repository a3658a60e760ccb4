#include "weft/data/indexed_dataset.h"

#include <cstring>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weft/base/error.h"

#include "tests/base/fault_env.h"
#include "tests/base/temporary_dir.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const std::string kTiny = std::string(WEFT_FIXTURES) + "/megatron/tiny";

void write(const std::string& path, std::string_view contents) {
  Env::system().remove_all(path);  // some file systems sync when a file is truncated and rewritten
  const auto file = Env::system().create(path);
  file->append(contents);
  file->close();
}

std::vector<int64_t> all_tokens(const IndexedDataset& dataset) {
  std::vector<int64_t> tokens(size_t(dataset.tokens()));
  dataset.read(0, tokens);
  return tokens;
}

void write_documents(const std::string& prefix, const std::vector<std::vector<int32_t>>& documents,
                     int64_t vocab_size, Env& env = Env::system()) {
  IndexedDatasetWriter writer(prefix, vocab_size, env);
  for (const auto& document : documents) {
    writer.append(document);
    writer.end_document();
  }
  writer.finish();
}

template <class T>
std::string bytes_of(std::vector<T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST(IndexedDatasetTest, ReadsWhatMegatronWrote) {
  const IndexedDataset dataset(kTiny);
  EXPECT_EQ(dataset.documents(), 23);
  EXPECT_EQ(dataset.tokens(), 614);
  EXPECT_EQ(dataset.document_begin(0), 0);
  EXPECT_EQ(dataset.document_begin(23), 614);
  const std::string bin = Env::system().read(kTiny + ".bin");
  const auto tokens = all_tokens(dataset);
  for (size_t at = 0; at < tokens.size(); ++at) {
    uint16_t token = 0;
    std::memcpy(&token, bin.data() + at * 2, 2);
    ASSERT_EQ(tokens[at], token) << at;
  }
  std::vector<int64_t> middle(5);
  dataset.read(100, middle);
  EXPECT_TRUE(std::equal(middle.begin(), middle.end(), tokens.begin() + 100));
}

TEST(IndexedDatasetTest, WritesExactlyTheFormat) {
  TemporaryDir dir;
  write_documents(dir / "d", {{1, 2, 65498}, {}, {7}}, 65499);
  EXPECT_EQ(Env::system().read(dir / "d.bin"), bytes_of<uint16_t>({1, 2, 65498, 7}));
  EXPECT_EQ(Env::system().read(dir / "d.idx"),
            std::string("MMIDIDX\0\0", 9) + bytes_of<uint64_t>({1}) + '\x08' + bytes_of<uint64_t>({2, 4}) +
                bytes_of<int32_t>({3, 1}) + bytes_of<int64_t>({0, 6}) + bytes_of<int64_t>({0, 1, 1, 2}));
  write_documents(dir / "d", {{1, 65499}}, 65500);
  EXPECT_EQ(Env::system().read(dir / "d.bin"), bytes_of<int32_t>({1, 65499}));
  EXPECT_EQ(Env::system().read(dir / "d.idx").substr(17, 1), "\x04");
}

TEST(IndexedDatasetTest, RewritesMegatronsFilesByteForByte) {
  TemporaryDir dir;
  const IndexedDataset dataset(kTiny);
  IndexedDatasetWriter writer(dir / "copy", 1000);
  for (int64_t document = 0; document < dataset.documents(); ++document) {
    std::vector<int64_t> tokens(
        size_t(dataset.document_begin(document + 1) - dataset.document_begin(document)));
    dataset.read(dataset.document_begin(document), tokens);
    writer.append(std::vector<int32_t>(tokens.begin(), tokens.end()));
    writer.end_document();
  }
  writer.finish();
  for (const char* suffix : {".bin", ".idx"}) {
    EXPECT_EQ(Env::system().read(dir / "copy" + suffix), Env::system().read(kTiny + suffix)) << suffix;
  }
}

TEST(IndexedDatasetTest, EmptyDocumentsKeepTheirPlace) {
  TemporaryDir dir;
  write_documents(dir / "d", {{}, {5}, {}, {}, {6, 7}, {}}, 10);
  const IndexedDataset dataset(dir / "d");
  EXPECT_EQ(dataset.documents(), 6);
  const std::vector<int64_t> begins = {0, 0, 1, 1, 1, 3, 3};
  for (int64_t document = 0; document <= 6; ++document) {
    EXPECT_EQ(dataset.document_begin(document), begins[size_t(document)]) << document;
  }
  write_documents(dir / "none", {}, 10);
  EXPECT_EQ(IndexedDataset(dir / "none").tokens(), 0);
}

TEST(IndexedDatasetTest, ATruncatedIndexIsNoticedAtEveryLength) {
  TemporaryDir dir;
  const std::string idx = Env::system().read(kTiny + ".idx");
  write(dir / "d.bin", Env::system().read(kTiny + ".bin"));
  for (size_t length = 0; length < idx.size(); ++length) {
    write(dir / "d.idx", idx.substr(0, length));
    EXPECT_THAT(
        [&] { IndexedDataset dataset(dir / "d"); },
        ThrowsMessage<Error>(AllOf(HasSubstr("d.idx: truncated"), HasSubstr(fmt::format("has {}", length)),
                                   HasSubstr(length < 34 ? "34 bytes" : "502 bytes"))));
  }
  write(dir / "d.idx", idx + "x");
  EXPECT_THAT([&] { IndexedDataset dataset(dir / "d"); },
              ThrowsMessage<Error>(HasSubstr("502 bytes, the file has 503")));
}

TEST(IndexedDatasetTest, TheTwoFilesMustBelongTogether) {
  TemporaryDir dir;
  const std::string bin = Env::system().read(kTiny + ".bin");
  write(dir / "d.idx", Env::system().read(kTiny + ".idx"));
  for (const std::string& wrong : {bin.substr(0, 1227), bin + "xx", std::string()}) {
    write(dir / "d.bin", wrong);
    EXPECT_THAT([&] { IndexedDataset dataset(dir / "d"); },
                ThrowsMessage<Error>(AllOf(HasSubstr("d.bin"), HasSubstr("expects 1228 bytes"),
                                           HasSubstr(fmt::format("has {}", wrong.size())))));
  }
  Env::system().remove_all(dir / "d.bin");
  EXPECT_THAT([&] { IndexedDataset dataset(dir / "d"); },
              ThrowsMessage<Error>(HasSubstr("d.bin does not exist")));
}

TEST(IndexedDatasetTest, EachCorruptFieldIsNamed) {
  TemporaryDir dir;
  write_documents(dir / "d", {{1, 2, 3}, {4}}, 10);
  const std::string good = Env::system().read(dir / "d.idx");
  const auto expect_error = [&](size_t at, const std::string& bytes, const std::string& says) {
    std::string bad = good;
    bad.replace(at, bytes.size(), bytes);
    write(dir / "d.idx", bad);
    EXPECT_THAT([&] { IndexedDataset dataset(dir / "d"); }, ThrowsMessage<Error>(HasSubstr(says)));
  };
  expect_error(0, "X", "does not start with MMIDIDX");
  expect_error(9, bytes_of<uint64_t>({2}), "version 2");
  expect_error(17, "\x07", "dtype code 7");
  expect_error(18, bytes_of<uint64_t>({UINT64_MAX}), "corrupt header");
  expect_error(26, bytes_of<uint64_t>({UINT64_MAX / 8}), "corrupt header");
  expect_error(26, bytes_of<uint64_t>({0}), "corrupt header");
  expect_error(18, bytes_of<uint64_t>({uint64_t(1) << 50}), "truncated");
  expect_error(34, bytes_of<int32_t>({-3}), "sequence 0 has length -3");
  expect_error(34, bytes_of<int32_t>({4}), "sequence 1 is at byte 6");
  expect_error(42, bytes_of<int64_t>({8}), "sequence 0 is at byte 8");
  expect_error(58, bytes_of<int64_t>({1}), "document 0 starts at sequence 1");
  expect_error(66, bytes_of<int64_t>({-1}), "document 1 starts at sequence -1: expected 0 to 2");
  expect_error(66, bytes_of<int64_t>({3}), "document 1 starts at sequence 3");
  expect_error(74, bytes_of<int64_t>({0}), "document 2 starts at sequence 0");
  expect_error(74, bytes_of<int64_t>({1}), "the documents end at sequence 1, but there are 2");
}

TEST(IndexedDatasetTest, RandomDamageNeverCrashes) {
  TemporaryDir dir;
  const std::string good = Env::system().read(kTiny + ".idx");
  write(dir / "d.bin", Env::system().read(kTiny + ".bin"));
  std::mt19937 random(3);
  int rejected = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string bad = good;
    bad[random() % bad.size()] ^= char(1 + random() % 255);
    write(dir / "d.idx", bad);
    try {
      const IndexedDataset dataset(dir / "d");
      EXPECT_EQ(all_tokens(dataset).size(), 614u);
    } catch (const Error&) {
      ++rejected;
    }
  }
  EXPECT_GT(rejected, 900);  // a document boundary that moves among its neighbours' is all that can pass
}

TEST(IndexedDatasetTest, TokensOutsideTheVocabularyAreNotWritten) {
  TemporaryDir dir;
  IndexedDatasetWriter writer(dir / "d", 10);
  EXPECT_THAT(
      [&] {
        writer.append(std::vector<int32_t>{9, 10});
      },
      ThrowsMessage<Error>(HasSubstr("token id 10")));
  EXPECT_THROW(writer.append(std::vector<int32_t>{-1}), Error);
}

TEST(IndexedDatasetTest, AFullDiskLeavesTheEarlierPair) {
  TemporaryDir dir;
  write_documents(dir / "d", {{1, 2, 3}}, 10);
  FaultEnv env;
  for (uint64_t room : {0, 5, 8, 40}) {
    env.fill_disk_after(room);
    EXPECT_THROW(write_documents(dir / "d", {{4, 5}, {6, 7}}, 10, env), Error) << room;
  }
  EXPECT_EQ(all_tokens(IndexedDataset(dir / "d")), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_THAT(Env::system().list(dir.path()), ::testing::ElementsAre("d.bin", "d.idx"));
}

TEST(IndexedDatasetTest, APowerCutNeverMixesTwoPairs) {
  const std::vector<int64_t> before = {1, 2, 3}, after = {4, 5, 6, 7};
  int kept = 0, replaced = 0, refused = 0;
  for (uint64_t operations = 0; operations < 12; ++operations) {
    TemporaryDir dir;
    write_documents(dir / "d", {{1, 2, 3}}, 10);
    FaultEnv env;
    env.stop_after(operations);
    try {
      write_documents(dir / "d", {{4, 5}, {6, 7}}, 10, env);
    } catch (const PowerCut&) {
    }
    env.power_on();
    env.drop_unsynced();
    try {
      const auto tokens = all_tokens(IndexedDataset(dir / "d"));
      tokens == before ? ++kept : ++replaced;
      EXPECT_TRUE(tokens == before || tokens == after) << operations;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(replaced, 0);
  EXPECT_LE(refused, 1);  // between the two renames
}

}  // namespace
}  // namespace weft

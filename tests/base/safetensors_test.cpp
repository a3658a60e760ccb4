#include "weft/base/safetensors.h"

#include <cstring>
#include <random>

#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/fault_env.h"
#include "tests/base/temporary_dir.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string file_with(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(data_bytes, '\1');
}

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "f.safetensors");
}

std::string error_of(const std::string& file) {
  try {
    parse(file);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string tensor_error(const std::string& tensor, size_t data_bytes) {
  return error_of(file_with(R"({"w": )" + tensor + "}", data_bytes));
}

TEST(Safetensors, ReadsWhatOtherToolsWrite) {
  const SafetensorsFile file(Env::system(), WEFT_FIXTURES "/hf/llama-gqa/model.safetensors");
  EXPECT_EQ(file.header().metadata.at("format"), "pt");
  const TensorInfo& embedding = file.info("model.embed_tokens.weight");
  EXPECT_EQ(embedding.dtype, "F32");
  EXPECT_THAT(embedding.shape, ElementsAre(96, 32));
  EXPECT_EQ(file.data("model.embed_tokens.weight").size(), 96u * 32 * 4);
}

TEST(Safetensors, WritesWhatItReads) {
  const TemporaryDir dir;
  const std::vector<double> matrix = {1, 2, 3, 4, 5, 6};
  const uint8_t byte = 7;
  const int64_t scalar = -8;
  const std::string hash = write_safetensors(Env::system(), dir / "f",
                                             {{"byte", "U8", {1}, std::as_bytes(std::span(&byte, 1))},
                                              {"empty", "F32", {3, 0}, {}},
                                              {"matrix", "F64", {2, 3}, std::as_bytes(std::span(matrix))},
                                              {"scalar", "I64", {}, std::as_bytes(std::span(&scalar, 1))}},
                                             {{"step", "12"}});

  const std::string bytes = Env::system().read(dir / "f");
  EXPECT_EQ(hash, fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size())));

  const SafetensorsFile file(Env::system(), dir / "f");
  EXPECT_EQ(file.header().metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"step", "12"}}));
  EXPECT_EQ(file.header().tensors.size(), 4u);
  EXPECT_THAT(file.info("matrix").shape, ElementsAre(2, 3));
  EXPECT_EQ(file.info("matrix").begin, 1u);  // in the order given
  EXPECT_TRUE(file.info("scalar").shape.empty());
  EXPECT_TRUE(file.data("empty").empty());
  EXPECT_EQ(std::memcmp(file.data("matrix").data(), matrix.data(), 48), 0);
  EXPECT_EQ(std::memcmp(file.data("scalar").data(), &scalar, 8), 0);
}

TEST(Safetensors, WritesTheseBytes) {
  const TemporaryDir dir;
  const float value = 1;
  write_safetensors(Env::system(), dir / "f", {{"w", "F32", {1}, std::as_bytes(std::span(&value, 1))}});
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const std::string expected =
      file_with(header + std::string(8 - header.size() % 8, ' '), 0) + std::string("\0\0\x80\x3f", 4);
  EXPECT_EQ(Env::system().read(dir / "f"), expected);
  EXPECT_EQ((expected.size() - 4) % 8, 0u);
}

TEST(Safetensors, AnUnknownNameBringsTheNearest) {
  const SafetensorsFile file(Env::system(), WEFT_FIXTURES "/hf/llama-gqa/model.safetensors");
  try {
    file.info("model.embed_token.weight");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("llama-gqa/model.safetensors: there is no tensor model.embed_token.weight; did "
                          "you mean model.embed_tokens.weight?"));
  }
}

TEST(Safetensors, DamagedFramesAreNamed) {
  EXPECT_THAT(error_of(""), HasSubstr("f.safetensors: 0 bytes are too few"));
  EXPECT_THAT(error_of("1234567"), HasSubstr("7 bytes are too few"));
  EXPECT_THAT(error_of(file_with("{}", 0).substr(0, 9)),
              HasSubstr("should be 2 bytes long, but the file ends after 1"));
  EXPECT_THAT(error_of(std::string(16, '\xff')), HasSubstr("would be 18446744073709551615 bytes long"));
  EXPECT_THAT(error_of(file_with("[1]", 0)), HasSubstr("a JSON object was expected"));
  EXPECT_THAT(error_of(file_with("", 0)), HasSubstr("damaged header"));
  EXPECT_THAT(error_of(file_with("{\"w\xff\": 1}", 0)), HasSubstr("damaged header"));
  EXPECT_THAT(error_of(file_with(std::string(1'000'000, '['), 0)), HasSubstr("nested too deeply"));
  EXPECT_THAT(error_of(file_with("{}", 5)), HasSubstr("the tensors take 0 bytes, but the file holds 5"));
  EXPECT_EQ(error_of(file_with("{}  ", 0)), "no error");
}

TEST(Safetensors, DamagedMetadataIsNamed) {
  EXPECT_THAT(error_of(file_with(R"({"__metadata__": 3})", 0)),
              HasSubstr("\"__metadata__\" must be a JSON object"));
  EXPECT_THAT(error_of(file_with(R"({"__metadata__": {"a": 3}})", 0)), HasSubstr("\"a\" must be a string"));
}

TEST(Safetensors, DamagedTensorsAreNamed) {
  EXPECT_EQ(tensor_error(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 8), "no error");
  EXPECT_THAT(tensor_error("3", 0), HasSubstr("f.safetensors: tensor w: a JSON object was expected"));
  EXPECT_THAT(tensor_error(R"({"dtype":"F33","shape":[2],"data_offsets":[0,8]})", 8),
              HasSubstr("unknown dtype \"F33\""));
  EXPECT_THAT(tensor_error(R"({"dtype":["F32"],"shape":[2],"data_offsets":[0,8]})", 8),
              HasSubstr("unknown dtype"));
  EXPECT_THAT(tensor_error(R"({"shape":[2],"data_offsets":[0,8]})", 8), HasSubstr("\"dtype\" is missing"));
  EXPECT_THAT(tensor_error(R"({"dtype":"F32","data_offsets":[0,8]})", 8), HasSubstr("\"shape\" is missing"));
  EXPECT_THAT(tensor_error(R"({"dtype":"F32","shape":[2]})", 8), HasSubstr("\"data_offsets\" is missing"));
  EXPECT_THAT(tensor_error(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})", 8),
              HasSubstr("must be an array"));
  EXPECT_THAT(tensor_error(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", 8), HasSubstr("found -2"));
  EXPECT_THAT(tensor_error(R"({"dtype":"F32","shape":[2.5],"data_offsets":[0,8]})", 8),
              HasSubstr("found 2.5"));
  EXPECT_THAT(tensor_error(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]})", 8),
              HasSubstr("found 9223372036854775808"));
  EXPECT_THAT(tensor_error(R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]})", 0),
              HasSubstr("impossibly large shape [4611686018427387904, 4]"));
  EXPECT_THAT(tensor_error(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})", 8),
              HasSubstr("must be two numbers"));
  EXPECT_THAT(tensor_error(R"({"dtype":"F32","shape":[2],"data_offsets":[0,"8"]})", 8),
              HasSubstr("found \"8\""));
  EXPECT_THAT(tensor_error(R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})", 8), HasSubstr("found -8"));
  EXPECT_THAT(tensor_error(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", 8),
              HasSubstr("bytes 8 to 0"));
  EXPECT_THAT(tensor_error(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 7),
              HasSubstr("tensor w: occupies bytes 0 to 8 of the data, but the file has 7; is it truncated?"));
  EXPECT_THAT(tensor_error(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})", 8),
              HasSubstr("tensor w: F32 of shape [3] takes 12 bytes, but 8 are given"));
}

TEST(Safetensors, TensorsMustTileTheData) {
  const auto two = [](const std::string& first, const std::string& second) {
    return error_of(file_with(R"({"a": {"dtype":"U8","shape":[4],"data_offsets":)" + first +
                                  R"(}, "b": {"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}",
                              10));
  };
  EXPECT_THAT(two("[0,4]", "[2,6]"),
              HasSubstr("tensor b begins at byte 2 of the data, inside the tensor before it"));
  EXPECT_THAT(two("[0,4]", "[5,9]"),
              HasSubstr("bytes 4 to 5 of the data, before tensor b, belong to no tensor"));
  EXPECT_THAT(two("[4,8]", "[0,4]"), HasSubstr("the tensors take 8 bytes, but the file holds 10"));
  EXPECT_THAT(error_of(file_with(R"({"a": {"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                 R"( "a": {"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                 1)),
              HasSubstr("tensor \"a\" occurs twice"));
}

// Whatever the bytes, the answer is a header that fits the file or an Error, never anything else.
TEST(Safetensors, ArbitraryBytesNeverCrash) {
  const std::string good = Env::system().read(WEFT_FIXTURES "/hf/llama-gqa/model.safetensors");
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string bad = good;
    if (i % 4 == 0) bad.resize(random() % good.size());
    for (unsigned flips = random() % 8; flips > 0 && !bad.empty(); --flips)
      bad[random() % std::min<size_t>(bad.size(), 2048)] = char(random());
    try {
      for (const auto& [name, tensor] : parse(bad).tensors) ASSERT_LE(tensor.end, bad.size());
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Safetensors, FilesBeyondFourGigabytes) {
  const TemporaryDir dir;
  const std::string path = dir / "f";
  const uint64_t size = (uint64_t{5} << 30) + 3;
  const std::string front =
      file_with(fmt::format(R"({{"big":{{"dtype":"U8","shape":[{0}],"data_offsets":[0,{0}]}},)"
                            R"("last":{{"dtype":"U8","shape":[1],"data_offsets":[{0},{1}]}}}})",
                            size, size + 1),
                0);
  Env::system().create(path)->append(front);
  ASSERT_EQ(::truncate(path.c_str(), off_t(front.size() + size)), 0);  // a hole: takes no space on the disk
  Env::system().open_append(path)->append("!");
  const SafetensorsFile file(Env::system(), path);
  EXPECT_EQ(file.data("big").size(), size);
  EXPECT_EQ(char(file.data("last")[0]), '!');
}

TEST(Safetensors, AFullDiskIsReported) {
  const TemporaryDir dir;
  FaultEnv env;
  env.fill_disk_after(100);
  const std::vector<std::byte> data(64);
  EXPECT_THROW(write_safetensors(env, dir / "f", {{"w", "U8", {64}, data}}), Error);
}

TEST(Safetensors, WhatIsWrittenIsSynced) {
  const TemporaryDir dir;
  FaultEnv env;
  const std::vector<std::byte> data(64);
  write_safetensors(env, dir / "f", {{"w", "U8", {64}, data}});
  env.sync_dir(dir.path());
  env.drop_unsynced();
  EXPECT_EQ(SafetensorsFile(env, dir / "f").data("w").size(), 64u);
}

}  // namespace
}  // namespace weft

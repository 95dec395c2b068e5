// Headers of .npy files as NumPy writes them, what is refused, and files that are written and read again.
#include "tools/arrays/npy.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

#include "csrc/base/text.h"

namespace hir::arrays {
namespace {

using namespace std::string_literals;

std::string Header(std::string dictionary) {
  dictionary += "\n";
  std::string bytes = "\x93NUMPY\x01\0"s;
  bytes += static_cast<char>(dictionary.size());
  bytes += '\0';
  return bytes + dictionary;
}

std::string FileName(std::string_view name) { return base::Cat(testing::TempDir(), "/npy_test.", getpid(), ".", name); }

TEST(Npy, ReadsHeadersAsNumPyWritesThem) {
  const auto matrix = ParseNpyHeader(Header("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 40), }"));
  ASSERT_TRUE(matrix.ok()) << matrix.status().ToString();
  EXPECT_EQ(matrix->descr, "<f4");
  EXPECT_EQ(matrix->shape, (std::vector<int64_t>{3, 40}));
  EXPECT_EQ(ParseNpyHeader(Header("{'descr': '|V2', 'fortran_order': False, 'shape': (7,), }"))->shape,
            std::vector<int64_t>{7});
  EXPECT_TRUE(ParseNpyHeader(Header("{'descr': '<f8', 'fortran_order': False, 'shape': (), }"))->shape.empty());
}

TEST(Npy, WhatItWritesItReads) {
  for (DType dtype : kAllDTypes) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {5}, {2, 3}, {0, 4}}) {
      const std::string header = MakeNpyHeader(dtype, shape);
      EXPECT_EQ(header.size() % 64, 0u);
      const auto read = ParseNpyHeader(header);
      ASSERT_TRUE(read.ok()) << read.status().ToString();
      EXPECT_EQ(read->shape, shape);
      EXPECT_TRUE(Holds(read->descr, dtype)) << read->descr;
      EXPECT_EQ(read->data_offset, static_cast<int64_t>(header.size()));
    }
  }
  EXPECT_TRUE(Holds("<u2", DType::kBFloat16));
  EXPECT_FALSE(Holds("<f2", DType::kBFloat16));
  EXPECT_FALSE(Holds("<f4", DType::kFloat64));
}

TEST(Npy, RefusesWhatItCannotRead) {
  const auto message = [](const std::string& bytes) { return std::string(ParseNpyHeader(bytes).status().message()); };
  EXPECT_EQ(message("PK\x03\x04 a zip file"), "is no .npy file; write it by numpy.save");
  EXPECT_EQ(message("\x93NUMPY\x01\0\xff\xff short"s), "ends within its header");
  EXPECT_EQ(message(Header("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 40), }")),
            "is column-major; save numpy.ascontiguousarray of it");
  EXPECT_EQ(message(Header("{'descr': '>f4', 'fortran_order': False, 'shape': (3, 40), }")),
            "holds elements of type \">f4\"; a program's are bool, int32, int64, float16, float32, "
            "float64, and bfloat16 "
            "as two bytes (V2 or uint16), all little-endian");
  const std::string record =
      base::Cat("[('\x1b[1m", std::string(90, 'a'), "', '<f4')]");  // Cut, and without its escape.
  EXPECT_TRUE(
      message(Header(base::Cat("{'descr': ", record, ", 'fortran_order': False, 'shape': (3,), }")))
          .starts_with(base::Cat("holds elements of type \"[('\\u001b[1m", std::string(57, 'a'), "\"; a program's")));
  EXPECT_EQ(message(Header("{'descr': '<f4', 'fortran_order': False, 'shape': (3, -1), }")), "has no readable shape");
  EXPECT_EQ(message(Header("{}")), "has no readable .npy header");
}

TEST(Npy, FilesRoundTripAndSayWhatIsWrong) {
  const std::string path = FileName("pair");
  const float values[] = {1, 2, 3, 4};
  const int64_t shape[] = {2, 2};
  {
    auto first = NpyWriter::Open(path, DType::kFloat32, shape, /*create=*/true);
    auto second = NpyWriter::Open(path, DType::kFloat32, shape, /*create=*/false);
    ASSERT_TRUE(first.ok() && second.ok());
    const auto bytes = std::as_bytes(std::span(values));
    ASSERT_TRUE(first->Write(0, bytes.first(8)).ok());
    ASSERT_TRUE(second->Write(8, bytes.last(8)).ok());
  }
  const auto file = NpyFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(std::memcmp(file->data(), values, sizeof(values)), 0);
  truncate(path.c_str(), file->header().data_offset + 15);
  EXPECT_EQ(NpyFile::Open(path).status().ToString(),
            base::Cat("INVALID_ARGUMENT: ", path, " has 15 bytes of elements, fewer than its shape says"));
  unlink(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);  // That nobody writes.
  EXPECT_EQ(NpyFile::Open(path).status().ToString(), base::Cat("INVALID_ARGUMENT: ", path, " is empty, or no file"));
  EXPECT_EQ(NpyWriter::Open(path, DType::kFloat32, shape, /*create=*/true).status().ToString(),
            base::Cat("UNAVAILABLE: cannot write ", path, ": No such device or address"));
  unlink(path.c_str());
  EXPECT_EQ(NpyFile::Open(path).status().ToString(),
            base::Cat("NOT_FOUND: cannot read ", path, ": No such file or directory"));
}

}  // namespace
}  // namespace hir::arrays

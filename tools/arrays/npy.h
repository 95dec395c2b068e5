// NumPy's .npy files: one dense row-major array each, little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "csrc/base/dtype.h"
#include "csrc/base/status.h"

namespace hir::arrays {

// What the header says.
struct NpyHeader {
  std::string descr;  // "<f4": NumPy's name of the element type.
  std::vector<int64_t> shape;
  int64_t data_offset = 0;  // In bytes.
};

// From the first bytes of a file (the whole header at least). Errors: kInvalidArgument: no .npy file, an array that is
// not row-major or not little-endian, an element type that no program has.
Result<NpyHeader> ParseNpyHeader(std::string_view bytes);

// The bytes before the elements. bf16, which NumPy lacks, is written as two bytes without meaning ("|V2"), which is how
// ml_dtypes.bfloat16 is saved.
std::string MakeNpyHeader(DType dtype, std::span<const int64_t> shape);

// Whether elements of `descr` are a program's `dtype`: equal types, and for bf16 "|V2" and "<u2".
bool Holds(std::string_view descr, DType dtype);

// A file that is read: its elements are mapped. Immutable, movable.
class NpyFile {
 public:
  // Errors: kNotFound naming the path; kInvalidArgument: those of ParseNpyHeader, or a file that is too short.
  static Result<NpyFile> Open(const std::string& path);
  NpyFile(NpyFile&& other) noexcept;
  NpyFile& operator=(NpyFile&&) = delete;
  ~NpyFile();

  const std::string& path() const { return path_; }
  const NpyHeader& header() const { return header_; }
  const std::byte* data() const { return mapped_ + header_.data_offset; }

 private:
  NpyFile(std::string path, const std::byte* mapped, size_t bytes)
      : path_(std::move(path)), mapped_(mapped), mapped_bytes_(bytes) {}

  std::string path_;
  NpyHeader header_;
  const std::byte* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
};

// A file that is written by several ranks, each its elements.
class NpyWriter {
 public:
  // `create`: makes the file in its full size, with its header; the other ranks open it after that.
  // Errors: kUnavailable naming path and reason.
  static Result<NpyWriter> Open(const std::string& path, DType dtype, std::span<const int64_t> shape, bool create);
  NpyWriter(NpyWriter&& other) noexcept;
  NpyWriter& operator=(NpyWriter&&) = delete;
  ~NpyWriter();

  // Writes `bytes` at `offset` of the elements. Errors: kUnavailable naming path and reason.
  Status Write(int64_t offset, std::span<const std::byte> bytes);

 private:
  NpyWriter(std::string path, int fd, int64_t data_offset)
      : path_(std::move(path)), fd_(fd), data_offset_(data_offset) {}

  std::string path_;
  int fd_ = -1;
  int64_t data_offset_ = 0;
};

}  // namespace hir::arrays
